"""Summarize a run: SoPR, FAC and SoWR by group (see `judge.measures`), and metrics without a judge.

docs/results.md explains the keys. A value is null if nothing was judged. A mean over the groups is
null if a group's value is missing; ``partial`` is then the mean of the other groups.

Failed rows count in no value. Skipped queries count as Unsolved in ``sopr`` and ``fac``, as lost in
``sowr``, and not at all in ``answered_only`` (SoPR as upstream computes it) and ``shares``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from statistics import pstdev
from typing import Any

from ace_ray.benchmarks.stabletoolbench.check import (
    CACHED,
    CALLS,
    FAILED,
    FROM,
    ORIGINS,
    SOURCES,
    VOTE,
)
from ace_ray.benchmarks.stabletoolbench.names import GROUPS, LEVELS
from ace_ray.benchmarks.statistics import statistics
from ace_ray.types import CHECKED, RULE_SETS, ResultRow
from ace_ray.util.stats import mean_of_present, weighted_interval, wilson

# Metrics that need no judge, averaged over the rows that have them.
SHARES = (
    "offered_recall",
    "api_recall",
    "api_precision",
    "exact_set",
    "finish",
    "give_up",
    "hallucinated",
    "errors",
    "cache_hit",
)
RATES = ("win", "lose", "tie")
# Metrics that need a judge, and the value that a skipped query counts as.
OF_SKIPPED = {"sopr": 0.0, "fac": 0.0, "win": 0.0, "lose": 1.0, "tie": 0.0}
JUDGE_ERROR = "JudgeError"

# ``{"value", "interval", "n"}``: a share in 0..1, its 95 % interval, over n queries.
Cell = dict[str, Any]


def summarize(rows: Iterable[ResultRow], *, max_unscored: float = 0.0) -> dict[str, Any]:
    """Summarize ``rows`` in one pass; each (id, sample) must occur once.

    A group whose share of unscored rows exceeds ``max_unscored`` keeps its numbers, but is left out
    of all means."""
    by_name: dict[str, Group] = defaultdict(Group)

    def noted() -> Iterator[ResultRow]:
        for row in rows:
            by_name[row.category].add(row)
            yield row

    summary = statistics(noted(), RULE_SETS, LEVELS, max_unscored)
    del summary["groups"], summary["languages"]
    every = list(by_name.values())
    asked = _asked(every)
    for group in every:
        group.asked = asked
    usable = {}
    for name, stats in summary["categories"].items():
        _add_group(stats, by_name[name])
        if name in GROUPS and lacking(stats) <= max_unscored * stats["declared"]:
            usable[name] = by_name[name]
    for rules in RULE_SETS:
        summary["rules"][rules] |= _means(usable, rules)
    calls = sum(group.calls for group in every)
    summary["totals"] |= {"api_calls": calls, "calls_per_query": _calls_per_query(every)}
    return summary | {
        "judge_errors": sum(group.judge_errors for group in every),
        "averages": {name: _mean(usable, _share(name)) for name in ("fac", *RATES, *SHARES)},
        "sources": _sources_of(every),
    }


def lacking(stats: Mapping[str, Any]) -> int:
    """Return how many rows the values of a group lack. If no row was judged, SoPR is null anyway,
    and the metrics without a judge lack only the failed rows."""
    unjudged = 0 if stats["scored"] else stats["status"]["not_judged"]
    return int(stats["unscored"] - unjudged)


class Group:
    """Sums of the metrics in the verdicts of a group's rows."""

    def __init__(self) -> None:
        self.checked = self.skipped = self.judge_errors = self.calls = 0
        # Number of calls for each metric that is a share of a row's calls.
        self.counts: Counter[str] = Counter()
        # Metrics of `OF_SKIPPED` that the run's judge was asked for; set after the last row.
        self.asked: Collection[str] = ()
        self._sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0])
        self._queries: dict[str, set[str]] = defaultdict(set)
        self._skipped: set[str] = set()

    def add(self, row: ResultRow) -> None:
        if row.status in CHECKED:
            self.checked += 1
            for rules in RULE_SETS:
                self._take(rules, row.metrics(rules), row.id)
            self._count_calls(row.metrics("official"))
        elif row.status == "skipped":
            self.skipped += 1
            self._skipped.add(row.id)
        self.judge_errors += getattr(row, "error_class", None) == JUDGE_ERROR

    def sopr(self, rules: str) -> Cell:
        """Return the group's SoPR. Failed rows (``infra_error``, ``quarantined``) are left out, and
        a skipped query counts as Unsolved."""
        return self._of_all("sopr", rules)

    def answered_only(self, rules: str) -> Cell:
        """Return SoPR over the answered queries only, as upstream does."""
        return self._mean(f"{rules}/sopr")

    def share(self, name: str) -> Cell:
        """Return the metric ``name``: FAC and SoWR over all queries, like `sopr`; any other metric
        over the rows that have it."""
        return self._of_all(name) if name in OF_SKIPPED else self._mean(f"official/{name}")

    def has(self, name: str) -> bool:
        """Return whether at least one row of the group has the metric ``name``."""
        return bool(self._queries[f"official/{name}"])

    def sowr_missing(self) -> int:
        """Return the number of rows for which the reference lacks an answer to compare with."""
        return int(self._sums["official/sowr_missing"][1])

    def votes(self, rules: str) -> list[float]:
        """Return the SoPR of the answered queries from the first vote alone, the second vote alone,
        and so on. A missing vote counts as 0, as in upstream. The list is empty for ``strict``."""
        if rules != "official":
            return []
        rows = self._sums["official/sopr"][1]
        names = [name for name in self._sums if name.startswith(f"official/{VOTE}")]
        names.sort(key=lambda name: int(name.rsplit("_", 1)[1]))
        return [self._sums[name][0] / rows for name in names]

    def _take(self, rules: str, metrics: Mapping[str, float], query: str) -> None:
        for name, value in metrics.items():
            if not name.startswith(CALLS):
                total = self._sums[f"{rules}/{name}"]
                total[0] += value
                total[1] += 1
                self._queries[f"{rules}/{name}"].add(query)

    def _count_calls(self, metrics: Mapping[str, float]) -> None:
        calls = sum(int(name.removeprefix(CALLS)) for name in metrics if name.startswith(CALLS))
        self.calls += calls
        for name, value in metrics.items():
            if name.startswith((FROM, CACHED, FAILED)):
                self.counts[name] += round(value * calls)

    def _of_all(self, name: str, rules: str = "official") -> Cell:
        # If the reference answers no query of this group, nothing was compared.
        apart = name in RATES and self.sowr_missing() and not self.has(name)
        if name not in self.asked or apart:
            return self._mean(f"{rules}/{name}")
        total, rows = self._sums[f"{rules}/{name}"]
        queries = self._queries[f"{rules}/{name}"] | self._skipped
        lost = OF_SKIPPED[name] * self.skipped
        return _cell(total + lost, int(rows) + self.skipped, len(queries))

    def _mean(self, name: str) -> Cell:
        total, rows = self._sums[name]
        return _cell(total, int(rows), len(self._queries[name]))


