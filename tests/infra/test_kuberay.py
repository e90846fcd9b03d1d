"""The manifests: what an API server would say, and what keeps a run cheap and resumable."""

from __future__ import annotations

import copy
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from ace_ray.cluster.resources import fit
from ace_ray.config.schema import RunConfig, load_config
from ace_ray.pipeline.health.monitor import END_S
from ace_ray.sweep.config import load_sweep

ROOT = Path(__file__).resolve().parents[2]
KUBERAY = ROOT / "infra" / "kuberay"
CRDS = os.environ.get("ACE_RAY_CRDS")
"""Read now: the tests' environment has no such variable."""

JOBS = ["evaluate", "sweep", "evaluate-kueue", "sweep-kueue"]


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("validate", ROOT / "infra" / "validate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


validate = loaded()


def objects(name: str) -> dict[str, dict[str, Any]]:
    """kind -> the object of a kustomization, which has one of each."""
    rendered = validate.render(KUBERAY / name)
    by_kind = {item["kind"]: item for item in rendered}
    assert len(by_kind) == len(rendered)
    return by_kind


def rayjob(name: str) -> dict[str, Any]:
    return dict(objects(name)["RayJob"]["spec"])


def pods(spec: dict[str, Any]) -> dict[str, Any]:
    cluster = spec["rayClusterSpec"]
    groups = [("head", cluster["headGroupSpec"])]
    groups += [(group["groupName"], group) for group in cluster["workerGroupSpecs"]]
    return {name: group["template"]["spec"] for name, group in groups}


def test_what_can_be_applied_is_listed() -> None:
    folders = {file.parent.name for file in KUBERAY.glob("*/kustomization.yaml")}
    assert folders - {"base", "kueue"} == set(validate.FOLDERS)
    assert {*JOBS, "queues"} == set(validate.FOLDERS)


@pytest.mark.parametrize("name", validate.FOLDERS)
def test_kubectl_renders_the_same(name: str) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    done = subprocess.run(
        ["kubectl", "kustomize", str(KUBERAY / name)], capture_output=True, text=True, check=True
    )

    def key(item: dict[str, Any]) -> tuple[str, str]:
        return item["kind"], item["metadata"]["name"]

    theirs = sorted(yaml.safe_load_all(done.stdout), key=key)
    assert sorted(validate.render(KUBERAY / name), key=key) == theirs


@pytest.fixture(scope="module")
def crds() -> dict[tuple[str, str], Any]:
    if not CRDS:
        pytest.skip("ACE_RAY_CRDS names no folder of CRDs (see infra/validate.py)")
    known = dict(validate.schemas(Path(CRDS)))
    assert ("ray.io/v1", "RayJob") in known
    return known


@pytest.mark.parametrize("name", validate.FOLDERS)
def test_the_published_schemas_accept_it(name: str, crds: dict[tuple[str, str], Any]) -> None:
    for item in validate.render(KUBERAY / name):
        assert list(validate.problems(item, crds)) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["backofLimit"], 3),
        (["backoffLimit"], "3"),
        (["rayClusterSpec", "authOptions", "mode"], "tokn"),
        (["rayClusterSpec", "workerGroupSpecs", 0, "template", "spec", "toleration"], []),
    ],
)
def test_the_schemas_do_refuse(path: list[Any], value: Any, crds: Any) -> None:
    item = copy.deepcopy(objects("evaluate")["RayJob"])
    node = item["spec"]
    for step in path[:-1]:
        node = node[step]
    node[path[-1]] = value
    assert list(validate.problems(item, crds))


