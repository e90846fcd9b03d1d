"""The share of multi-turn prompts that engines compute, against its bound: every block once.

    python perf/turns.py --acebench DIR [--cache-tokens 50000 400000] [--rows 50] [--cases bfcl ...]

Conversations of several turns run through the whole pipeline on vLLM, with a small model of random
weights whose answers have 200 tokens. The bound of an engine: each distinct block of 32 tokens
once, and the tokens behind the last full block of each prompt, which vLLM does not cache. ``once``
compares with each token once. The user of tau2 sits on the candidate's engine, or on another.
Exit code 1 if the largest cache computes more than 1.05 of the bound.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterable
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from dummy_models import SHAPES, make_model
from recorder import Recorder
from runs import ENGINE, ace_ray

BLOCK, MAX_TOKENS, TARGET = 32, 200, 1.05
SECTIONS: dict[str, dict[str, Any]] = {
    "bfcl": {"name": "bfcl", "data": "installed", "categories": ["multi_turn_base"]},
    "acebench": {"name": "acebench", "languages": ["en"], "categories": ["agent"]},
    "tau2": {"name": "tau2", "data": "installed", "domains": ["airline"], "mode": "prompt"},
}
# The random model never ends an episode.
SECTIONS["acebench"]["max_messages"] = SECTIONS["tau2"]["max_steps"] = 16
SECTIONS["tau2, user elsewhere"] = SECTIONS["tau2"]


def measure(
    case: str, cache_tokens: int, args: argparse.Namespace, scratch: Path, recorder: Recorder
) -> float:
    """Run a case and print its line. Return what was computed as a multiple of the bound."""
    shutil.rmtree(scratch / "runs", ignore_errors=True)
    engine = {
        **ENGINE,
        **{"max_model_len": 32768, "load_format": "dummy"},
        **{"block_size": BLOCK, "num_gpu_blocks_override": cache_tokens // BLOCK},
    }
    model, section = {"source": str(scratch / "model")}, dict(SECTIONS[case])
    section |= {"data": args.acebench} if case == "acebench" else {}
    if case.endswith("elsewhere"):
        section["user"] = {"model": model, "engine": engine}
    config = {"model": model, "benchmarks": [section], "engine": engine, "limit": args.rows}
    config |= {"output": "runs", "worker_cpus": 0.4}  # two engines fit two cores
    (scratch / "config.yaml").write_text(yaml.safe_dump(config))
    ace_ray("evaluate", str(scratch / "config.yaml"), scratch=scratch)
    calls = list(recorder.take())
    tokens = sum(len(call.prompt_ids) for call in calls)
    computed = tokens - sum(call.cached_tokens for call in calls)
    names = {call.engine: -number for number, call in enumerate(calls)}
    full = [(len(call.prompt_ids) - 1) // BLOCK * BLOCK for call in calls]
    # A first item that names the engine keeps its prompts apart.
    blocks = [
        [names[call.engine], *np.reshape(call.prompt_ids[:end], (-1, BLOCK)).tolist()]
        for call, end in zip(calls, full, strict=True)
    ]
    bound = BLOCK * (distinct_prefixes(blocks) - len(names)) + tokens - sum(full)
    once = distinct_prefixes([[names[c.engine], *c.prompt_ids] for c in calls]) - len(names)
    print(
        f"| {case} | {cache_tokens:,} | {len(calls):,} | {tokens:,} | {bound:,} | "
        f"{bound / tokens:.3f} | {computed / tokens:.3f} | {computed / bound:.3f} "
        f"| {computed / once:.3f} |",
        flush=True,
    )
    return computed / bound


def distinct_prefixes(prompts: Iterable[list[Any]]) -> int:
    """Count the distinct prefixes of ``prompts``: the nodes of their tree."""
    count, previous = 0, list[Any]()
    for prompt in sorted(prompts):
        # In this order, no other prompt before shares a longer prefix.
        shared = takewhile(lambda pair: pair[0] == pair[1], zip(previous, prompt, strict=False))
        count += len(prompt) - sum(1 for _ in shared)
        previous = prompt
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--acebench", required=True, help="ACEBench data folder, or imported")
    parser.add_argument("--cache-tokens", type=int, nargs="+", default=[50_000, 400_000])
    parser.add_argument("--rows", type=int, default=50)
    parser.add_argument("--cases", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    args = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="ace-ray-turns-"))
    try:
        recorder = Recorder(scratch / "plugins", MAX_TOKENS)
        make_model(scratch / "model", SHAPES["tiny"])
        print("| case | cache | calls | prompt tokens | bound | share | computed | ratio | once |")
        with recorder:
            ratios = {
                (cache_tokens, case): measure(case, cache_tokens, args, scratch, recorder)
                for case in args.cases
                for cache_tokens in args.cache_tokens
            }
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return int(any(r > TARGET for (c, _), r in ratios.items() if c == max(args.cache_tokens)))


if __name__ == "__main__":
    sys.exit(main())
