"""Seconds from a command to its first answer, by phase: bare ``vllm.LLM`` beside the pipeline.

    python perf/first_row.py --data DIR [--tree OTHER_CHECKOUT]

All sides load the same folder (SmolLM2-135M) with the same engine arguments. The pipeline is done
with its first scored row. Bare vLLM is asked the pipeline's prompts all at once. Phases of the
engine are read from what vLLM prints (`ace_ray.models.start_phases`); a start of Python is part of
``imports``. ``--tree`` adds the pipeline of another checkout.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from datetime import datetime
from pathlib import Path

import yaml

from ace_ray.models.start_phases import PHASES
from bare_engine import BareEngine
from runs import ENGINE, ROOT, ace_ray, model_folder, planned_messages, summary_of

DRIVER = ("imports", "plan", "ray", "actors", "worker")
"""Phases of the pipeline before its engine starts (`until_first_row_s` of summary.json)."""
ROW = "row"

Side = dict[str, float]
"""Phase -> seconds."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="ACEBench data folder, or mini")
    parser.add_argument("--rows", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--tree", help="another checkout, measured too")
    args = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="ace-ray-perf-"))
    try:
        compare(args, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def compare(args: argparse.Namespace, scratch: Path) -> None:
    folder = str(model_folder())
    names = {"name": "acebench", "data": args.data, "languages": ["en"]}
    config = {
        "model": {"source": folder},
        "benchmarks": [{**names, "categories": ["normal", "special"]}],
        "engine": ENGINE,
        "sampling": {"max_tokens": args.max_tokens},
        "limit": args.rows,
        "output": str(scratch / "runs"),
    }
    (scratch / "config.yaml").write_text(yaml.safe_dump(config))
    messages = planned_messages(scratch / "config.yaml")
    spec = {"model": folder, "engine": ENGINE, "max_tokens": args.max_tokens}
    (scratch / "spec.json").write_text(json.dumps({**spec, "messages": messages}))
    trees = {"pipeline": ROOT, **({"other": Path(args.tree)} if args.tree else {})}
    sides: dict[str, list[Side]] = {name: [] for name in ("bare", *trees)}
    for number in range(args.rounds):
        sides["bare"].append(bare(scratch, len(messages)))
        for name, tree in trees.items():
            sides[name].append(pipeline(scratch, tree))
        totals = ", ".join(
            f"{name} {sum(rounds[-1].values()):.1f} s" for name, rounds in sides.items()
        )
        print(f"round {number + 1}: {totals}", flush=True)
    show(sides)


def bare(scratch: Path, rows: int) -> Side:
    """Run bare vLLM until the first of all its answers."""
    began = time.time()
    with BareEngine(scratch) as engine:
        first = engine.ask(rows, first=True)["seconds"]
    return {"imports": engine.imported_at - began, **engine.phases.seconds(), ROW: first}


def pipeline(scratch: Path, tree: Path) -> Side:
    """Run ``ace-ray evaluate``, the first scored row included."""
    shutil.rmtree(scratch / "runs", ignore_errors=True)
    began = time.time()
    arguments = ["evaluate", str(scratch / "config.yaml"), "--log-format", "json"]
    _, output = ace_ray(*arguments, scratch=scratch, tree=tree)
    timing = summary_of(scratch / "runs")["timing"]
    phases = dict(timing["until_first_row_s"])
    (worker,) = timing["workers"]
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    planned = next(line["time"] for line in lines if line.get("event") == "begin")
    imports = datetime.fromisoformat(planned).timestamp() - phases["plan"] - began
    engine, row = phases.pop("engine"), phases.pop(ROW)
    starts = worker["start_s"]
    # The worker's own work around the engine's start.
    around = engine - sum(starts.values())
    return {"imports": imports, **phases, **starts, "around it": around, ROW: row}


def show(sides: dict[str, list[Side]]) -> None:
    print(f"\n{'seconds, medians':16}" + "".join(f" {side:>9}" for side in sides))
    for name in (*DRIVER, *PHASES, "around it", ROW):
        cells = [[phases[name] for phases in rounds if name in phases] for rounds in sides.values()]
        medians = [f"{statistics.median(cell):.2f}" if cell else "" for cell in cells]
        print(f"{name:16}" + "".join(f" {cell:>9}" for cell in medians))
    totals = {
        name: statistics.median(sum(phases.values()) for phases in rounds)
        for name, rounds in sides.items()
    }
    print(f"{'all':16}" + "".join(f" {seconds:>9.2f}" for seconds in totals.values()))
    for name in list(totals)[1:]:
        longer = totals[name] - totals["bare"]
        print(f"{name}: the first row takes {longer:.1f} s longer than bare vLLM's first text")


if __name__ == "__main__":
    main()
