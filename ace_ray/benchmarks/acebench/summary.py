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

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import sqrt
from operator import add
from typing import Any

from ace_ray.benchmarks.acebench.check.agent import ENDINGS
from ace_ray.benchmarks.acebench.options import (
    AGENT,
    ATOM,
    CATEGORIES,
    LANGUAGES,
    MULTI_TURN,
    SINGLE_TURN,
    SPECIAL,
)
from ace_ray.benchmarks.tally import Tally, accuracies, counts, errors, lacks, totals
from ace_ray.types import RULE_SETS, ResultRow
from ace_ray.util.stats import Interval, mean_of_present, weighted_interval

# The order matters: the official evaluator adds floats in this order before it rounds the sum.
_NORMAL = (*SINGLE_TURN, *MULTI_TURN, "normal_similar_api", "normal_preference", *ATOM)

GROUPS: dict[str, tuple[str, ...]] = {
    "atom": ATOM,
    "single_turn": SINGLE_TURN,
    "multi_turn": MULTI_TURN,
    "similar_api": ("normal_similar_api",),
    "preference": ("normal_preference",),
    "normal": _NORMAL,
    "special": SPECIAL,
    "agent": AGENT,
}
TOP = ("normal", "special", "agent")
WORKBOOK_COLUMNS = {
    "atom": "atom",
    "single_turn": "single_turn",
    "multi_turn": "multiple_turn",
    "similar_api": "similar_api",
    "preference": "profile",
    "normal": "normal_summary",
    "special": "special_summary",
    "agent": "agent_summary",
    "overall": "Summary",
}
PAPER_COLUMNS = {
    "atom": "Atom",
    "single_turn": "Single-Turn",
    "multi_turn": "Multi-Turn",
    "similar_api": "Similar API",
    "preference": "Preference",
    "normal": "Summary",
    "special": "Special",
    "agent": "Agent",
    "overall": "Overall",
}
# The groups are in the order in which the official evaluator adds them.
WORKBOOK_WEIGHTS = {"special": 0.2676, "normal": 0.578, "agent": 0.1545}


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Accuracy of a category, with its 95 % interval and its number of judged units."""

    value: float
    interval: Interval
    n: int


def workbook(categories: Mapping[str, Accuracy]) -> dict[str, Any]:
    """Return the columns of the official result workbook, rounded to 3 digits as upstream does.

    Category accuracies are rounded before they are averaged, except in special categories."""

    def rounded(category: str) -> float:
        value = categories[category].value
        return value if category in SPECIAL else round(value, 3)

    cells = _groups(categories, WORKBOOK_COLUMNS, rounded, lambda value: round(value, 3))
    cells["overall"] = _overall(cells, WORKBOOK_WEIGHTS, WORKBOOK_COLUMNS, lambda v: round(v, 3))
    return cells


def paper(categories: Mapping[str, Accuracy]) -> dict[str, Any]:
    """Return the columns of the paper's Table 2, unrounded, with the weights of Appendix E.

    The weights depend on the sample sizes: the numbers of judged entries, or of judged dialogues in
    multi-turn categories. The overall column has the sizes as ``counts``. The official sizes (700,
    150 and 50) give `WORKBOOK_WEIGHTS`."""
    counts = {
        group: sum(categories[c].n for c in GROUPS[group] if c in categories)
        for group in ("normal", "special", "agent")
    }
    total = sum(map(sqrt, counts.values()))
    # The paper misprints the denominator of the agent weight (nested roots): weights sum to 1.
    weights = {group: sqrt(n) / total if total else 0.0 for group, n in counts.items()}
    cells = _groups(categories, PAPER_COLUMNS, lambda c: categories[c].value, lambda value: value)
    overall = _overall(cells, weights, PAPER_COLUMNS, lambda value: value)
    cells["overall"] = overall | {"counts": counts, "weights": weights}
    return cells


def mean_over_languages(by_language: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the unweighted mean over languages of each aggregate, as in the paper's Table 2."""
    blocks = list(by_language.values())
    combined: dict[str, Any] = {}
    for name, first in blocks[0].items() if blocks else ():
        missing = [
            f"{lang}/{c}" for lang, block in by_language.items() for c in block[name]["missing"]
        ]
        cells = [block[name] for block in blocks]
        parts = [(1 / len(cells), cell["value"], cell["interval"]) for cell in cells]
        combined[name] = {
            "value": None if missing else sum(cell["value"] for cell in cells) / len(cells),
            "interval": None if missing else list(weighted_interval(parts)),
            "column": first["column"],
            "missing": missing,
        }
        if missing:
            combined[name]["partial"] = _partial(_known(1.0, cell) for cell in cells)
        if "counts" in first:
            combined[name]["counts"] = {
                lang: block[name]["counts"] for lang, block in by_language.items()
            }
    return combined


