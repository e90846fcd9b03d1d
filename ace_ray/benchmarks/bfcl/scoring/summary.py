"""The summary of a run: accuracies, groups, overall scores and totals, for both rule sets.

Keys (``docs/results.md`` explains them)::

    counts           {"declared", "scored", "unscored", "status": {status: rows}}
    totals           {"prompt_tokens", "completion_tokens", "generation_s"}
    categories       {category: counts + {"official": STATS, "strict": STATS}}
    rules            {"official": RULES, "strict": RULES}
    format_sensitivity   see `sensitivity`; null without such rows
    contamination    see `diagnostics`; null where it was not asked for
    endings          {category: {how: episodes}} of interactive categories
    complete         whether every category has no more unscored rows than allowed
    incomplete       one line per category that has more: what and how many
    max_unscored     the allowed share of unscored rows of a category

    RULES            {"v4": {column: CELL}, "v3": {column: CELL}, "errors": as in STATS}
    STATS, CELL      as in the summaries of ACEBench, see ``docs/results.md``
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ace_ray.benchmarks.bfcl.categories import CATEGORIES, FORMAT_SENSITIVITY, SCORING
from ace_ray.benchmarks.bfcl.scoring.aggregates import V3, V4, Accuracy, aggregates
from ace_ray.benchmarks.bfcl.scoring.diagnostics import Diagnostics
from ace_ray.benchmarks.bfcl.scoring.sensitivity import Sensitivity
from ace_ray.benchmarks.results import ScoredRow
from ace_ray.benchmarks.tally import Tally, accuracies, add_costs, counts, errors, lacks, totals
from ace_ray.records import RULE_SETS


def summarize(rows: Iterable[ScoredRow], *, max_unscored: float = 0.0) -> dict[str, Any]:
    """One pass over ``rows``, each (id, sample) once.

    A category with a larger share of unscored rows than ``max_unscored`` keeps its accuracy over
    the scored ones, but enters no aggregate.
    """
    tallies: dict[str, Tally] = {}
    sensitivity, diagnostics = Sensitivity(), Diagnostics()
    for row in diagnostics.through(rows):
        tally = tallies.setdefault(row.category, Tally(row.category, RULE_SETS))
        tally.add(row)
        add_costs(tally, row)
        if row.category == FORMAT_SENSITIVITY:
            sensitivity.add(row)
    tallies = {name: tallies[name] for name in CATEGORIES if name in tallies}
    categories = {
        name: counts([tally]) | {rules: accuracies([tally], rules) for rules in RULE_SETS}
        for name, tally in tallies.items()
    }
    short = {
        name: lacks(name, tally)
        for name, tally in tallies.items()
        if tally.declared - tally.scored > max_unscored * tally.declared
    }
    every = list(tallies.values())
    return {
        "counts": counts(every),
        "totals": totals(every),
        "categories": categories,
        "rules": {
            rules: _rules(
                {name: stats[rules] for name, stats in categories.items() if name not in short}
            )
            | {"errors": errors(every, rules)}
            for rules in RULE_SETS
        },
        "format_sensitivity": sensitivity.result(),
        "contamination": diagnostics.contamination(),
        "endings": diagnostics.endings(),
        "complete": not short,
        "incomplete": list(short.values()),
        "max_unscored": max_unscored,
    }


def _rules(usable: Mapping[str, Any]) -> dict[str, Any]:
    judged = {
        name: Accuracy(stats["accuracy"], tuple(stats["interval"]), stats["n"])
        for name, stats in usable.items()
        if name in SCORING and stats["accuracy"] is not None
    }
    return {"v4": aggregates(judged, V4), "v3": aggregates(judged, V3)}
