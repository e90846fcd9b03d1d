"""The numbers of a benchmark that says nothing of reports: its shares of valid rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.protocol import ScoredRow
from ace_ray.benchmarks.reporting import CategoryResult, Estimate, Paper, ReportedRun, own_task
from ace_ray.records import RULE_SETS
from ace_ray.stats import wilson

_Key = tuple[str, str]
"""Language and category."""


class ValidRows:
    """See `ace_ray.benchmarks.reporting.Reporting`."""

    def summarize(self, rows: Iterable[ScoredRow], max_unscored: float) -> dict[str, Any]:
        """``total`` and, by language and category, ``categories``, both `_Tally.result`."""
        total, categories = _Tally(), dict[_Key, _Tally]()
        for row in rows:
            for tally in (total, categories.setdefault((row.language, row.category), _Tally())):
                tally.add(row)
        return {
            "total": total.result(max_unscored),
            "categories": {key: tally.result(max_unscored) for key, tally in categories.items()},
        }

    def headline(self, run: ReportedRun, rules: str) -> Mapping[str, Estimate | None]:
        return {"Valid rows": run.summary["total"]["shares"][rules]}

    def categories(self, run: ReportedRun) -> Sequence[CategoryResult]:
        return [
            CategoryResult(language, name, "valid rows", **found)
            for (language, name), found in sorted(run.summary["categories"].items())
        ]

    def groups(self) -> Mapping[str, Sequence[str]]:
        """None: its categories and languages are all that is known of it."""
        return {}

    def task(self, row: ScoredRow) -> str:
        return own_task(row)

    def paper(self, runs: Sequence[ReportedRun], rules: str) -> Paper:
        return Paper([], [], [])


class _Tally:
    def __init__(self) -> None:
        self.declared = self.scored = 0
        # Samples of one entry are no independent evidence: counted by entry.
        self.valid: dict[str, dict[tuple[str, str, str], list[bool]]] = {r: {} for r in RULE_SETS}

    def add(self, row: ScoredRow) -> None:
        self.declared += 1
        self.scored += row.status == "scored"
        for rules, verdict in row.verdicts.items():
            key = (row.language, row.category, row.id)
            self.valid[rules].setdefault(key, []).append(verdict.valid)

    def result(self, max_unscored: float) -> dict[str, Any]:
        """``declared`` and ``scored`` rows, ``shares`` by rule set."""
        enough = self.declared - self.scored <= max_unscored * self.declared
        return {
            "declared": self.declared,
            "scored": self.scored,
            "shares": {
                rules: _share(list(found.values())) if enough else None
                for rules, found in self.valid.items()
            },
        }


def _share(entries: Sequence[Sequence[bool]]) -> Estimate | None:
    if not entries:
        return None
    value = sum(map(sum, entries)) / sum(map(len, entries))
    interval = wilson(value * len(entries), len(entries))
    return None if interval is None else Estimate(value, interval, len(entries))
