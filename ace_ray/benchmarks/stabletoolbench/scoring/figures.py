"""The statistics of one group of queries, counted while rows pass by."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from statistics import pstdev
from typing import Any

from ace_ray.benchmarks.results import ScoredRow
from ace_ray.benchmarks.stabletoolbench.scoring.calls import (
    CACHED,
    CALLS,
    FAILED,
    FROM,
    ORIGINS,
    SOURCES,
    UNRECORDED,
)
from ace_ray.benchmarks.stabletoolbench.scoring.verdicts import VOTE
from ace_ray.benchmarks.tally import Tally
from ace_ray.records import RULE_SETS
from ace_ray.stats import Interval, wilson

SHARES = (
    "api_recall",
    "api_precision",
    "exact_set",
    "finish",
    "give_up",
    "hallucinated",
    "errors",
    "cache_hit",
)
"""Judge-free metrics of rows, averaged over the rows that have them."""
RATES = ("win", "lose", "tie")
OF_SKIPPED = {"sopr": 0.0, "fac": 0.0, "win": 0.0, "lose": 1.0, "tie": 0.0}
"""What needs a judge, and what a skipped query is worth in it: it has no answer."""
JUDGE_ERROR = "JudgeError"

Cell = dict[str, Any]
"""``{"value", "interval", "n"}``: a share in 0..1, its 95 % interval, over n queries."""


class Group:
    """One group: its `Tally`, and sums of the metrics that its rows' verdicts carry."""

    def __init__(self, name: str) -> None:
        self.tally = Tally(name, RULE_SETS)
        self.judge_errors = 0
        self.calls = 0
        self.unrecorded = 0
        self.sources: Counter[str] = Counter()
        self.origins: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.asked: Collection[str] = ()
        """Of `OF_SKIPPED` what the run's judge was asked for; set when all rows are in."""
        self._sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0])
        self._queries: dict[str, set[str]] = defaultdict(set)
        self._skipped: set[str] = set()

    def add(self, row: ScoredRow) -> None:
        self.tally.add(row)
        if row.status == "scored":
            for rules in RULE_SETS:
                self._take(rules, row.verdicts[rules].metrics, row.id)
        elif row.status == "skipped":
            self._skipped.add(row.id)
        self.judge_errors += getattr(row, "error_class", None) == JUDGE_ERROR

    def sopr(self, rules: str) -> Cell:
        """Of all queries of the group but those that failed (``infra_error``, ``quarantined``):
        one that was skipped has no answer, so it counts as Unsolved."""
        return self._of_all("sopr", rules)

    def answered_only(self, rules: str) -> Cell:
        """The same over the queries that have an answer file: upstream's denominator."""
        return self._mean(f"{rules}/sopr")

    def share(self, name: str) -> Cell:
        """FAC and SoWR of all queries, as `sopr`; what needs no judge of the rows that have it."""
        return self._of_all(name) if name in OF_SKIPPED else self._mean(f"official/{name}")

    def has(self, name: str) -> bool:
        """Whether a row carries it."""
        return bool(self._queries[f"official/{name}"])

    def sowr_missing(self) -> int:
        """Rows that were compared with nothing, since the reference has no answer to the query."""
        return int(self._sums["official/sowr_missing"][1])

    def votes(self, rules: str) -> list[float]:
        """The group's SoPR by vote, as `answered_only`. Upstream counts a missing vote as 0."""
        if rules != "official":
            return []
        rows = self._sums["official/sopr"][1]
        names = [name for name in self._sums if name.startswith(f"official/{VOTE}")]
        names.sort(key=lambda name: int(name.rsplit(":", 1)[1]))
        return [self._sums[name][0] / rows for name in names]

    def _take(self, rules: str, metrics: Mapping[str, float], query: str) -> None:
        calls = 0
        for name, value in metrics.items():
            if name.startswith(CALLS):
                calls = int(name.removeprefix(CALLS))
                continue
            total = self._sums[f"{rules}/{name}"]
            total[0] += value
            total[1] += 1
            self._queries[f"{rules}/{name}"].add(query)
        if rules == "official":
            self.calls += calls
            self.unrecorded += round(metrics.get(UNRECORDED, 0) * calls)
            for source in SOURCES:
                self.sources[source] += round(metrics.get(f"{FROM}{source}", 0) * calls)
            for origin in ORIGINS:
                self.origins[origin] += round(metrics.get(f"{CACHED}{origin}", 0) * calls)
            for name, value in metrics.items():
                if name.startswith(FAILED):
                    self.failures[name.removeprefix(FAILED)] += round(value * calls)

    def _of_all(self, name: str, rules: str = "official") -> Cell:
        # A reference that answers no query of the group compares with none of them.
        apart = name in RATES and self.sowr_missing() and not self.has(name)
        if name not in self.asked or apart:
            return self._mean(f"{rules}/{name}")
        total, rows = self._sums[f"{rules}/{name}"]
        more = self.tally.status["skipped"]
        queries = self._queries[f"{rules}/{name}"] | self._skipped
        return _cell(total + OF_SKIPPED[name] * more, int(rows) + more, len(queries))

    def _mean(self, name: str) -> Cell:
        total, rows = self._sums[name]
        return _cell(total, int(rows), len(self._queries[name]))


def spread(votes: Sequence[float]) -> float | None:
    """The population standard deviation of the scores by vote, as upstream prints it."""
    return pstdev(votes) if votes else None


def carried(groups: Sequence[Group]) -> set[str]:
    """Of `OF_SKIPPED` what some row carries; SoPR where none was scored."""
    if not any(group.tally.scored for group in groups):
        return {"sopr"}
    return {name for name in OF_SKIPPED if any(group.has(name) for group in groups)}


def sources_of(groups: Sequence[Group]) -> Cell:
    """Calls, by where their answers came from: ``{"calls", "counts", "shares", "cached",
    "unrecorded", "failures"}``; the share of ``cache`` is the hit rate, ``cached`` counts its
    answers by who made them, ``unrecorded`` those that it could not keep, ``failures`` the calls
    that no API answered, by `Answered.failure`."""
    counts = {name: sum(group.sources[name] for group in groups) for name in SOURCES}
    calls = sum(group.calls for group in groups)
    shares = {name: count / calls if calls else None for name, count in counts.items()}
    cached = {name: sum(group.origins[name] for group in groups) for name in ORIGINS}
    lost = sum(group.unrecorded for group in groups)
    kinds = sorted({kind for group in groups for kind in group.failures})
    return {
        "calls": calls,
        "counts": counts,
        "shares": shares,
        "cached": cached,
        "unrecorded": lost,
        "failures": {kind: sum(group.failures[kind] for group in groups) for kind in kinds},
    }


def calls_per_query(groups: Sequence[Group]) -> float | None:
    rows = sum(group.tally.scored for group in groups)
    return sum(group.calls for group in groups) / rows if rows else None


def _cell(total: float, rows: int, queries: int) -> Cell:
    if not rows:
        return {"value": None, "interval": None, "n": 0}
    value = total / rows
    interval: Interval | None = wilson(value * queries, queries)
    return {"value": value, "interval": None if interval is None else list(interval), "n": queries}