def _groups(
    categories: Mapping[str, Accuracy],
    columns: Mapping[str, str],
    value_of: Callable[[str], float],
    finish: Callable[[float], float],
) -> dict[str, Any]:
    cells: dict[str, Any] = {}
    for name, members in GROUPS.items():
        missing = [category for category in members if category not in categories]
        value = interval = None
        if not missing:
            value = finish(_add(map(value_of, members)) / len(members))
            interval = _interval(
                [(1 / len(members), categories[c].value, categories[c].interval) for c in members]
            )
        cells[name] = _cell(value, interval, columns[name], missing)
        if missing:
            there = [categories[c] for c in members if c in categories]
            cells[name]["partial"] = _partial((1.0, one.value, one.interval) for one in there)
    return cells


def _overall(
    groups: Mapping[str, Mapping[str, Any]],
    weights: Mapping[str, float],
    columns: Mapping[str, str],
    finish: Callable[[float], float],
) -> dict[str, Any]:
    missing = [c for group in ("normal", "special", "agent") for c in groups[group]["missing"]]
    if missing:
        cell = _cell(None, None, columns["overall"], missing)
        return cell | {"partial": _partial(_known(weights[name], groups[name]) for name in weights)}
    cells = [
        (weight, groups[group]["value"], groups[group]["interval"])
        for group, weight in weights.items()
    ]
    value = finish(_add(weight * value for weight, value, _ in cells))
    return _cell(value, _interval(cells), columns["overall"], missing)


def _known(weight: float, cell: Mapping[str, Any]) -> tuple[float, Any, Any]:
    """Return (``weight``, value, interval) of a cell; of its partial mean if it has no value."""
    there = cell if cell["value"] is not None else cell.get("partial") or {}
    return weight, there.get("value"), there.get("interval")


def _partial(parts: Iterable[tuple[float, Any, Any]]) -> dict[str, Any] | None:
    """Return the weighted mean of the ``parts`` that have a value; None if no part has one."""
    found = mean_of_present(parts)
    return None if found is None else {"value": found[0], "interval": list(found[1])}


def _add(values: Iterable[float]) -> float:
    # Since Python 3.12, sum() compensates rounding errors, unlike the official evaluator.
    return reduce(add, values, 0.0)


def _interval(parts: Sequence[tuple[float, float, Interval]]) -> list[float]:
    return list(weighted_interval(parts))


def _cell(
    value: float | None, interval: list[float] | None, column: str, missing: list[str]
) -> dict[str, Any]:
    return {"value": value, "interval": interval, "column": column, "missing": missing}


