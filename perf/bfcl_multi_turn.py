"""How long one core takes to check every multi-turn conversation of BFCL, both rule sets.

    python perf/bfcl_multi_turn.py --data installed [--ceiling 8]

The conversations follow the answer keys, a call a step, so that every call of both sides is
replayed and every turn compared; the CPU time includes starting the process of the tools and
loading the classes, the lines by category are wall time. Exit code 1 above the ceiling.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from ace_ray.benchmarks.bfcl.answers import Answer
from ace_ray.benchmarks.bfcl.categories import MULTI_TURN
from ace_ray.benchmarks.bfcl.check.multi_turn import check_multi_turn
from ace_ray.benchmarks.bfcl.data.loader import function_docs, load
from ace_ray.benchmarks.bfcl.data.upstream_package import UpstreamPackage
from ace_ray.benchmarks.bfcl.gold import named_call
from ace_ray.benchmarks.bfcl.tools.environment import Docs
from ace_ray.benchmarks.bfcl.tools.limited import end_processes
from ace_ray.benchmarks.bfcl.tools.sources import tool_sources
from ace_ray.errors import UserError
from ace_ray.records import Entry


def conversation(entry: Entry, docs: Docs) -> list[list[Answer]]:
    """The key as answers of a model, each turn ending with one that is no call."""
    names = {
        doc["name"]: list(doc["parameters"]["properties"])
        for name in entry.data["involved_classes"]
        for doc in docs[name]
    }
    return [
        [*(Answer(f"[{named_call(call, names)}]") for call in turn), Answer("Done.")]
        for turn in entry.gold
    ]


def cpu_s() -> float:
    """Of this process and of its children that have ended."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="installed")
    parser.add_argument("--ceiling", type=float, default=8.0, help="seconds of CPU for all of them")
    options = parser.parse_args()
    try:
        copy = UpstreamPackage.locate(options.data)
        entries = load(copy, MULTI_TURN)
        docs = function_docs(copy)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    played = [(entry, conversation(entry, docs)) for entry in entries]
    start = cpu_s()
    sources = tool_sources(copy)
    valid = calls = 0
    by_category: dict[str, float] = {}
    for entry, turns in played:
        began = time.perf_counter()
        found = check_multi_turn(entry, turns, "", sources, docs)
        spent = time.perf_counter() - began
        by_category[entry.category] = by_category.get(entry.category, 0.0) + spent
        valid += found["official"].valid
        calls += sum(map(len, entry.gold))
    end_processes()
    total = cpu_s() - start
    for category, spent in by_category.items():
        print(f"{category:28} {spent:6.2f} s")
    wall = sum(by_category.values())
    print(
        f"{len(played)} conversations, {calls} calls on each side, {valid} valid:"
        f" {total:.2f} s of CPU, {wall:.2f} s in all"
    )
    return int(total > options.ceiling)


if __name__ == "__main__":
    sys.exit(main())
