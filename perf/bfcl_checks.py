"""How many BFCL answers a second one core decodes and judges under both rule sets.

    python perf/bfcl_checks.py --data FOLDER [--seconds 5] [--floor 5000]

FOLDER is a copy of bfcl-eval's package folder, ``bfcl_eval``. The answers are the gold answers of
the 2,351 single-turn entries whose answers are Python calls, each as text; every one goes from text
to both verdicts. Beside the rate stands its ratio to a reference loop of plain Python in the same
run, which holds across machines and their load. Exit code 1 below the floor.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ace_ray.benchmarks.bfcl.answers import Answer
from ace_ray.benchmarks.bfcl.categories import RELEVANCE, SINGLE_TURN, language_of
from ace_ray.benchmarks.bfcl.check.single import check_single
from ace_ray.benchmarks.bfcl.gold import gold_text

REFERENCE_STEPS = 200_000


class Row(NamedTuple):
    category: str
    functions: list[Any]
    gold: list[Any]
    answer: Answer


def rows(folder: Path) -> list[Row]:
    found = []
    for category in SINGLE_TURN:
        if category in RELEVANCE or language_of(category) != "python":
            continue
        questions = _lines(folder / f"data/BFCL_v4_{category}.json")
        answers = _lines(folder / f"data/possible_answer/BFCL_v4_{category}.json")
        for question, answer in zip(questions, answers, strict=True):
            functions, gold = question["function"], answer["ground_truth"]
            found.append(Row(category, functions, gold, Answer(gold_text(gold, functions))))
    return found


def _lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def reference() -> int:
    """A fixed amount of plain work: dicts, strings, calls."""
    seen: dict[str, int] = {}
    for step in range(REFERENCE_STEPS):
        key = str(step % 997)
        seen[key] = seen.get(key, 0) + len(key)
    return sum(seen.values())


def per_second(work: Callable[[], int], seconds: float) -> float:
    """The best rate of several rounds, in CPU time: what the machine's other work does not slow."""
    best = 0.0
    ends = time.process_time() + seconds
    while time.process_time() < ends:
        start = time.process_time()
        done = work()
        best = max(best, done / (time.process_time() - start))
    return best


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the folder bfcl_eval")
    parser.add_argument("--seconds", type=float, default=5.0, help="of CPU time, for the checks")
    parser.add_argument("--floor", type=float, default=5_000.0, help="checks a second")
    asked = parser.parse_args()
    everything = rows(asked.data)
    valid = 0

    def check_all() -> int:
        nonlocal valid
        valid = 0
        for row in everything:
            verdicts = check_single(row.category, row.functions, row.gold, row.answer)
            valid += verdicts["official"].valid
        return len(everything)

    def refer() -> int:
        reference()
        return REFERENCE_STEPS

    plain = per_second(refer, 1.0)
    rate = per_second(check_all, asked.seconds)
    print(f"{len(everything):,} gold answers, {valid:,} valid under the official rules")
    print(f"{rate:,.0f} checks a second on one core, both rule sets from text to verdicts")
    print(f"{plain / rate:,.0f} steps of the reference loop a check ({plain:,.0f} steps a second)")
    if rate < asked.floor:
        print(f"below the floor of {asked.floor:,.0f}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
