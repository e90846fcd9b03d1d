"""Cost of a checkpoint beyond its generation: a sweep against a command for each checkpoint.

    python perf/sweep_cost.py                   # SmolLM2-135M and 4 perturbed copies, 16 rows each

Both sides evaluate the same checkpoints on the same rows, one request at a time, so that greedy
answers are equal. Overhead of a checkpoint: the wall time that it adds, less the time that its rows
took. In the sweep it begins with the last row of the checkpoint before. Exit code 1 if it is not 10
times smaller with the sweep, or answers differ.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from dummy_models import perturbed
from runs import ENGINE, ace_ray, model_folder, stored_columns

# The cached part of a prompt depends on earlier prompts, and so do the last bits of its logits.
ALONE = {**ENGINE, "max_num_seqs": 1, "enable_prefix_caching": False}
NOISE = 0.02
TARGET = 10.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--copies", type=int, default=4)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--max-tokens", type=int, default=32)
    parser.add_argument("--dtype", default="bfloat16", help="float32 on a CPU without AVX-512")
    parser.add_argument("--data", default="mini")
    args = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="ace-ray-perf-"))
    try:
        return compare(args, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def compare(args: argparse.Namespace, scratch: Path) -> int:
    """Print what both sides took; the exit code."""
    folders = [scratch / "checkpoints" / f"step_{step}" for step in range(args.copies + 1)]
    for step, folder in enumerate(folders):
        perturbed(model_folder(), folder, NOISE if step else 0.0, seed=step)
    shared: dict[str, Any] = {
        "benchmarks": [{"name": "acebench", "data": args.data, "categories": ["normal"]}],
        "engine": {**ALONE, "dtype": args.dtype},
        "sampling": {"max_tokens": args.max_tokens},
        "concurrency": 1,
        "limit": args.rows,
    }
    swept = sweep(shared, scratch)
    ends = {label: max(map(end, rows)) for label, rows in swept.items()}
    labels = list(swept)
    with_swap = [
        ends[label] - ends[before] - busy(swept[label]) for before, label in pairwise(labels)
    ]
    alone, differing = [], 0
    for label, folder in zip(labels, folders, strict=True):
        config, output = scratch / "alone.yaml", scratch / "alone" / folder.name
        config.write_text(yaml.safe_dump({**shared, "model": {"source": str(folder)}}))
        seconds, _ = ace_ray("evaluate", str(config), "--output", str(output), scratch=scratch)
        (run,) = output.iterdir()
        rows = rows_of(run)
        alone.append(seconds - busy(rows))
        theirs = {row["row_id"]: row["output"] for row in rows}
        differing += sum(theirs[row["row_id"]] != row["output"] for row in swept[label])
        print(f"  {label} alone: {seconds:.1f} s, {busy(rows):.1f} s of it in rows", flush=True)
    command_s, sweep_s = statistics.median(alone), statistics.median(with_swap)
    print(f"overhead with a command each: {shown_all(alone)} s, median {command_s:.1f}")
    print(f"overhead after the first with a sweep: {shown_all(with_swap)} s, median {sweep_s:.1f}")
    times = command_s / sweep_s
    print(
        f"smaller by {times:.1f} (target {TARGET:g}); answers that differ: {differing} (target 0)"
    )
    return int(times < TARGET or differing > 0)


def sweep(shared: dict[str, Any], scratch: Path) -> dict[str, list[dict[str, Any]]]:
    """Sweep over the checkpoints. Returns label -> rows."""
    config, output = scratch / "sweep.yaml", scratch / "swept"
    settings = {"checkpoints": str(scratch / "checkpoints"), "sweep_id": "sweep"}
    config.write_text(yaml.safe_dump({**shared, **settings}))
    seconds, _ = ace_ray("sweep", str(config), "--output", str(output), scratch=scratch)
    rows_by_label = {}
    ledger = json.loads((output / "sweep/ledger.json").read_text())["runs"]
    print(f"sweep of {len(ledger)} checkpoints: {seconds:.1f} s", flush=True)
    for line in ledger:
        rows_by_label[line["label"]] = rows_of(output / "sweep" / line["run_id"])
        timings = ", ".join(f"{state} {value:.1f}" for state, value in line["seconds"].items())
        print(f"  {line['label']}: {line['engine']}, {timings}", flush=True)
    return rows_by_label


def rows_of(run: Path) -> list[dict[str, Any]]:
    columns = ["row_id", "output", "started_at", "duration_s"]
    rows: list[dict[str, Any]] = stored_columns(str(run), columns).to_pylist()
    return rows


def end(row: dict[str, Any]) -> float:
    return float(row["started_at"].timestamp() + row["duration_s"])


def busy(rows: list[dict[str, Any]]) -> float:
    """Seconds in rows, which ran one at a time."""
    return float(sum(row["duration_s"] for row in rows))


def shown_all(values: list[float]) -> str:
    return " ".join(f"{value:.1f}" for value in values)


if __name__ == "__main__":
    sys.exit(main())