def _add_group(stats: dict[str, Any], group: Group) -> None:
    for rules in RULE_SETS:
        votes = group.votes(rules)
        stats[rules] |= {
            "sopr": group.sopr(rules),
            "answered_only": group.answered_only(rules),
            "votes": votes,
            "spread": _spread(votes),
        }
    stats |= {
        "judge_errors": group.judge_errors,
        "fac": group.share("fac"),
        "sowr": {name: group.share(name) for name in RATES} | {"missing": group.sowr_missing()},
        "shares": {name: group.share(name) for name in SHARES},
        "sources": _sources_of([group]),
        "calls_per_query": _calls_per_query([group]),
    }


def _means(groups: Mapping[str, Group], rules: str) -> dict[str, Any]:
    votes = [group.votes(rules) for group in groups.values()]
    whole = len(votes) == len(GROUPS) and len({len(one) for one in votes}) == 1
    by_vote = [sum(one) / len(one) for one in zip(*votes, strict=True)] if whole else []
    return {
        "sopr": _mean(groups, lambda group: group.sopr(rules)),
        "answered_only": _mean(groups, lambda group: group.answered_only(rules)),
        "spread": _spread(by_vote),
    }


def _share(name: str) -> Callable[[Group], Cell]:
    return lambda group: group.share(name)


def _mean(groups: Mapping[str, Group], cell: Callable[[Group], Cell]) -> dict[str, Any]:
    """Return upstream's "average": the unweighted mean of the groups."""
    cells = {name: cell(group) for name, group in groups.items()}
    there = [one for one in cells.values() if one["value"] is not None]
    missing = [name for name in GROUPS if cells.get(name, {}).get("value") is None]
    n = sum(one["n"] for one in there)
    if missing:
        found = mean_of_present((1.0, one["value"], one["interval"]) for one in there)
        partial = None if found is None else {"value": found[0], "interval": list(found[1])}
        whole = {"value": None, "interval": None, "n": n, "missing": missing}
        return whole | {"partial": partial}
    weight = 1 / len(GROUPS)
    interval = weighted_interval((weight, one["value"], tuple(one["interval"])) for one in there)
    value = sum(one["value"] for one in there) * weight
    return {"value": value, "interval": list(interval), "n": n, "missing": []}


def _spread(votes: Sequence[float]) -> float | None:
    """Return the population standard deviation of `Group.votes`, as in upstream; None if empty."""
    return pstdev(votes) if votes else None


def _asked(groups: Sequence[Group]) -> set[str]:
    """Return the metrics of `OF_SKIPPED` that any row has; {"sopr"} if no row was checked."""
    if not any(group.checked for group in groups):
        return {"sopr"}
    return {name for name in OF_SKIPPED if any(group.has(name) for group in groups)}


def _sources_of(groups: Sequence[Group]) -> dict[str, Any]:
    """Count calls by source of the answer, cached answers by origin, and failures by kind."""
    counts = sum((group.counts for group in groups), Counter[str]())
    return {
        "calls": sum(group.calls for group in groups),
        "counts": {name: counts[f"{FROM}{name}"] for name in SOURCES},
        "cached": {name: counts[f"{CACHED}{name}"] for name in ORIGINS},
        "failures": {
            name.removeprefix(FAILED): counts[name]
            for name in sorted(counts)
            if name.startswith(FAILED)
        },
    }


def _calls_per_query(groups: Sequence[Group]) -> float | None:
    rows = sum(group.checked for group in groups)
    return sum(group.calls for group in groups) / rows if rows else None


def _cell(total: float, rows: int, queries: int) -> Cell:
    if not rows:
        return {"value": None, "interval": None, "n": 0}
    value = total / rows
    interval = wilson(value * queries, queries)
    return {"value": value, "interval": interval and list(interval), "n": queries}
