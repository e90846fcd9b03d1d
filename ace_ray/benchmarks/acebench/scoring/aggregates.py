"""From category accuracies to the tables' columns: the official workbook's and the paper's.

Both average categories without weights; they differ in rounding and in the overall number. A group
of which a category is missing has no value: a mean that counts it as zero would look like a score.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import sqrt
from operator import add
from typing import Any

from ace_ray.benchmarks.acebench.categories import AGENT, ATOM, MULTI_TURN, SINGLE_TURN, SPECIAL
from ace_ray.stats import Interval, weighted_interval

# The order of the sums matters: the official evaluator adds floats before it rounds, in this order.
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
# In the order in which the official evaluator adds the terms.
WORKBOOK_WEIGHTS = {"special": 0.2676, "normal": 0.578, "agent": 0.1545}


@dataclass(frozen=True, slots=True)
class Accuracy:
    """A category that may enter an aggregate: its accuracy, 95 % interval and judged units."""

    value: float
    interval: Interval
    n: int


def workbook(categories: Mapping[str, Accuracy]) -> dict[str, Any]:
    """The columns of the official result workbook, rounded to 3 digits where it rounds.

    Category accuracies are rounded before they are averaged, except those of special categories.
    """

    def rounded(category: str) -> float:
        value = categories[category].value
        return value if category in SPECIAL else round(value, 3)

    found = _groups(categories, WORKBOOK_COLUMNS, rounded, lambda value: round(value, 3))
    found["overall"] = _overall(found, WORKBOOK_WEIGHTS, WORKBOOK_COLUMNS, lambda v: round(v, 3))
    return found


def paper(categories: Mapping[str, Accuracy]) -> dict[str, Any]:
    """The columns of the paper's Table 2, unrounded; overall weighted by Appendix E.

    ``counts`` holds the sample sizes the weights come from: judged entries, and dialogues in the
    multi-turn categories (their official numbers, 700, 150 and 50, give the official constants).
    """
    counts = {
        group: sum(categories[c].n for c in GROUPS[group] if c in categories)
        for group in ("normal", "special", "agent")
    }
    total = sum(map(sqrt, counts.values()))
    # The printed denominator of the agent weight nests its roots, a misprint: weights sum to 1.
    weights = {group: sqrt(n) / total if total else 0.0 for group, n in counts.items()}
    found = _groups(categories, PAPER_COLUMNS, lambda c: categories[c].value, lambda value: value)
    overall = _overall(found, weights, PAPER_COLUMNS, lambda value: value)
    found["overall"] = overall | {"counts": counts, "weights": weights}
    return found


def mean_over_languages(found: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Aggregates of several languages: the plain mean of each, as in the paper's Table 2."""
    blocks = list(found.values())
    combined: dict[str, Any] = {}
    for name, first in blocks[0].items() if blocks else ():
        missing = [f"{lang}/{c}" for lang, block in found.items() for c in block[name]["missing"]]
        cells = [block[name] for block in blocks]
        parts = [(1 / len(cells), cell["value"], cell["interval"]) for cell in cells]
        combined[name] = {
            "value": None if missing else sum(cell["value"] for cell in cells) / len(cells),
            "interval": None if missing else list(weighted_interval(parts)),
            "column": first["column"],
            "missing": missing,
        }
        if "counts" in first:
            combined[name]["counts"] = {
                lang: block[name]["counts"] for lang, block in found.items()
            }
    return combined


def _groups(
    categories: Mapping[str, Accuracy],
    columns: Mapping[str, str],
    value_of: Callable[[str], float],
    finish: Callable[[float], float],
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, members in GROUPS.items():
        missing = [category for category in members if category not in categories]
        value = interval = None
        if not missing:
            value = finish(_add(map(value_of, members)) / len(members))
            interval = _interval(
                [(1 / len(members), categories[c].value, categories[c].interval) for c in members]
            )
        found[name] = _cell(value, interval, columns[name], missing)
    return found


def _overall(
    found: Mapping[str, Mapping[str, Any]],
    weights: Mapping[str, float],
    columns: Mapping[str, str],
    finish: Callable[[float], float],
) -> dict[str, Any]:
    missing = [c for group in ("normal", "special", "agent") for c in found[group]["missing"]]
    if missing:
        return _cell(None, None, columns["overall"], missing)
    cells = [
        (weight, found[group]["value"], found[group]["interval"])
        for group, weight in weights.items()
    ]
    value = finish(_add(weight * value for weight, value, _ in cells))
    return _cell(value, _interval(cells), columns["overall"], missing)


def _add(values: Iterable[float]) -> float:
    # Not sum(): it compensates rounding errors since Python 3.12, the official evaluator does not.
    return reduce(add, values, 0.0)


def _interval(parts: Sequence[tuple[float, float, Interval]]) -> list[float]:
    return list(weighted_interval(parts))


def _cell(
    value: float | None, interval: list[float] | None, column: str, missing: list[str]
) -> dict[str, Any]:
    return {"value": value, "interval": interval, "column": column, "missing": missing}
