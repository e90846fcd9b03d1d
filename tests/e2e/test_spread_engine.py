"""Engines that hold GPUs, on one node and on two, as far as a machine without them goes: the GPUs
are in Ray's accounts only, and the engine is the fake. vLLM's CPU build knows no Ray executor
("current platform cpu does not support ray"), so its own workers are not shown here."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.ray_clusters import Cluster, running

pytestmark = [pytest.mark.ray, pytest.mark.cluster, pytest.mark.nightly]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two nodes of 1 CPU and 1 GPU each."""
    with (
        tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as folder,
        running(Path(folder, "ray"), [1, 1], gpus=1) as cluster,
    ):
        yield cluster


def told(config: Path, **engine: Any) -> Path:
    tree = yaml.safe_load(config.read_text())
    config.write_text(yaml.safe_dump({**tree, "worker_cpus": 0.5, "engine": engine}))
    return config


def test_it_is_reserved_on_both_and_its_worker_sees_it(cluster, config, cli, tmp_path):
    env = cluster.driver_env
    path = told(config, pipeline_parallel_size=2)
    checked = cli("doctor", path, env=env, timeout_s=300)
    assert "2 GPU(s) fit 2 nodes, each engine on several nodes" in checked.stdout
    done = cli("evaluate", path, env=env, timeout_s=540)
    assert done.code == 0, done.stdout + done.stderr
    assert "reserved for each engine: 2 GPUs on 2 node(s)" in done.stdout
    (run,) = (tmp_path / "runs").iterdir()
    summary = json.loads((run / "summary.json").read_text())
    assert summary["scored"] == summary["declared"] == 4
    (engine,) = summary["timing"]["engines"]
    assert engine["placement"] == "2 GPUs on 2 node(s)"
    assert summary["timing"]["device"] == "gpu"


@pytest.mark.parametrize("command", ["evaluate", "doctor"])
def test_one_that_can_never_fit_is_a_line(cluster, config, cli, command):
    path = told(config, tensor_parallel_size=2, pipeline_parallel_size=2)
    done = cli(command, path, env=cluster.driver_env, timeout_s=300)
    assert done.code != 0
    said = " ".join((done.stdout + done.stderr).split())
    assert "1 worker(s) of 0.5 CPU(s) and 4 GPU(s) each, and" in said
    assert "do not fit 2 node(s) with 2 CPUs and 2 GPUs in all, at most 1 on a node" in said
    assert "Traceback" not in said


def test_one_that_fits_a_node_holds_its_gpus_there(config, cli, tmp_path):
    """Ray Data refuses GPUs to what names no batch size."""
    with (
        tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as folder,
        running(Path(folder, "ray"), [2], gpus=2) as cluster,
    ):
        path = told(config, tensor_parallel_size=2)
        done = cli("evaluate", path, env=cluster.driver_env, timeout_s=540)
    assert done.code == 0, done.stdout + done.stderr
    (run,) = (tmp_path / "runs").iterdir()
    summary = json.loads((run / "summary.json").read_text())
    assert summary["scored"] == summary["declared"] == 4
    assert summary["timing"]["device"] == "gpu"
    assert "2 node(s)" not in done.stdout