@pytest.mark.parametrize("name", JOBS)
def test_an_image_by_tag_is_a_problem(name: str) -> None:
    item = copy.deepcopy(objects(name)["RayJob"])
    assert list(validate.problems(item, {})) == []
    digest = "0123456789abcdef" * 4
    for image, refused in (
        (f"r/ace-ray@sha256:{digest}", False),
        (f"r/ace-ray:gpu@sha256:{digest}", False),
        ("r/ace-ray:gpu", True),
        ("r/ace-ray", True),
        (f"r/ace-ray@sha256:{digest[1:]}", True),
    ):
        head = item["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
        head["initContainers"][0]["image"] = image
        found = list(validate.problems(item, {}))
        assert (
            found
            == [f"image {image}: not named by digest, as NAME@sha256:... (infra/README.md)"]
            * refused
        )


def test_a_structural_schema_becomes_strict() -> None:
    """The translation itself, which the published schemas exercise only where they are at hand."""
    schema = validate.strict(
        {
            "type": "object",
            "description": "d",
            "properties": {
                "count": {"x-kubernetes-int-or-string": True, "type": "string"},
                "maybe": {"type": "string", "nullable": True},
                "map": {"type": "object", "additionalProperties": {"type": "string"}},
                "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "list": {"type": "array", "items": {"type": "object", "properties": {"a": {}}}},
            },
        }
    )

    def accepts(**fields: Any) -> bool:
        item = {"apiVersion": "x/v1", "kind": "X"}
        wrapped = {"properties": {"spec": schema}}
        return not list(validate.problems({**item, "spec": fields}, {("x/v1", "X"): wrapped}))

    assert accepts(count=1, maybe=None, map={"any": "x"}, open={"any": 1}, list=[{"a": 1}])
    assert accepts(count="50%", maybe="x")
    refused: list[dict[str, Any]] = [{"cuont": 1}, {"count": []}, {"map": {"a": 1}}]
    for wrong in [*refused, {"list": [{"b": 1}]}]:
        assert not accepts(**wrong)


@pytest.mark.parametrize("name", JOBS)
def test_a_cluster_goes_with_its_job_and_a_retry_continues(name: str) -> None:
    spec = rayjob(name)
    assert spec["shutdownAfterJobFinishes"] is True
    assert spec["ttlSecondsAfterFinished"] > 0
    assert spec["backoffLimit"] >= 1
    assert spec["submissionMode"] == "K8sJobMode"
    assert spec["activeDeadlineSeconds"] > 0
    # What a retry would not resume, or would not allow.
    assert "--fresh" not in spec["entrypoint"]
    assert "clusterSelector" not in spec
    assert "jobId" not in spec
    assert len(objects(name)["RayJob"]["metadata"]["name"]) <= 47, "KubeRay's limit"


@pytest.mark.parametrize("name", ["sweep", "sweep-kueue"])
def test_a_bad_checkpoint_costs_one_more_cluster_at_most(name: str) -> None:
    """A sweep ends with 1 although all other models are complete."""
    assert rayjob(name)["backoffLimit"] == 1


@pytest.mark.parametrize("name", JOBS)
def test_ray_is_the_one_that_the_images_pin(name: str) -> None:
    version = rayjob(name)["rayClusterSpec"]["rayVersion"]
    for lock in ("cpu.txt", "gpu.txt"):
        assert f"\nray=={version} " in (ROOT / "requirements" / lock).read_text()


@pytest.mark.parametrize("name", JOBS)
def test_the_head_is_never_on_spot_and_workers_may_be(name: str) -> None:
    spec = rayjob(name)
    head = pods(spec)["head"]
    required = head["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (term,) = required["nodeSelectorTerms"]
    refused = {e["key"] for e in term["matchExpressions"] if e["operator"] == "NotIn"}
    assert refused == {"karpenter.sh/capacity-type", "eks.amazonaws.com/capacityType"}
    assert not head.get("tolerations")
    for group in spec["rayClusterSpec"]["workerGroupSpecs"]:
        pod = group["template"]["spec"]
        assert {"nvidia.com/gpu", "spot"} <= {t["key"] for t in pod["tolerations"]}
        wishes = pod["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
        wanted = {e["key"] for w in wishes for e in w["preference"]["matchExpressions"]}
        assert wanted == refused


@pytest.mark.parametrize("name", JOBS)
def test_gpu_groups_grow_and_shrink(name: str) -> None:
    cluster = rayjob(name)["rayClusterSpec"]
    for group in cluster["workerGroupSpecs"]:
        (container,) = group["template"]["spec"]["containers"]
        assert int(container["resources"]["limits"]["nvidia.com/gpu"]) == 1
        assert 0 < group["replicas"] <= group["maxReplicas"]
        if name.endswith("-kueue"):
            # Kueue refuses autoscaling unless its elastic jobs are on.
            assert cluster["enableInTreeAutoscaling"] is False
            assert "autoscalerOptions" not in cluster
            assert group["minReplicas"] == group["replicas"] == group["maxReplicas"]
        else:
            assert cluster["enableInTreeAutoscaling"] is True
            # A sweep keeps the GPUs that it was packed for.
            least = group["replicas"] if name == "sweep" else 0
            assert group["minReplicas"] == least
            # Workers idle from their start until the driver has planned.
            assert cluster["autoscalerOptions"]["idleTimeoutSeconds"] >= 600


@pytest.mark.parametrize("name", JOBS)
def test_rows_in_flight_have_time_to_end(name: str) -> None:
    grace = RunConfig.model_fields["grace_s"].default
    every = pods(rayjob(name))
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


def test_the_heads_hook_ends_the_driver_and_waits(tmp_path: Path) -> None:
    """The real hook, on a process that looks like a job's driver."""
    (container,) = pods(rayjob("evaluate"))["head"]["containers"]
    command = container["lifecycle"]["preStop"]["exec"]["command"]
    if shutil.which("pkill") is None:
        pytest.skip("procps is not installed")
    script = tmp_path / "jobs" / "evaluatefortest.py"
    script.parent.mkdir()
    script.write_text(
        "import pathlib, signal, sys, time\n"
        "def drain(*_): time.sleep(1); pathlib.Path(sys.argv[1]).touch(); sys.exit(75)\n"
        "signal.signal(signal.SIGTERM, drain)\n"
        "print('up', flush=True)\n"
        "time.sleep(60)\n"
    )
    # Only this one: other tests may run real jobs on this machine.
    command = [word.replace("[a-z]+[.]py", "evaluatefortes[t][.]py") for word in command]
    driver = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "drained")], stdout=subprocess.PIPE, text=True
    )
    try:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "up\n"
        subprocess.run(command, timeout=30, check=False)
        assert (tmp_path / "drained").exists(), "the hook must not return before the driver"
        assert driver.wait(timeout=10) == 75
    finally:
        driver.kill()


