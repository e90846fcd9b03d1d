"""Ray accepts the launcher's config, without a network."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

from ace_ray.config.schema import RunConfig
from ace_ray.pipeline.health.monitor import END_S

CONFIG = Path(__file__).resolve().parents[2] / "infra" / "ray" / "aws.yaml"


def test_ray_accepts_the_config_of_the_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    prepared = dict(prepare_config(yaml.safe_load(CONFIG.read_text())))
    validate_config(prepared)
    types = prepared["available_node_types"]
    head = types.pop(prepared["head_node_type"])
    assert "InstanceMarketOptions" not in head["node_config"], "the head is not on spot"
    options = prepared["docker"]["run_options"]
    assert "--env RAY_AUTH_MODE=token" in options
    (wait,) = [option for option in options if "RAY_JOB_STOP_WAIT_TIME_S" in option]
    # A stopped job needs time to store its rows.
    assert int(wait.rpartition("=")[2]) > RunConfig.model_fields["grace_s"].default + END_S
