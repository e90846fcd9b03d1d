"""The pipeline's speed as a share of bare ``vllm.LLM``: same prompts, same engine arguments.

    python perf/pipeline_overhead.py --data DIR          # SmolLM2-135M, 24 prompts: at least 0.95
    python perf/pipeline_overhead.py --data DIR --dummy  # tiny dummy Llama: at least 0.88
    python perf/pipeline_overhead.py --data DIR --model QWEN_0_5B --rows 96 --max-tokens 256
                                                         # at least 0.97
    python perf/pipeline_overhead.py --data DIR --tree OTHER_CHECKOUT --sides pipeline other

``--cache-tokens`` limits the prefix cache, and prints the share of the prompts that was computed.
``--layers`` sets the dummy's speed, which is to be about 20,000 tokens/s. Sides alternate and their
medians are compared, since noise is about 8 %. The starts of their engines are left out.

- ``bare``: the engine's first ``LLM.chat`` over all prompts; ``again``: its second, for which its
  allocator has the memory already.
- ``tuned``: bare vLLM with the environment of a pipeline's engine
  (`ace_ray.models.cpu_environment`).
- ``pipeline``: from the moment the engine is ready until the last part is stored.
- ``other``: the pipeline of another checkout, in this environment.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from ace_ray.models.cpu_environment import cpu_environment
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

SIDES = ("bare", "tuned", "pipeline", "other")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="ACEBench data folder, or mini")
    parser.add_argument("--rows", type=int, help="default: 24, or 512 with --dummy")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--dummy", action="store_true", help="tiny dummy-weight Llama")
    parser.add_argument("--model", default=SMOLLM2, help="source of the weights")
    parser.add_argument("--layers", type=int, default=16, help="of the dummy: more are slower")
    parser.add_argument("--dtype", default="bfloat16", help="float32 on a CPU without AVX-512")
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
    sides: dict[str, Callable[[], dict[str, float]]] = {
        "bare": lambda: bare(scratch, rows),
        "tuned": lambda: {"tuned": bare(scratch, rows, **cpu_environment())["bare"]},
        "pipeline": lambda: {"pipeline": pipeline(scratch, ROOT)},
        "other": lambda: {"other": pipeline(scratch, args.tree)},
    }
    seconds: dict[str, list[float]] = {}
    for number in range(args.rounds):
        for name in args.sides:
            rates = sides[name]()
            for side, value in rates.items():
                seconds.setdefault(side, []).append(value)
                share = ""
                if args.cache_tokens and name in ("pipeline", "other"):
                    (run,) = (scratch / "runs").iterdir()
                    share = f"; computed {computed(run):.3f} of the prompts"
                print(f"round {number + 1}: {side} {value:.2f} s{share}", flush=True)
    median = {name: statistics.median(values) for name, values in seconds.items()}
    print(f"{rows} prompts, medians of {args.rounds} rounds:")
    for name, value in median.items():
        print(f"  {name:9} {value:7.2f} s, {rows / value:7.3f} rows/s")
    target = 0.88 if args.dummy else 0.95 if args.model == SMOLLM2 else 0.97
    for name in ("bare", "again", "tuned", "other"):
        if name in median and "pipeline" in median:
            target_note = f" (target {target:g})" if name == "bare" else ""
            print(f"  pipeline to {name}: {median[name] / median['pipeline']:.3f}{target_note}")
    if "bare" not in median or "pipeline" not in median:
        return 0
    return int(median["bare"] / median["pipeline"] < target)


def prepare(args: argparse.Namespace, scratch: Path) -> int:
    """Write the run's config and the bare engine's spec. Returns the number of prompts."""
    folder, rows = model_folder(args.model), args.rows or (512 if args.dummy else 24)
    engine: dict[str, Any] = {**ENGINE, "dtype": args.dtype}
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


def bare(scratch: Path, rows: int, **variables: str) -> dict[str, float]:
    with BareEngine(scratch, **variables) as engine:
        return {"bare": engine.ask(rows)["seconds"], "again": engine.ask(rows)["seconds"]}


def pipeline(scratch: Path, tree: Path | str) -> float:
    shutil.rmtree(scratch / "runs", ignore_errors=True)
    ace_ray("evaluate", str(scratch / "config.yaml"), scratch=scratch, tree=tree)
    return float(summary_of(scratch / "runs")["timing"]["until_stored_s"])


if __name__ == "__main__":
    sys.exit(main())