@pytest.mark.parametrize("name", JOBS)
def test_no_secret_is_written_down(name: str) -> None:
    every = objects(name)
    assert "Secret" not in every
    account = every["ServiceAccount"]
    assert "eks.amazonaws.com/role-arn" in account["metadata"]["annotations"]
    options = every["RayJob"]["spec"]["rayClusterSpec"]["authOptions"]
    assert options["mode"] == "token"
    assert options["secretName"]
    for pod in pods(every["RayJob"]["spec"]).values():
        assert pod["serviceAccountName"] == account["metadata"]["name"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        for container in [*pod["containers"], *pod.get("initContainers", [])]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert not {e["name"] for e in container.get("env", [])} & {
                "RAY_AUTH_TOKEN",
                "AWS_SECRET_ACCESS_KEY",
            }


@pytest.mark.parametrize("name", JOBS)
def test_every_pod_is_scraped_and_has_what_it_mounts(name: str) -> None:
    spec = rayjob(name)
    (monitor,) = validate.load(ROOT / "infra" / "monitoring" / "podmonitor.yaml")
    wanted = monitor["spec"]["selector"]["matchLabels"]
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    cluster = spec["rayClusterSpec"]
    for group in [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]:
        assert wanted.items() <= group["template"]["metadata"]["labels"].items()
        pod = group["template"]["spec"]
        assert endpoint["port"] in {port["name"] for port in pod["containers"][0]["ports"]}
        volumes = {volume["name"] for volume in pod["volumes"]}
        for container in [*pod["containers"], *pod.get("initContainers", [])]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
            assert container["image"] == "REGISTRY/ace-ray@sha256:DIGEST"


@pytest.mark.parametrize("name", ["evaluate", "sweep"])
def test_two_jobs_can_live_in_one_namespace(name: str) -> None:
    every = objects(name)
    config_map = every["ConfigMap"]["metadata"]["name"]
    assert config_map == every["RayJob"]["metadata"]["name"] == f"ace-ray-{name}"
    volumes = pods(every["RayJob"]["spec"])["head"]["volumes"]
    assert [v["configMap"]["name"] for v in volumes if "configMap" in v] == [config_map]


def test_the_config_of_the_evaluation_is_valid_and_fits() -> None:
    config = load_config(str(KUBERAY / "evaluate" / "config.yaml"))
    assert config.output.startswith("s3://")
    assert config.workers == "auto"
    cluster = rayjob("evaluate")["rayClusterSpec"]

    def node(pod: dict[str, Any]) -> dict[str, float]:
        limits = pod["containers"][0]["resources"]["limits"]
        return {"CPU": float(limits["cpu"]), "GPU": float(limits.get("nvidia.com/gpu", 0))}

    (group,) = cluster["workerGroupSpecs"]
    nodes = [node(cluster["headGroupSpec"]["template"]["spec"])]
    nodes += [node(group["template"]["spec"])] * group["replicas"]
    need = fit(config, 1000, nodes, interactive=True)
    assert (need.workers, need.gpus) == (group["replicas"], group["replicas"])


def test_the_config_of_the_sweep_is_valid() -> None:
    sweep = load_sweep(str(KUBERAY / "sweep" / "config.yaml"))
    assert sweep.output.startswith("s3://")
    assert str(sweep.options.checkpoints).startswith("s3://")


def test_kueue_queues_the_job() -> None:
    for name in ("evaluate-kueue", "sweep-kueue"):
        job = objects(name)["RayJob"]
        assert job["spec"]["suspend"] is True
        queue = job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]
        queues = {item["kind"]: item for item in validate.render(KUBERAY / "queues")}
        assert queues["LocalQueue"]["metadata"]["name"] == queue
        cluster_queue = queues["LocalQueue"]["spec"]["clusterQueue"]
        assert queues["ClusterQueue"]["metadata"]["name"] == cluster_queue
        (group,) = queues["ClusterQueue"]["spec"]["resourceGroups"]
        assert [f["name"] for f in group["flavors"]] == ["ace-ray"]
        asked = {
            resource
            for pod in pods(job["spec"]).values()
            for kind in ("requests", "limits")
            for resource in pod["containers"][0]["resources"][kind]
        }
        assert asked <= set(group["coveredResources"]), "Kueue would never admit it"
    assert "suspend" not in rayjob("evaluate")
