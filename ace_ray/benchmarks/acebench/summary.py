"""Summarize a run: accuracies, aggregates, error types and totals, for both rule sets.

docs/results.md explains the keys. The summary has a block for each language and a combined block,
each with counts, categories, and aggregates for each rule set. The combined block pools the rows of
each category. Its aggregates are means of the languages' aggregates (as in the paper's Table 2),
and the items of ``missing`` read ``language/category``.

The official workbook and the paper average categories without weights. They differ in rounding and
in the overall number. The value of a group is null if a category is missing: a mean that counts the
category as zero would look like a real score.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import add, mul
from typing import Any

from ace_ray.benchmarks.acebench.options import (
    AGENT,
    ATOM,
    CATEGORIES,
    MULTI_TURN,
    SINGLE_TURN,
    SPECIAL,
)
from ace_ray.benchmarks.aggregates import (
    Aggregate,
    Column,
    Columns,
    aggregate,
    aggregates,
    root_shares,
    to_aggregates,
)
from ace_ray.benchmarks.statistics import by_language, completeness, describe, tally_rows
from ace_ray.benchmarks.tally import Tally, counts, errors, totals
from ace_ray.types import RULE_SETS, ResultRow

# The order matters: the official evaluator adds floats in this order before it rounds the sum.
_NORMAL = (*SINGLE_TURN, *MULTI_TURN, "normal_similar_api", "normal_preference", *ATOM)
# Group: its titles in the official workbook and in the paper's Table 2, and its categories.
_GROUPS: Mapping[str, tuple[str, str, Sequence[str]]] = {
    "atom": ("atom", "Atom", ATOM),
    "single_turn": ("single_turn", "Single-Turn", SINGLE_TURN),
    "multi_turn": ("multiple_turn", "Multi-Turn", MULTI_TURN),
    "similar_api": ("similar_api", "Similar API", ("normal_similar_api",)),
    "preference": ("profile", "Preference", ("normal_preference",)),
    "normal": ("normal_summary", "Summary", _NORMAL),
    "special": ("special_summary", "Special", SPECIAL),
    "agent": ("agent_summary", "Agent", AGENT),
}
GROUPS = {name: categories for name, (_, _, categories) in _GROUPS.items()}
TOP = ("normal", "special", "agent")


def _ordered_mean(values: Sequence[float], weights: Sequence[float] | None) -> float:
    # Since Python 3.12, sum() compensates rounding errors, unlike the official evaluator.
    if weights is None:
        return reduce(add, values, 0.0) / len(values)
    return reduce(add, map(mul, weights, values), 0.0)


def _rounded_mean(values: Sequence[float], weights: Sequence[float] | None) -> float:
    return round(_ordered_mean([round(value, 3) for value in values], weights), 3)


def _mean_rounded_once(values: Sequence[float], weights: Sequence[float] | None) -> float:
    return round(_ordered_mean(values, weights), 3)


# The columns of the official result workbook, rounded to 3 digits as upstream does. Accuracies are
# rounded before they are averaged, except of special categories.
WORKBOOK: Columns = {
    name: Column(title, parts, mean=_mean_rounded_once if name == "special" else _rounded_mean)
    for name, (title, _, parts) in _GROUPS.items()
} | {"overall": Column("Summary", TOP, (0.578, 0.2676, 0.1545), _rounded_mean)}
# The columns of the paper's Table 2, unrounded, with the weights of Appendix E: the roots of the
# numbers of judged entries and dialogues. The official sizes (700, 150 and 50) give the workbook's
# weights. The paper misprints the denominator of the agent weight (nested roots): weights sum to 1.
PAPER: Columns = {
    name: Column(title, parts, mean=_ordered_mean) for name, (_, title, parts) in _GROUPS.items()
} | {"overall": Column("Overall", TOP, "sqrt n", _ordered_mean)}
PAPER_COLUMNS = {name: column.title for name, column in PAPER.items()}
_TABLES = {"workbook": WORKBOOK, "paper": PAPER}


def summarize(rows: Iterable[ResultRow], max_unscored: float = 0.0) -> dict[str, Any]:
    """Summarize ``rows`` in one pass. Each (id, sample) must occur only once.

    A category with a larger share of unscored rows than ``max_unscored`` keeps its accuracy over
    the scored rows, but is left out of aggregates."""
    tallies = tally_rows(rows, RULE_SETS, {"all": CATEGORIES}, MULTI_TURN)
    blocks: dict[str, Any] = {}
    means: dict[str, dict[tuple[str, str], Mapping[str, Aggregate]]] = {}
    for language, spoken in by_language(tallies).items():
        block = _block(spoken)
        means[language] = {
            (rules, table): aggregates(
                columns, to_aggregates(block["categories"], rules, max_unscored)
            )
            for rules in RULE_SETS
            for table, columns in _TABLES.items()
        }
        block["rules"] = {
            rules: {table: _cells(table, means[language][rules, table]) for table in _TABLES}
            | _errors(spoken, rules)
            for rules in RULE_SETS
        }
        blocks[language] = block
    every = list(tallies.values())
    combined = _block(every)
    combined["rules"] = {
        rules: {
            table: _mean_over_languages(table, {lang: m[rules, table] for lang, m in means.items()})
            for table in _TABLES
        }
        | _errors(every, rules)
        for rules in RULE_SETS
    }
    return {"languages": blocks, "combined": combined, **completeness(tallies, max_unscored)}


def _block(every: Sequence[Tally]) -> dict[str, Any]:
    categories = {
        name: describe(tallies, RULE_SETS)
        for name in CATEGORIES
        if (tallies := [tally for tally in every if tally.category == name])
    }
    return {"counts": counts(every), "totals": totals(every), "categories": categories}


def _cells(table: str, means: Mapping[str, Aggregate]) -> dict[str, Any]:
    cells = {name: cell.as_json(column=_TABLES[table][name].title) for name, cell in means.items()}
    if table == "paper":
        sizes = _sizes(means)
        weights = dict(zip(TOP, root_shares(list(sizes.values())), strict=True))
        cells["overall"] |= {"counts": sizes, "weights": weights}
    return cells


def _mean_over_languages(
    table: str, by_language: Mapping[str, Mapping[str, Aggregate]]
) -> dict[str, Any]:
    """Return the unweighted mean over languages of each aggregate, as in the paper's Table 2."""
    cells: dict[str, Any] = {}
    for name, column in _TABLES[table].items() if by_language else ():
        parts = [
            replace(means[name], missing=[f"{language}/{c}" for c in means[name].missing])
            for language, means in by_language.items()
        ]
        cells[name] = aggregate(Column("", ()), parts).as_json(column=column.title)
    if cells and table == "paper":
        cells["overall"]["counts"] = {lang: _sizes(means) for lang, means in by_language.items()}
    return cells


def _sizes(means: Mapping[str, Aggregate]) -> dict[str, int]:
    return {group: means[group].n for group in TOP}


def _errors(every: Sequence[Tally], rule: str) -> dict[str, Any]:
    """Return the errors of all rows, and of each group that has judged rows."""
    scored = {
        group: [tally for tally in every if tally.category in GROUPS[group] and tally.scored]
        for group in TOP
    }
    groups = {group: errors(tallies, rule) for group, tallies in scored.items() if tallies}
    return {"errors": errors(every, rule), "group_errors": groups}
