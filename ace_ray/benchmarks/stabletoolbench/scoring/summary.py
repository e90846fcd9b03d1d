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
    MEAN             {"value", "interval", "n", "missing": [group]}; null without every group
    SOURCES          {"calls", "counts": {source: n}, "shares": {source: share},
                     "cached": {origin: n}, "unrecorded", "failures": {kind: n}}

``sopr`` and ``fac`` count skipped queries as Unsolved, ``sowr`` as lost; ``answered_only`` leaves
them out, which is upstream's denominator of SoPR, and so do ``shares``. Rows that failed are in
none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from ace_ray.benchmarks.results import ScoredRow
from ace_ray.benchmarks.stabletoolbench.groups import GROUPS
from ace_ray.benchmarks.stabletoolbench.scoring.figures import (
    RATES,
    SHARES,
    Cell,
    Group,
    calls_per_query,
    carried,
    sources_of,
    spread,
)
from ace_ray.benchmarks.tally import accuracies, add_costs, counts, errors, lacks, totals
from ace_ray.records import RULE_SETS
from ace_ray.stats import weighted_interval


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
    found: dict[str, Group] = {}
    for row in rows:
        group = found.setdefault(row.category, Group(row.category))
        group.add(row)
        add_costs(group.tally, row)
    groups = {name: found[name] for name in GROUPS if name in found}
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
        return {"value": None, "interval": None, "n": 0, "missing": missing}
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
