"""Ray's own reading of the launcher's config, without a network."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

from ace_ray.config.schema import RunConfig
from ace_ray.pipeline.health.monitor import END_S

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "infra" / "ray" / "aws.yaml"


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    def refuse(*_: Any) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    return dict(prepare_config(yaml.safe_load(CONFIG.read_text())))


def test_ray_accepts_it(prepared: dict[str, Any]) -> None:
    validate_config(prepared)


def test_ray_would_refuse_a_typing_error(prepared: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        validate_config({**prepared, "hed_node_type": "head"})
    with pytest.raises(ValueError, match="head_node_type"):
        validate_config({**prepared, "head_node_type": "hed"})


def test_workers_are_spot_and_the_head_is_not(prepared: dict[str, Any]) -> None:
    types = prepared["available_node_types"]
    head = types.pop(prepared["head_node_type"])
    assert "InstanceMarketOptions" not in head["node_config"]
    assert head["max_workers"] == 0
    for kind in types.values():
        assert kind["node_config"]["InstanceMarketOptions"] == {"MarketType": "spot"}
        assert kind["resources"]["GPU"] >= 1
        assert kind["min_workers"] <= kind["max_workers"] <= prepared["max_workers"]
    # EC2 stops no spot instance of the one-time kind.
    assert prepared["provider"]["cache_stopped_nodes"] is False


def test_nothing_is_installed_beside_the_image(prepared: dict[str, Any]) -> None:
    for key in ("initialization_commands", "setup_commands", "head_setup_commands"):
        assert prepared[key] == []
    # Ray merges the setup commands of all nodes and of workers into one list.
    assert prepared["worker_setup_commands"] == []
    assert prepared["docker"]["image"] == "REGISTRY/ace-ray@sha256:DIGEST"


def test_all_nodes_know_the_token(prepared: dict[str, Any]) -> None:
    assert "--env RAY_AUTH_MODE=token" in prepared["docker"]["run_options"]
    (mount,) = prepared["file_mounts"].items()
    assert mount == ("/home/ray/.ray/auth_token", "~/.ray/auth_token")
    assert "AUTH_TOKEN=" not in CONFIG.read_text()


def test_a_stopped_job_has_time_to_end(prepared: dict[str, Any]) -> None:
    (wait,) = [o for o in prepared["docker"]["run_options"] if "RAY_JOB_STOP_WAIT_TIME_S" in o]
    assert int(wait.rpartition("=")[2]) > RunConfig.model_fields["grace_s"].default + END_S


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_ray_start_knows_the_options(prepared: dict[str, Any]) -> None:
    from ray.scripts.scripts import start

    known = {option for parameter in start.params for option in parameter.opts}
    commands = prepared["head_start_ray_commands"] + prepared["worker_start_ray_commands"]
    used = {
        word.partition("=")[0]
        for command in commands
        if command.startswith("ray start")
        for word in command.split()[2:]
    }
    assert used <= known
    assert {"--metrics-export-port", "--autoscaling-config"} <= used
