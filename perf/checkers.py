"""Speed of the checkers: outputs a second on one core, from text to the verdicts of both rule sets.

    python perf/checkers.py --acebench FOLDER --bfcl FOLDER|installed [--seconds 5]

- ACEBench: each row's gold answer and wrong variants of it, as models write them (15 categories).
- BFCL, single turn: the gold answers of the entries whose answers are Python calls.
- BFCL, multi-turn: conversations that follow the answer keys, replayed in the limited process.

Seconds are CPU time. Exit code 1 below a target.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from ace_ray.benchmarks.acebench.benchmark import check
from ace_ray.benchmarks.acebench.data.loader import load as load_acebench
from ace_ray.benchmarks.acebench.data.loader import locate
from ace_ray.benchmarks.acebench.gold import function_name
from ace_ray.benchmarks.acebench.options import GENERATION, SPECIAL
from ace_ray.benchmarks.bfcl.categories import MULTI_TURN, RELEVANCE, SINGLE_TURN, language_of
from ace_ray.benchmarks.bfcl.check.conversations import check_multi_turn
from ace_ray.benchmarks.bfcl.check.single import check_single
from ace_ray.benchmarks.bfcl.data.loader import function_docs, load
from ace_ray.benchmarks.bfcl.data.upstream_package import UpstreamPackage
from ace_ray.benchmarks.bfcl.decode.calls import Answer
from ace_ray.benchmarks.bfcl.gold import gold_text, keyword_call
from ace_ray.benchmarks.bfcl.tools.sources import tool_sources
from ace_ray.parsing.literals import render
from ace_ray.sandbox.replayed_environment import end_processes
from ace_ray.types import Entry, Verdict

REFUSAL = "Due to the limitations of the function, I cannot solve this problem."
Check = Callable[[], Mapping[str, Verdict]]
"""Judges one output."""


def outputs(entry: Entry) -> list[str]:
    """The right answer to a row of ACEBench as text, then wrong or unusual ones."""
    if entry.category in SPECIAL:
        return _special_outputs(entry)
    gold = entry.gold[0] if isinstance(entry.gold, list) else entry.gold
    calls = [(function_name(entry, name), dict(args)) for name, args in gold.items()]
    right = render(calls)
    fewer = [(name, dict(list(args.items())[:-1])) for name, args in calls]
    wrong_calls = [(name, {key: "something else" for key in args}) for name, args in calls]
    return [
        right,
        render(fewer),
        render(wrong_calls),
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


def acebench(folder: str) -> Iterator[Check]:
    for entry in load_acebench(locate(folder), categories=GENERATION):
        for output in outputs(entry):
            yield partial(check, entry, output)


def bfcl_single(copy: UpstreamPackage) -> Iterator[Check]:
    python = [
        name for name in SINGLE_TURN if name not in RELEVANCE and language_of(name) == "python"
    ]
    for entry in load(copy, python):
        functions = entry.data["function"]
        answer = Answer(gold_text(entry.gold, functions))
        yield partial(check_single, entry.category, functions, entry.gold, answer)


def bfcl_multi_turn(copy: UpstreamPackage) -> Iterator[Check]:
    docs, sources = function_docs(copy), tool_sources(copy)
    for entry in load(copy, MULTI_TURN):
        names = {
            doc["name"]: list(doc["parameters"]["properties"])
            for name in entry.data["involved_classes"]
            for doc in docs[name]
        }
        # Each turn ends with an answer without a call.
        turns = [
            [*(Answer(f"[{keyword_call(call, names)}]") for call in turn), Answer("Done.")]
            for turn in entry.gold
        ]
        yield partial(check_multi_turn, entry, turns, "", sources, docs)


def measure(name: str, checks: list[Check], seconds: float, target: float) -> bool:
    """Judge all outputs again and again for so long. Returns whether it is fast enough."""
    valid = {"official": 0, "strict": 0}
    n_checks, started = 0, cpu_s()
    while not n_checks or cpu_s() - started < seconds:
        verdict_lists: list[Any] = [check() for check in checks]
        n_checks += len(checks)
    end_processes()
    rate = n_checks / (cpu_s() - started)
    for rules in valid:
        valid[rules] = sum(verdicts[rules].valid for verdicts in verdict_lists)
    print(
        f"{name}: {len(checks):,} outputs, valid {valid['official']:,} official and "
        f"{valid['strict']:,} strict; {rate:,.0f} a second on one core (target {target:,.0f})",
        flush=True,
    )
    return rate >= target


def cpu_s() -> float:
    """CPU time of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--acebench", default="mini", help="ACEBench data folder, or mini")
    parser.add_argument("--bfcl", default="mini", help="mini, installed, or a folder bfcl_eval")
    parser.add_argument("--seconds", type=float, default=5.0, help="of CPU time, for each")
    options = parser.parse_args()
    copy = UpstreamPackage.locate(options.bfcl)
    fine = [
        measure("ACEBench", list(acebench(options.acebench)), options.seconds, 10_000),
        measure("BFCL, single turn", list(bfcl_single(copy)), options.seconds, 5_000),
        measure("BFCL, multi-turn", list(bfcl_multi_turn(copy)), 0.0, 100),
    ]
    return 0 if all(fine) else 1


if __name__ == "__main__":
    sys.exit(main())
