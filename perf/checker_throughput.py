"""How many model outputs a second one core decodes and judges under both rule sets.

    python perf/checker_throughput.py --data FOLDER [--seconds 5] [--floor 10000]

The outputs are those of ACEBench's 15 generation categories: each row's gold answer and wrong
variants of it, as models write them. Exit code 1 below the floor.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from ace_ray.benchmarks.acebench.categories import GENERATION, SPECIAL
from ace_ray.benchmarks.acebench.check import check
from ace_ray.benchmarks.acebench.data.loader import load, locate
from ace_ray.benchmarks.acebench.gold import function_name
from ace_ray.calls import render
from ace_ray.records import Entry

REFUSAL = "Due to the limitations of the function, I cannot solve this problem."


def outputs(entry: Entry) -> list[str]:
    """The right answer to a row as text, then wrong or unusual ones."""
    if entry.category in SPECIAL:
        return _special_outputs(entry)
    gold = entry.gold[0] if isinstance(entry.gold, list) else entry.gold
    calls = [(function_name(entry, name), dict(args)) for name, args in gold.items()]
    right = render(calls)
    fewer = [(name, dict(list(args.items())[:-1])) for name, args in calls]
    other = [(name, {key: "something else" for key in args}) for name, args in calls]
    return [
        right,
        render(fewer),
        render(other),
        render([("another_function", args) for _, args in calls]),
        f"Here is the call you need:\n{right}",
        right.replace("True", "true").replace("False", "false"),
        "I am not sure which function fits; could you tell me more about what you need?",
    ]


def _special_outputs(entry: Entry) -> list[str]:
    pairs = entry.gold.items() if isinstance(entry.gold, dict) else ()
    return [
        REFUSAL,
        "[" + ", ".join(f"some_function({key}='?')" for key, _ in pairs) + "]",
        *(f'["Missing necessary parameters ({", ".join(v)}) for the api ({k})"]' for k, v in pairs),
        *(
            f'["There is incorrect value ({", ".join(v)}) for the parameters ({k}) in the '
            'conversation history."]'
            for k, v in pairs
        ),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="ACEBench data folder, or mini")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--floor", type=int, default=10_000, help="outputs a second")
    options = parser.parse_args()

    entries = load(locate(options.data), categories=GENERATION)
    work = [(entry, output) for entry in entries for output in outputs(entry)]
    valid = Counter(
        rules
        for entry, output in work
        for rules, verdict in check(entry, output).items()
        if verdict.valid
    )
    # CPU time: what other programs on this machine take does not count.
    done, started = 0, time.process_time()
    while (spent := time.process_time() - started) < options.seconds:
        for entry, output in work:
            check(entry, output)
        done += len(work)
    rate = done / spent
    print(f"{len(entries)} rows, {len(work)} outputs, {sum(len(o) for _, o in work)} characters")
    print(f"valid: {valid['official']} official, {valid['strict']} strict")
    print(f"{rate:,.0f} outputs/s under both rule sets on one core (floor {options.floor:,})")
    return 0 if rate >= options.floor else 1


if __name__ == "__main__":
    sys.exit(main())
