"""Run ``ace-ray data check``: all gold answers must be valid, and all mangled ones invalid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ace_ray.types import Episode

_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Gold:
    """The gold answer of an entry.

    Attributes:
        right: an episode with the gold answer.
        mangled: an episode with the gold answer in which a part is missing.
        may_fail: whether the gold answer need not be valid, because it contradicts itself.
        mangled_may_pass: whether the mangled answer may be valid, because the entry may not require
            any call.
        required: rule sets to check; empty: all. Verdicts under other rule sets are only counted.
    """

    right: Episode
    mangled: Episode
    may_fail: bool = False
    mangled_may_pass: bool = False
    required: Sequence[str] = ()


def check_gold(benchmark: Any, say: Callable[[str], object]) -> bool:
    """Judge the gold and the mangled answers of all entries of a `Benchmark`.

    A surprise is a gold answer that fails or a mangled one that passes, unless its `Gold` allows
    it. ``say`` receives a line for each category, lines for the first surprises, and the totals.

    Return whether there is no surprise. Raises what `Benchmark.dataset` raises."""
    counts: dict[str, Counter[str]] = {}
    surprises: list[str] = []
    for entry in benchmark.dataset():
        gold = benchmark.gold(entry)
        if gold is None:
            continue
        required = gold.required or benchmark.rule_sets
        count = counts.setdefault(entry.category, Counter())
        count["answers"] += 1
        for rules, verdict in benchmark.verdicts(entry, gold.right).items():
            count[f"gold {rules}"] += verdict.valid
            if not verdict.valid and not gold.may_fail and rules in required:
                surprises.append(f"{entry.id}: the gold answer is {verdict.error_type} ({rules})")
        for rules, verdict in benchmark.verdicts(entry, gold.mangled).items():
            count[f"mangled {rules}"] += verdict.valid
            if verdict.valid and not gold.mangled_may_pass and rules in required:
                surprises.append(f"{entry.id}: a mangled gold answer passes ({rules})")
    for category, count in counts.items():
        valid = [
            f"{copy} " + ", ".join(f"{count[f'{copy} {r}']} {r}" for r in benchmark.rule_sets)
            for copy in ("gold", "mangled")
        ]
        say(f"{category}: {count['answers']} answers, valid: {'; '.join(valid)}")
    for line in surprises[:_SHOWN]:
        say(line)
    total = sum(count["answers"] for count in counts.values())
    say(f"{total} gold answers and as many mangled ones: {len(surprises)} surprises")
    return not surprises