def summarize(rows: Iterable[ResultRow], *, max_unscored: float = 0.0) -> dict[str, Any]:
    """Summarize ``rows`` in one pass. Each (id, sample) must occur only once.

    A category with a larger share of unscored rows than ``max_unscored`` keeps its accuracy over
    the scored rows, but is left out of aggregates.
    """
    tallies: dict[tuple[str, str], Tally] = {}
    for row in rows:
        key = row.language, row.category
        if key not in tallies:
            multi_turn = row.category in MULTI_TURN
            tallies[key] = Tally(row.category, RULE_SETS, multi_turn=multi_turn)
        tallies[key].add(row)
    by_language = {
        language: {c: tallies[language, c] for c in CATEGORIES if (language, c) in tallies}
        for language in LANGUAGES
        if any(language == key[0] for key in tallies)
    }
    blocks, incomplete = {}, []
    for language, by_category in by_language.items():
        block, usable = _block([by_category]), {}
        for category, tally in by_category.items():
            unscored = tally.declared - tally.scored
            if unscored > max_unscored * tally.declared:
                incomplete.append(lacks(f"{language}/{tally.category}", tally))
            else:
                usable[category] = block["categories"][category]
        blocks[language] = block | {"rules": _rules(usable, list(by_category.values()))}
    combined = _block(list(by_language.values()))
    combined["rules"] = _combined_rules(blocks, list(tallies.values()))
    return {
        "languages": blocks,
        "combined": combined,
        "complete": not incomplete,
        "incomplete": incomplete,
        "max_unscored": max_unscored,
    }


def _block(languages: Sequence[Mapping[str, Tally]]) -> dict[str, Any]:
    every = [tally for tallies in languages for tally in tallies.values()]
    categories = {}
    for name in CATEGORIES:
        tallies = [by_category[name] for by_category in languages if name in by_category]
        if not tallies:
            continue
        block = counts(tallies)
        if tallies[0].multi_turn:
            block["dialogues"] = sum(tally.dialogues_declared() for tally in tallies)
        categories[name] = block | {rule: accuracies(tallies, rule) for rule in RULE_SETS}
    return {"counts": counts(every), "totals": totals(every), "categories": categories}


def _rules(usable: Mapping[str, Any], every: Sequence[Tally]) -> dict[str, Any]:
    rules = {}
    for rule in RULE_SETS:
        judged = {
            category: Accuracy(stats[rule]["accuracy"], stats[rule]["interval"], stats[rule]["n"])
            for category, stats in usable.items()
            if stats[rule]["accuracy"] is not None
        }
        rules[rule] = {
            "workbook": workbook(judged),
            "paper": paper(judged),
            **_errors(every, rule),
        }
    return rules


def _errors(every: Sequence[Tally], rule: str) -> dict[str, Any]:
    """Return the errors of all rows, and of each group that has judged rows."""
    judged = {
        group: [tally for tally in every if tally.category in GROUPS[group] and tally.scored]
        for group in TOP
    }
    groups = {group: errors(tallies, rule) for group, tallies in judged.items() if tallies}
    return {"errors": errors(every, rule), "group_errors": groups}


def _combined_rules(blocks: Mapping[str, Any], every: Sequence[Tally]) -> dict[str, Any]:
    return {
        rule: {
            table: mean_over_languages(
                {language: block["rules"][rule][table] for language, block in blocks.items()}
            )
            for table in ("workbook", "paper")
        }
        | _errors(every, rule)
        for rule in RULE_SETS
    }


class Endings:
    """Count the endings of agent episodes by category, in the rows iterated with `through`."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {}

    def through(self, rows: Iterable[ResultRow]) -> Iterator[ResultRow]:
        for row in rows:
            for name in row.verdicts["official"].metrics if "official" in row.verdicts else ():
                kind, _, how = name.partition("_")
                if kind == "ended":
                    self._counts.setdefault(row.category, Counter())[how] += 1
            yield row

    def result(self) -> dict[str, dict[str, int]]:
        """Return ``{category: {ending: episodes}}`` of the agent categories that ran."""
        return {
            category: {how: self._counts[category][how] for how in ENDINGS}
            for category in AGENT
            if category in self._counts
        }

    def table(self) -> dict[str, Any]:
        """Return the counts of `result` as a table."""
        return {
            "title": "how agent episodes ended",
            "header": ["category", *ENDINGS],
            "lines": [
                [category, *map(str, endings.values())]
                for category, endings in self.result().items()
            ],
        }
