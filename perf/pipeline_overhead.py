"""The pipeline's speed as a share of bare ``vllm.LLM``: same prompts, same engine arguments.

    python perf/pipeline_overhead.py --data DIR          # SmolLM2-135M, 24 prompts: at least 0.95
    python perf/pipeline_overhead.py --data DIR --dummy  # tiny dummy Llama: at least 0.88
    python perf/pipeline_overhead.py --data DIR --model QWEN_0_5B --rows 96 --max-tokens 256
                                                         # at least 0.97
    python perf/pipeline_overhead.py --data DIR --tree OTHER_CHECKOUT --sides pipeline other

``--cache-tokens`` limits the prefix cache, and prints the share of the prompts that was computed.
``--layers`` sets the dummy's speed, which is to be about 20,000 tokens/s. Sides alternate. Ratios
are geometric means over the rounds with Student's 95 % interval, since rounds of one side differ
by up to 30 %. The starts of engines are left out.

- ``bare``: the engine's first ``LLM.chat`` over all prompts, in the environment of a pipeline's
  engine (`ace_ray.models.cpu_environment`). Without it glibc returns large buffers to the kernel
  after each step, and the first minute of vLLM on a CPU takes 1.3 times as long.
- ``pipeline``: from the moment the engine is ready until the last part is stored.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from scipy import stats

from bare_engine import BareEngine
from dummy_models import tiny_llama
from runs import (
    ENGINE,
    ROOT,
    SMOLLM2,
    ace_ray,
    computed,
    model_folder,
    planned_messages,
    summary_of,
)

SIDES = ("bare", "pipeline", "other")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="ACEBench data folder, or mini")
    parser.add_argument("--rows", type=int, help="default: 24, or 512 with --dummy")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--dummy", action="store_true", help="tiny dummy-weight Llama")
    parser.add_argument("--model", default=SMOLLM2, help="source of the weights")
    parser.add_argument("--layers", type=int, default=16, help="of the dummy: more are slower")
    parser.add_argument("--tree", help="another checkout: the side 'other'")
    parser.add_argument("--cache-tokens", type=int, help="size of the prefix cache")
    parser.add_argument("--sides", nargs="+", choices=SIDES)
    args = parser.parse_args()
    if args.sides is None:
        args.sides = [side for side in SIDES if side != "other" or args.tree]
    if "other" in args.sides and not args.tree:
        parser.error("--tree is missing: name the checkout of the side 'other'")
    scratch = Path(tempfile.mkdtemp(prefix="ace-ray-perf-"))
    try:
        return compare(args, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def compare(args: argparse.Namespace, scratch: Path) -> int:
    rows = prepare(args, scratch)
    sides: dict[str, Callable[[], float]] = {
        "bare": lambda: bare(scratch, rows),
        "pipeline": lambda: pipeline(scratch, ROOT),
        "other": lambda: pipeline(scratch, args.tree),
    }
    seconds: dict[str, list[float]] = {name: [] for name in args.sides}
    for number in range(args.rounds):
        for name in args.sides:
            seconds[name].append(sides[name]())
            share = ""
            if args.cache_tokens and name != "bare":
                (run,) = (scratch / "runs").iterdir()
                share = f"; computed {computed(run):.3f} of the prompts"
            print(f"round {number + 1}: {name} {seconds[name][-1]:.2f} s{share}", flush=True)
    target = 0.88 if args.dummy else 0.95 if args.model == SMOLLM2 else 0.97
    print(f"{rows} prompts, target {target:g}, medians of {args.rounds} rounds:")
    for name, values in seconds.items():
        print(f"  {name:9} {(s := statistics.median(values)):7.2f} s, {rows / s:7.3f} rows/s")
    missed = False
    for name in ("bare", "other"):
        if name in seconds and "pipeline" in seconds:
            mean, low, high = ratio(seconds[name], seconds["pipeline"])
            missed |= name == "bare" and mean < target
            print(f"  pipeline to {name}: {mean:.3f} [{low:.3f}, {high:.3f}]")
    return int(missed)


def ratio(before: Sequence[float], after: Sequence[float]) -> tuple[float, float, float]:
    """Geometric mean of ``before`` / ``after``, and its 95 % interval (NaN for one round)."""
    logs = np.log(np.divide(before, after))
    margin = stats.t.ppf(0.975, len(logs) - 1) * stats.sem(logs) if len(logs) > 1 else math.nan
    low, mean, high = np.exp(logs.mean() + np.array([-margin, 0.0, margin])).tolist()
    return mean, low, high


def prepare(args: argparse.Namespace, scratch: Path) -> int:
    """Write the run's config and the bare engine's spec. Returns the number of prompts."""
    folder, rows = model_folder(args.model), args.rows or (512 if args.dummy else 24)
    engine: dict[str, Any] = dict(ENGINE)
    if args.cache_tokens:
        engine |= {"block_size": 32, "num_gpu_blocks_override": args.cache_tokens // 32}
    if args.dummy:
        folder = tiny_llama(folder, scratch / "tiny", args.layers)
        engine["load_format"] = "dummy"
    # One model call a row, as on the bare side.
    single = {"languages": ["en"], "categories": ["normal", "special"]}
    config = {
        "model": {"source": str(folder)},
        "benchmarks": [{"name": "acebench", "data": args.data, **single}],
        "engine": engine,
        "sampling": {"max_tokens": args.max_tokens},
        "limit": rows,
        "output": str(scratch / "runs"),
    }
    (scratch / "config.yaml").write_text(yaml.safe_dump(config))
    messages = planned_messages(scratch / "config.yaml")
    if len(messages) < rows:
        raise SystemExit(f"{args.data} holds {len(messages)} English rows, {rows} were asked for")
    spec = {"model": str(folder), "engine": engine, "max_tokens": args.max_tokens}
    (scratch / "spec.json").write_text(json.dumps({**spec, "messages": messages}))
    return rows


def bare(scratch: Path, rows: int) -> float:
    with BareEngine(scratch) as engine:
        return engine.ask(rows)["seconds"]


def pipeline(scratch: Path, tree: Path | str) -> float:
    shutil.rmtree(scratch / "runs", ignore_errors=True)
    ace_ray("evaluate", str(scratch / "config.yaml"), scratch=scratch, tree=tree)
    return float(summary_of(scratch / "runs")["timing"]["until_stored_s"])


if __name__ == "__main__":
    sys.exit(main())
