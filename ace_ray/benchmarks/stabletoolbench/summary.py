"""Summarize a run: SoPR, FAC and SoWR by group (see `judge.measures`), and metrics without a judge.

docs/results.md explains the keys. A value is null if nothing was judged. A mean over the groups is
null if a group's value is missing; ``partial`` is then the mean of the other groups.

Failed rows count in no value. Skipped queries count as Unsolved in ``sopr`` and ``fac``, as lost in
``sowr``, and not at all in ``answered_only`` (SoPR as upstream computes it) and ``shares``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from statistics import pstdev
from typing import Any

from ace_ray.benchmarks.aggregates import Aggregate, Column, aggregates
from ace_ray.benchmarks.stabletoolbench import check
from ace_ray.benchmarks.stabletoolbench.callable_names import GROUPS, LEVELS
from ace_ray.benchmarks.statistics import statistics
from ace_ray.types import CHECKED, RULE_SETS, ResultRow
from ace_ray.util.stats import share

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
# Upstream's "average": the unweighted mean of the groups.
_AVERAGE = Column("average", GROUPS, mean=lambda values, _: sum(values) * (1 / len(values)))


def summarize(rows: Iterable[ResultRow], max_unscored: float = 0.0) -> dict[str, Any]:
    """Summarize ``rows`` in one pass; each (id, sample) must occur once.

    A group whose share of unscored rows exceeds ``max_unscored`` keeps its numbers, but is left out
    of all means."""
    by_name: dict[str, Group] = defaultdict(Group)

    def add_rows() -> Iterator[ResultRow]:
        for row in rows:
            by_name[row.category].add(row)
            yield row

    summary = statistics(add_rows(), RULE_SETS, LEVELS, max_unscored)
    del summary["groups"], summary["languages"]
    every = list(by_name.values())
    judged = {name for name in OF_SKIPPED if any(group.has(name) for group in every)}
    if not any(group.checked for group in every):
        judged = {"sopr"}
    usable = {}
    for name, stats in summary["categories"].items():
        group = by_name[name]
        group.judged_metrics = judged
        stats |= group.metrics()
        for rules in RULE_SETS:
            stats[rules] |= group.sopr(rules)
        if name in GROUPS and has_values(stats, max_unscored):
            usable[name] = group
    for rules in RULE_SETS:
        summary["rules"][rules] |= {
            "sopr": _average(usable, "sopr", rules),
            "answered_only": _average(usable, "sopr", rules, answered_only=True),
            "spread": _spread(_mean_votes(usable, rules)),
        }
    sources = _sources_of(every)
    calls = {"api_calls": sources["calls"], "calls_per_query": _calls_per_query(every)}
    summary["totals"] |= calls
    return summary | {
        "judge_errors": sum(group.judge_errors for group in every),
        "averages": {name: _average(usable, name) for name in ("fac", *RATES, *SHARES)},
        "sources": sources,
    }


def has_values(stats: Mapping[str, Any], max_unscored: float) -> bool:
    """Return whether few enough rows of a group lack a verdict, so that its values are shown. If no
    row was judged, only failed rows count: SoPR is null, and other metrics need no judge."""
    unjudged = 0 if stats["scored"] else stats["status"]["not_judged"]
    return bool(stats["unscored"] - unjudged <= max_unscored * stats["declared"])


class Group:
    """Sums of the metrics in the verdicts of a group's rows."""

    def __init__(self) -> None:
        self.checked = self.judge_errors = self.calls = 0
        # Number of calls for each metric that is a share of a row's calls.
        self.counts: Counter[str] = Counter()
        # Metrics of `OF_SKIPPED` that the run's judge was asked for; set after the last row.
        self.judged_metrics: Collection[str] = ()
        # Values and queries of the rows with a metric, by (rule set, metric).
        self._sums: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0])
        self._queries: dict[tuple[str, str], set[str]] = defaultdict(set)
        self._skipped: list[str] = []

    def add(self, row: ResultRow) -> None:
        if row.status in CHECKED:
            self.checked += 1
            for rules in RULE_SETS:
                for name, value in row.metrics(rules).items():
                    if not name.startswith(check.CALLS):
                        total = self._sums[rules, name]
                        total[0] += value
                        total[1] += 1
                        self._queries[rules, name].add(row.id)
            self._count_calls(row.metrics("official"))
        elif row.status == "skipped":
            self._skipped.append(row.id)
        self.judge_errors += row.error_class == JUDGE_ERROR

    def mean(self, name: str, rules: str = "official", *, answered_only: bool = False) -> Aggregate:
        """Return the mean of a metric over the rows that have it.

        FAC, SoWR and SoPR also count skipped queries, unless ``answered_only``, as upstream does.
        Failed rows (``infra_error``, ``quarantined``) are left out."""
        (total, rows), queries = self._sums[rules, name], self._queries[rules, name]
        # If the reference answers no query of this group, nothing was compared.
        lacks_reference = name in RATES and self._sowr_missing() and not self.has(name)
        if name in self.judged_metrics and not lacks_reference and not answered_only:
            total += OF_SKIPPED[name] * len(self._skipped)
            rows += len(self._skipped)
            queries = queries | set(self._skipped)
        return Aggregate(*share(total, int(rows), len(queries)), len(queries))

    def has(self, name: str) -> bool:
        """Return whether at least one row of the group has the metric ``name``."""
        return bool(self._queries["official", name])

    def votes(self, rules: str) -> list[float]:
        """Return the SoPR of the answered queries from the first vote alone, the second vote alone,
        and so on. A missing vote counts as 0, as in upstream. The list is empty for ``strict``."""
        if rules != "official":
            return []
        rows = self._sums[rules, "sopr"][1]
        names = [name for kind, name in self._sums if kind == rules and name.startswith(check.VOTE)]
        names.sort(key=lambda name: int(name.removeprefix(check.VOTE)))
        return [self._sums[rules, name][0] / rows for name in names]

    def sopr(self, rules: str) -> dict[str, Any]:
        """Return the statistics of this group under a rule set, by their keys in a summary."""
        votes = self.votes(rules)
        return {
            "sopr": _cell(self.mean("sopr", rules)),
            "answered_only": _cell(self.mean("sopr", rules, answered_only=True)),
            "votes": votes,
            "spread": _spread(votes),
        }

    def metrics(self) -> dict[str, Any]:
        """Return the statistics of this group that rule sets share, by their keys in a summary."""
        rates = {name: _cell(self.mean(name)) for name in RATES}
        return {
            "judge_errors": self.judge_errors,
            "fac": _cell(self.mean("fac")),
            "sowr": rates | {"missing": self._sowr_missing()},
            "shares": {name: _cell(self.mean(name)) for name in SHARES},
            "sources": _sources_of([self]),
            "calls_per_query": _calls_per_query([self]),
        }

    def _sowr_missing(self) -> int:
        """Return the number of rows for which the reference lacks an answer to compare with."""
        return int(self._sums["official", "sowr_missing"][1])

    def _count_calls(self, metrics: Mapping[str, float]) -> None:
        numbers = [name for name in metrics if name.startswith(check.CALLS)]
        calls = sum(int(name.removeprefix(check.CALLS)) for name in numbers)
        self.calls += calls
        for name, value in metrics.items():
            if name.startswith((check.FROM, check.CACHED, check.FAILED)):
                self.counts[name] += round(value * calls)


