"""How many prompts with long lists of functions a second one core renders.

    python perf/bfcl_prompts.py --data COPY [--functions 37] [--seconds 3] [--floor 500]

Rendered are the whole messages of every live_multiple entry with at least that many functions, and
in the same run, in turns, the list alone as ``json.dumps(functions, indent=4)`` writes it. Exit
code 1 below the floor.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from statistics import median

from ace_ray.benchmarks.bfcl.data.loader import load
from ace_ray.benchmarks.bfcl.data.upstream_package import UpstreamPackage
from ace_ray.benchmarks.bfcl.prompts import official, own
from ace_ray.records import Entry

ROUNDS = 5


def rate(render: Callable[[Entry], object], entries: Sequence[Entry], seconds: float) -> float:
    """Entries a second of CPU time: what other programs on this machine take does not count."""
    done, started = 0, time.process_time()
    while (spent := time.process_time() - started) < seconds:
        for entry in entries:
            render(entry)
        done += len(entries)
    return done / spent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="mini, installed, imported, or a path")
    parser.add_argument("--functions", type=int, default=37)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--floor", type=int, default=500, help="prompts a second")
    options = parser.parse_args()

    copy = UpstreamPackage.locate(options.data)
    prompts = own() if copy.kind == "mini" else official(copy)
    entries = [
        entry
        for entry in load(copy, ["live_multiple"])
        if len(entry.data["function"]) >= options.functions
    ]
    if not entries:
        print(f"no entry has {options.functions} functions")
        return 1

    def render(entry: Entry) -> object:
        return prompts.messages(entry.data["question"][0], entry.data["function"])

    def plain(entry: Entry) -> object:
        return json.dumps(entry.data["function"], indent=4)

    rendered, dumped = [], []
    for _ in range(ROUNDS):
        rendered.append(rate(render, entries, options.seconds / ROUNDS))
        dumped.append(rate(plain, entries, options.seconds / ROUNDS))
    characters = sum(len(str(prompts.messages([], entry.data["function"]))) for entry in entries)
    prompt_rate, plain_rate = median(rendered), median(dumped)
    print(
        f"{len(entries)} entries with {options.functions} functions or more,"
        f" {characters // len(entries):,} characters a prompt"
    )
    print(
        f"{prompt_rate:,.0f} prompts/s on one core (floor {options.floor:,}),"
        f" {prompt_rate / plain_rate:.2f} times json.dumps with an indent ({plain_rate:,.0f}/s)"
    )
    return 0 if prompt_rate >= options.floor else 1


if __name__ == "__main__":
    sys.exit(main())
