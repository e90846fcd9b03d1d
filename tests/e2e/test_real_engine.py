"""vLLM with SmolLM2-135M: a sweep over two adapters, and vLLM's metrics."""

import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml

import ace_ray
from ace_ray.models.sources import materialize, resolve
from tests.conftest import ROOT
from tests.e2e.conftest import Evaluate
from tests.e2e.ray_clusters import running
from tests.e2e.smollm2 import ENGINE as SMOLLM2
from tests.e2e.smollm2 import SOURCE
from tests.faults.fault_runs import needs_vllm_and_smollm2

pytestmark = [pytest.mark.engine, pytest.mark.nightly, needs_vllm_and_smollm2]
ENGINE = {**SMOLLM2, "max_model_len": 4096, "kv_cache_memory_bytes": 1 << 28}
TREE: dict[str, Any] = {
    "model": {"source": SOURCE},
    "benchmarks": [{"name": "acebench", "data": "mini", "categories": ["normal_atom_bool"]}],
    "limit": 3,
}


def test_a_sweep_over_two_adapters_equals_two_runs(tmp_path, cli, make_adapter) -> None:
    folder = materialize(resolve(SOURCE, None))
    # One row at a time: other rows of a batch change the numbers.
    tree = {**TREE, "concurrency": 1, "engine": {**ENGINE, "max_num_seqs": 1}}
    tree["sampling"] = {"max_tokens": 24}
    adapters = [
        make_adapter(tmp_path / "loras" / f"checkpoint-{n}", folder, n, scale=0.08) for n in (1, 2)
    ]

    def run_command(name: str, command: str, **changes: Any) -> Path:
        path, out = tmp_path / f"{name}.yaml", tmp_path / name
        path.write_text(yaml.safe_dump({**tree, "output": str(out), **changes}))
        cli(command, path, timeout_s=900).ok()
        (only,) = out.iterdir()
        return only

    def outputs(run: Path) -> dict[tuple[str, str], str]:
        rows = ace_ray.Run.open(str(run)).rows(["language", "id", "output"]).to_pylist()
        return {(row["language"], row["id"]): row["output"] for row in rows}

    single = [
        outputs(
            run_command(f"single{n}", "evaluate", model={"source": SOURCE, "adapter": str(adapter)})
        )
        for n, adapter in enumerate(adapters)
    ]
    sweep = run_command("sweep", "sweep", checkpoints=str(tmp_path / "loras"))
    lines = json.loads((sweep / "ledger.json").read_text())["runs"]
    assert [(line["step"], line["state"], line["engine"]) for line in lines] == [
        (1, "complete", "fresh"),
        (2, "complete", "swapped"),
    ]
    assert [outputs(sweep / line["run_id"]) for line in lines] == single
    assert len(single[0]) == 3
    assert single[0] != single[1]


def test_the_metrics_on_the_dashboard_come_from_vllm_and_ray(evaluate: Evaluate) -> None:
    board = (ROOT / "infra/monitoring/grafana-dashboard.json").read_text()
    names = set(re.findall(r"ray_vllm_\w+", board))
    assert len(names) == 4
    tree = {**TREE, "backend": "vllm", "engine": ENGINE, "sampling": {"max_tokens": 100}}
    lines: dict[str, str] = {}
    with running(cpus=2) as cluster, ThreadPoolExecutor(1) as pool:
        run = pool.submit(evaluate, env=cluster.driver_env, **tree)
        while not run.done():
            for line in scraped(cluster.folder / "prom_metrics_service_discovery.json"):
                lines[line.partition("{")[0]] = line
            time.sleep(0.5)
        run.result()
    assert names <= lines.keys(), sorted(name for name in lines if "vllm" in name)
    assert 'model_name="SmolLM2' in lines["ray_vllm_prefix_cache_queries_total"]


def scraped(services: Path) -> Iterator[str]:
    """Yield the lines of metrics that the nodes in the file ``services`` export now."""
    for service in json.loads(services.read_text()) if services.exists() else ():
        for target in service["targets"]:
            with suppress(OSError), urlopen(f"http://{target}/metrics", timeout=10) as answer:
                yield from answer.read().decode().splitlines()