def _cell(mean: Aggregate) -> dict[str, Any]:
    """Return ``{"value", "interval", "n"}``: a share in 0..1 and its interval, over n queries."""
    return {"value": mean.value, "interval": mean.interval and list(mean.interval), "n": mean.n}


def _average(
    groups: Mapping[str, Group], name: str, rules: str = "official", *, answered_only: bool = False
) -> dict[str, Any]:
    means = {g: group.mean(name, rules, answered_only=answered_only) for g, group in groups.items()}
    average = aggregates({name: _AVERAGE}, means)[name]
    return average.as_json(n=average.n)


def _mean_votes(groups: Mapping[str, Group], rules: str) -> list[float]:
    """Return the means of `Group.votes`; an empty list if groups or votes are missing."""
    votes = [group.votes(rules) for group in groups.values()]
    is_complete = len(votes) == len(GROUPS) and len(set(map(len, votes))) == 1
    return [sum(values) / len(values) for values in zip(*votes, strict=True)] if is_complete else []


def _spread(votes: Sequence[float]) -> float | None:
    """Return the population standard deviation of `Group.votes`, as in upstream; None if empty."""
    return pstdev(votes) if votes else None


def _sources_of(groups: Sequence[Group]) -> dict[str, Any]:
    """Count calls by source of the answer, cached answers by origin, and failures by kind."""
    counts = sum((group.counts for group in groups), Counter[str]())
    return {
        "calls": sum(group.calls for group in groups),
        "counts": {name: counts[f"{check.FROM}{name}"] for name in check.SOURCES},
        "cached": {name: counts[f"{check.CACHED}{name}"] for name in check.ORIGINS},
        "failures": {
            name.removeprefix(check.FAILED): counts[name]
            for name in sorted(counts)
            if name.startswith(check.FAILED)
        },
    }


def _calls_per_query(groups: Sequence[Group]) -> float | None:
    rows = sum(group.checked for group in groups)
    return sum(group.calls for group in groups) / rows if rows else None
