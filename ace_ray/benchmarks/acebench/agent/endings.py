"""How agent episodes ended, carried by their verdicts' metrics and counted for the summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ace_ray.benchmarks.acebench.categories import AGENT
from ace_ray.benchmarks.results import ScoredRow
from ace_ray.records import Verdict

ENDINGS = ("finished", "max_messages", "context", "deadline")


def with_ending(verdicts: Mapping[str, Verdict], ended: object) -> dict[str, Verdict]:
    """``verdicts`` with the metric ``ended:<how>`` where the episode says how it ended."""
    if ended not in ENDINGS:
        return dict(verdicts)
    return {
        rules: replace(verdict, metrics={**verdict.metrics, f"ended:{ended}": 1})
        for rules, verdict in verdicts.items()
    }


class Endings:
    """Counts endings by category while rows pass by."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {}

    def through(self, rows: Iterable[ScoredRow]) -> Iterator[ScoredRow]:
        for row in rows:
            for name in row.verdicts["official"].metrics if "official" in row.verdicts else ():
                kind, _, how = name.partition(":")
                if kind == "ended":
                    self._counts.setdefault(row.category, Counter())[how] += 1
            yield row

    def result(self) -> dict[str, dict[str, int]]:
        """``{category: {ending: episodes}}`` of the agent categories that ran."""
        return {
            category: {how: self._counts[category][how] for how in ENDINGS}
            for category in AGENT
            if category in self._counts
        }

    def table(self) -> dict[str, Any]:
        """The result for people."""
        return {
            "title": "how agent episodes ended",
            "header": ["category", *ENDINGS],
            "lines": [
                [category, *map(str, found.values())] for category, found in self.result().items()
            ],
        }
