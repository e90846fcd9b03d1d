"""Check that gold answers are valid and deliberately wrong copies are not (``data check``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ace_ray.types import Episode
from ace_ray.util import log

_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Gold:
    """The gold answer of an entry, and a deliberately wrong copy of it.

    Attributes:
        right: an episode with the gold answer.
        mangled: an episode with the wrong copy, in which a part is missing or changed.
        may_fail: allow an invalid verdict on the gold answer, which may contradict itself.
        mangled_may_pass: allow a valid verdict on the wrong copy: the entry may need no call.
        required: rule sets to check; empty: all. Verdicts under other rule sets are only counted.
    """

    right: Episode
    mangled: Episode
    may_fail: bool = False
    mangled_may_pass: bool = False
    required: Sequence[str] = ()


def check_gold(benchmark: Any) -> bool:
    """Return whether all gold answers of a `Benchmark` are valid and all wrong copies invalid.

    A verdict that the entry's `Gold` allows is ignored. Print a line for each category,
    a line for each of the first unexpected verdicts, and the totals. Raises what
    `Benchmark.dataset` raises."""
    counts: dict[str, Counter[str]] = {}
    surprises: list[str] = []
    allowed: dict[str, None] = {}
    for entry in benchmark.dataset():
        gold = benchmark.gold(entry)
        if gold is None:
            continue
        required = gold.required or benchmark.rule_sets
        count = counts.setdefault(entry.category, Counter())
        count["answers"] += 1
        for rules, verdict in benchmark.verdicts(entry, gold.right).items():
            count[f"gold {rules}"] += verdict.valid is True
            if not verdict.valid and gold.may_fail:
                allowed[entry.id] = None
            elif not verdict.valid and rules in required:
                fault = verdict.error_type or "not judged"
                surprises.append(f"{entry.id}: the gold answer is {fault} ({rules})")
        for rules, verdict in benchmark.verdicts(entry, gold.mangled).items():
            count[f"wrong copies {rules}"] += verdict.valid is True
            if verdict.valid and not gold.mangled_may_pass and rules in required:
                surprises.append(f"{entry.id}: a deliberately wrong copy is valid ({rules})")
    for category, count in counts.items():
        valid = [
            f"{copy} " + ", ".join(f"{count[f'{copy} {r}']} {r}" for r in benchmark.rule_sets)
            for copy in ("gold", "wrong copies")
        ]
        log.print_result(f"{category}: {count['answers']} answers, valid: {'; '.join(valid)}")
    if allowed:
        log.print_result(f"not valid, as expected: {', '.join(allowed)}")
    for line in surprises[:_SHOWN]:
        log.print_result(line)
    total = sum(count["answers"] for count in counts.values())
    counted = f"{total} gold answers and {total} wrong copies"
    log.print_result(f"{counted}: {len(surprises)} unexpected verdicts")
    return not surprises
