"""Do a copy's answers pass the checkers, and wrong ones fail? ``ace-ray data check bfcl``."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.bfcl.answers import Answer
from ace_ray.benchmarks.bfcl.benchmark import BFCL
from ace_ray.benchmarks.bfcl.categories import MULTI_TURN
from ace_ray.benchmarks.bfcl.data.copy import Copy
from ace_ray.benchmarks.bfcl.data.loader import function_docs
from ace_ray.benchmarks.bfcl.gold import gold_text
from ace_ray.benchmarks.bfcl.scoring.diagnostics import asked_for_gold
from ace_ray.records import RULE_SETS, Entry, Episode

UNANSWERABLE = frozenset(
    {
        "parallel_multiple_26",
        "live_simple_106-63-0",
        "live_simple_112-68-0",
        "live_multiple_862-181-3",
        "live_multiple_964-207-0",
        "live_multiple_1038-265-0",
    }
)
"""Published entries whose answers contradict themselves, or each other under greedy matching."""


def check_all(data: str, *, say: Callable[[str], object]) -> bool:
    """Every gold answer of the Python and multi-turn categories, and the same with a call missing.

    Says a line per category and per answer that surprises; returns whether none did. Raises
    `UserError` for data that cannot be read.
    """
    benchmark = BFCL.from_options({"data": data})
    benchmark.ready(named=True)
    parameters = {
        doc["name"]: list(doc["parameters"]["properties"])
        for docs in function_docs(Copy.locate(data)).values()
        for doc in docs
    }
    found: dict[str, Counter[str]] = {}
    surprises = []
    for entry in benchmark.entries():
        episodes = _episodes(entry, parameters)
        if episodes is None:
            continue
        counts = found.setdefault(entry.category, Counter())
        counts["answers"] += 1
        for rules in RULE_SETS:
            right, wrong = (benchmark.check(entry, episode)[rules] for episode in episodes)
            counts[rules] += right.valid
            if not right.valid and entry.id not in UNANSWERABLE:
                surprises.append(f"{entry.id}: the gold answer is {right.error_type} ({rules})")
            if wrong.valid:
                surprises.append(f"{entry.id}: an answer without the last call passes ({rules})")
    for category, counts in found.items():
        passed = ", ".join(f"{counts[rules]} {rules}" for rules in RULE_SETS)
        say(f"{category}: {counts['answers']} gold answers, valid: {passed}")
    for line in surprises:
        say(line)
    total = sum((counts["answers"] for counts in found.values()), 0)
    say(f"{total} gold answers and as many cut short: {len(surprises)} surprises")
    return not surprises


def _episodes(
    entry: Entry, parameters: Mapping[str, Sequence[str]]
) -> tuple[Episode, Episode] | None:
    """The gold answer as an episode, and one that lacks its last call; None where there is none."""
    if asked_for_gold(entry.category):
        functions = entry.data["function"]
        less = gold_text(entry.gold[:-1], functions)
        return Episode(output=gold_text(entry.gold, functions)), Episode(output=less)
    if entry.category in MULTI_TURN:
        gold = [[_named(call, parameters) for call in turn] for turn in entry.gold]
        last = max(turn for turn, calls in enumerate(gold) if calls)
        short = [calls if turn != last else [] for turn, calls in enumerate(gold)]
        return _turns(gold), _turns(short)
    return None


def _named(text: str, parameters: Mapping[str, Sequence[str]]) -> str:
    """A published call with its arguments named, which answers of a model must be."""
    call: Any = ast.parse(text, mode="eval").body
    names = parameters[call.func.id]
    named = [ast.keyword(names[place], value) for place, value in enumerate(call.args)]
    return ast.unparse(ast.Call(call.func, [], [*named, *call.keywords]))


def _turns(calls: Sequence[Sequence[str]]) -> Episode:
    """A conversation that makes ``calls``, those of a turn in one step."""
    turns = [
        [Answer(text).as_json() for text in (*([f"[{', '.join(turn)}]"] if turn else []), "Done.")]
        for turn in calls
    ]
    return Episode(state={"turns": turns, "ended": ""})
