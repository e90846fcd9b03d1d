"""The Kubernetes manifests keep a run safe, resumable and valid."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from ace_ray.config.schema import RunConfig, load_config
from ace_ray.pipeline.health.monitor import END_S
from ace_ray.sweep.config import load_sweep

ROOT = Path(__file__).resolve().parents[2]
KUBERAY = ROOT / "infra" / "kuberay"
JOBS = ["evaluate", "sweep", "evaluate-kueue", "sweep-kueue"]

SPEC = importlib.util.spec_from_file_location("validate", ROOT / "infra" / "validate.py")
assert SPEC is not None
assert SPEC.loader is not None
validate: Any = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(validate)


def objects(name: str) -> dict[str, dict[str, Any]]:
    """Return kind -> object of a kustomization."""
    return {item["kind"]: item for item in validate.render(KUBERAY / name)}


def pods(spec: dict[str, Any]) -> dict[str, Any]:
    cluster = spec["rayClusterSpec"]
    groups = [("head", cluster["headGroupSpec"])]
    groups += [(group["groupName"], group) for group in cluster["workerGroupSpecs"]]
    return {name: group["template"]["spec"] for name, group in groups}


@pytest.mark.parametrize("name", JOBS)
def test_rows_in_flight_have_time_to_end(name: str) -> None:
    grace = RunConfig.model_fields["drain_timeout_s"].default
    spec = objects(name)["RayJob"]["spec"]
    assert "--fresh" not in spec["entrypoint"], "a retry has to resume"
    (seconds,) = re.findall(r"ACE_RAY_END_TIME=.* \+ (\d+)", spec["entrypoint"])
    assert int(seconds) < spec["activeDeadlineSeconds"]
    every = pods(spec)
    head = every.pop("head")
    assert head["terminationGracePeriodSeconds"] > grace + END_S
    (container,) = head["containers"]
    (wait,) = [e["value"] for e in container["env"] if e["name"] == "RAY_JOB_STOP_WAIT_TIME_S"]
    assert grace + END_S < int(wait) <= head["terminationGracePeriodSeconds"]
    for pod in every.values():
        (container,) = pod["containers"]
        command, seconds = container["lifecycle"]["preStop"]["exec"]["command"]
        assert command == "sleep"
        assert grace < int(seconds) < pod["terminationGracePeriodSeconds"]


@pytest.mark.parametrize("name", JOBS)
def test_no_secret_is_written_down_and_nothing_runs_as_root(name: str) -> None:
    every = objects(name)
    assert "Secret" not in every
    spec = every["RayJob"]["spec"]
    assert spec["rayClusterSpec"]["authOptions"]["mode"] == "token"
    for pod in pods(spec).values():
        assert pod["serviceAccountName"] == every["ServiceAccount"]["metadata"]["name"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        for container in [*pod["containers"], *pod.get("initContainers", [])]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            names = {variable["name"] for variable in container.get("env", [])}
            assert not names & {"RAY_AUTH_TOKEN", "AWS_SECRET_ACCESS_KEY"}


def test_the_configs_are_valid() -> None:
    assert load_sweep(str(KUBERAY / "sweep" / "config.yaml")).output.startswith("s3://")
    assert load_config(str(KUBERAY / "evaluate" / "config.yaml")).output.startswith("s3://")
