"""Engines hold GPUs on one node and on several, as far as Ray's accounts go.

The GPUs exist in these accounts only, and the engine is the fake. vLLM's CPU build has no Ray
executor, so vLLM's own workers are not tested here.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.conftest import Cli
from tests.e2e.ray_clusters import running

pytestmark = [pytest.mark.ray, pytest.mark.cluster, pytest.mark.nightly]


@pytest.mark.parametrize(("nodes", "placement"), [(2, "2 GPUs on 2 node(s)"), (1, "")])
def test_gpus_of_an_engine_are_reserved(
    config: Path, cli: Cli, tmp_path: Path, nodes: int, placement: str
) -> None:
    def asked(**engine: int) -> Path:
        tree = yaml.safe_load(config.read_text())
        config.write_text(yaml.safe_dump({**tree, "worker_cpus": 0.5, "engine": engine}))
        return config

    with running([2 // nodes] * nodes, gpus=2 // nodes) as cluster:
        env = cluster.driver_env
        if nodes == 2:
            too_large = asked(tensor_parallel_size=2, pipeline_parallel_size=2)
            said = cli("doctor", too_large, env=env, timeout_s=300).stdout
            assert "do not fit 2 node(s) with 2 CPUs and 2 GPUs in all" in " ".join(said.split())
        size = {"pipeline_parallel_size" if nodes == 2 else "tensor_parallel_size": 2}
        done = cli("evaluate", asked(**size), env=env, timeout_s=540)
    assert done.code == 0, done.stdout + done.stderr
    (run,) = (tmp_path / "runs").iterdir()
    summary = json.loads((run / "summary.json").read_text())
    assert summary["scored"] == summary["declared"] == 4
    assert summary["timing"]["device"] == "gpu"
    if placement:
        assert f"reserved for each engine: {placement}" in done.stdout
        (engine,) = summary["timing"]["engines"]
        assert engine["placement"] == placement
    else:
        assert "2 node(s)" not in done.stdout
