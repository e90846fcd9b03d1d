"""The summary of a run: SoPR, FAC and SoWR by group, and what needs no judge.

Keys (``docs/results.md`` explains them)::

    counts           {"declared", "scored", "unscored", "status": {status: rows}}
    totals           {"prompt_tokens", "completion_tokens", "generation_s", "api_calls",
                     "calls_per_query"}
    judge_errors     rows without a verdict because of the judge; among ``infra_error``
    categories       {group: counts + {"official": STATS, "strict": STATS, "judge_errors",
                     "fac": CELL, "sowr": {"win", "lose", "tie": CELL, "missing": rows},
                     "shares": {metric: CELL}, "sources": SOURCES, "calls_per_query"}}
    rules            {"official": RULES, "strict": RULES}
    averages         the plain mean of all six groups: {"fac", "win", "lose", "tie", metric: MEAN}
    sources          SOURCES over all groups
    complete         whether every group has no more unscored rows than allowed
    incomplete       one line per group that has more: what and how many
    max_unscored     the allowed share of unscored rows of a group

    RULES            {"sopr": MEAN, "answered_only": MEAN, "spread", "errors": as in STATS}
    STATS            as in the summaries of ACEBench, see ``docs/results.md``, and
                     {"sopr": CELL, "answered_only": CELL, "votes": [SoPR by vote], "spread"}
    CELL             {"value", "interval", "n"}; value null where nothing was judged
    MEAN             {"value", "interval", "n", "missing": [group]}; value null without every group,
                     and then "partial": {"value", "interval"} is the mean of those there, or null
    SOURCES          {"calls", "counts": {source: n}, "shares": {source: share},
                     "cached": {origin: n}, "unrecorded", "schema_refused",
                     "failures": {kind: n}}

``sopr`` and ``fac`` count skipped queries as Unsolved, ``sowr`` as lost; ``answered_only`` leaves
them out, which is upstream's denominator of SoPR, and so do ``shares``. Rows that failed are in
none.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from statistics import pstdev
from typing import Any

from ace_ray.benchmarks.results import ScoredRow
from ace_ray.benchmarks.stabletoolbench.check import (
    CACHED,
    CALLS,
    FAILED,
    FROM,
    ORIGINS,
    SCHEMA_REFUSED,
    SOURCES,
    UNRECORDED,
    VOTE,
)
from ace_ray.benchmarks.stabletoolbench.groups import GROUPS
from ace_ray.benchmarks.tally import Tally, accuracies, add_costs, counts, errors, lacks, totals
from ace_ray.records import RULE_SETS
from ace_ray.stats import Interval, mean_of_present, weighted_interval, wilson


def summarize(
    rows: Iterable[ScoredRow],
    *,
    max_unscored: float = 0.0,
    asked: Collection[str] | None = None,
) -> dict[str, Any]:
    """One pass over ``rows``, each (id, sample) once.

    A group with a larger share of unscored rows than ``max_unscored`` keeps its numbers, but
    enters no mean. ``asked`` is what the judge was asked for, of `OF_SKIPPED`; by default what rows
    carry.
    """
    by_name: dict[str, Group] = {}
    for row in rows:
        group = by_name.setdefault(row.category, Group(row.category))
        group.add(row)
        add_costs(group.tally, row)
    groups = {name: by_name[name] for name in GROUPS if name in by_name}
    short = {
        name: lacks(name, group.tally)
        for name, group in groups.items()
        if group.tally.declared - group.tally.scored > max_unscored * group.tally.declared
    }
    every = list(groups.values())
    asked = carried(every) if asked is None else asked
    for group in every:
        group.asked = asked
    usable = {name: group for name, group in groups.items() if name not in short}
    tallies = [group.tally for group in every]
    return {
        "counts": counts(tallies),
        "totals": totals(tallies)
        | {
            "api_calls": sum(group.calls for group in every),
            "calls_per_query": calls_per_query(every),
        },
        "judge_errors": sum(group.judge_errors for group in every),
        "categories": {name: _group(group) for name, group in groups.items()},
        "rules": {
            rules: _rules(usable, rules) | {"errors": errors(tallies, rules)} for rules in RULE_SETS
        },
        "averages": _averages(usable),
        "sources": sources_of(every),
        "complete": not short,
        "incomplete": list(short.values()),
        "max_unscored": max_unscored,
    }


def _group(group: Group) -> dict[str, Any]:
    return (
        counts([group.tally])
        | {rules: _stats(group, rules) for rules in RULE_SETS}
        | {
            "judge_errors": group.judge_errors,
            "fac": group.share("fac"),
            "sowr": {name: group.share(name) for name in RATES} | {"missing": group.sowr_missing()},
            "shares": {name: group.share(name) for name in SHARES},
            "sources": sources_of([group]),
            "calls_per_query": calls_per_query([group]),
        }
    )


def _stats(group: Group, rules: str) -> dict[str, Any]:
    votes = group.votes(rules)
    return accuracies([group.tally], rules) | {
        "sopr": group.sopr(rules),
        "answered_only": group.answered_only(rules),
        "votes": votes,
        "spread": spread(votes),
    }


def _rules(groups: Mapping[str, Group], rules: str) -> dict[str, Any]:
    votes = [group.votes(rules) for group in groups.values()]
    whole = len(votes) == len(GROUPS) and len({len(one) for one in votes}) == 1
    by_vote = [sum(one) / len(one) for one in zip(*votes, strict=True)] if whole else []
    return {
        "sopr": _mean(groups, lambda group: group.sopr(rules)),
        "answered_only": _mean(groups, lambda group: group.answered_only(rules)),
        "spread": spread(by_vote),
    }


def _averages(groups: Mapping[str, Group]) -> dict[str, Any]:
    def of(name: str) -> dict[str, Any]:
        return _mean(groups, lambda group: group.share(name))

    return {name: of(name) for name in ("fac", *RATES, *SHARES)}


def _mean(groups: Mapping[str, Group], cell: Callable[[Group], Cell]) -> dict[str, Any]:
    """Upstream's "average": every group counts the same, however many queries it has."""
    cells = {name: cell(group) for name, group in groups.items()}
    missing = [name for name in GROUPS if cells.get(name, {}).get("value") is None]
    if missing:
        there = [one for one in cells.values() if one["value"] is not None]
        found = mean_of_present((1.0, one["value"], one["interval"]) for one in there)
        return {
            "value": None,
            "interval": None,
            "n": sum(one["n"] for one in there),
            "missing": missing,
            "partial": None if found is None else {"value": found[0], "interval": list(found[1])},
        }
    weight = 1 / len(GROUPS)
    return {
        "value": sum(one["value"] for one in cells.values()) * weight,
        "interval": list(
            weighted_interval(
                (weight, one["value"], (one["interval"][0], one["interval"][1]))
                for one in cells.values()
            )
        ),
        "n": sum(one["n"] for one in cells.values()),
        "missing": [],
    }


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
        self.schema_refused = 0
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
        names.sort(key=lambda name: int(name.rsplit("_", 1)[1]))
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
            self.schema_refused += round(metrics.get(SCHEMA_REFUSED, 0) * calls)
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
    "unrecorded", "schema_refused", "failures"}``; the share of ``cache`` is the hit rate,
    ``cached`` counts its answers by who made them, ``unrecorded`` those that it could not keep.
    Under ``schema_refused`` are calls that a simulator was asked without its schema, under
    ``failures`` those that no API answered, by `Answered.failure`."""
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
        "schema_refused": sum(group.schema_refused for group in groups),
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
