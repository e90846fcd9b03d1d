"""From category accuracies to the leaderboard's columns, of v4 and of v3.

Rules: upstream ``eval_checker/eval_runner_helper.py::generate_leaderboard_csv`` (v4); v3 as its
published columns of January 2025 add up. A group of which a category is missing has no value:
upstream counts it as zero, which would look like a score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ace_ray.stats import Interval, weighted_interval, wilson

_SIMPLE = ("simple_python", "simple_java", "simple_javascript")
_LIVE_AST = ("live_simple", "live_multiple", "live_parallel", "live_parallel_multiple")


@dataclass(frozen=True, slots=True)
class Accuracy:
    """A category that may enter an aggregate: its accuracy, 95 % interval and judged entries."""

    value: float
    interval: Interval
    n: int


@dataclass(frozen=True, slots=True)
class Column:
    """An aggregate: the weighted mean of ``parts``, categories or other columns.

    ``pooled``: weighted by the number of judged entries, and then every part is a category.
    """

    title: str
    parts: Sequence[str]
    weights: Sequence[float] = ()
    pooled: bool = False


V4: Mapping[str, Column] = {
    "simple": Column("Simple", _SIMPLE),
    "non_live": Column("Non-live", ("simple", "multiple", "parallel", "parallel_multiple")),
    "live": Column("Live", _LIVE_AST, pooled=True),
    "irrelevance_mean": Column("Irrelevance", ("irrelevance", "live_irrelevance")),
    "relevance": Column("Relevance", ("live_relevance",)),
    "multi_turn": Column(
        "Multi-turn",
        (
            "multi_turn_base",
            "multi_turn_miss_func",
            "multi_turn_miss_param",
            "multi_turn_long_context",
        ),
    ),
    "web_search": Column("Web search", ("web_search_base", "web_search_no_snippet")),
    "memory": Column("Memory", ("memory_kv", "memory_vector", "memory_rec_sum")),
    "agentic": Column("Agentic", ("web_search", "memory")),
    "overall": Column(
        "Overall v4",
        ("non_live", "live", "irrelevance_mean", "multi_turn", "agentic"),
        (0.1, 0.1, 0.1, 0.3, 0.4),
    ),
}
V3: Mapping[str, Column] = {
    "simple": V4["simple"],
    "non_live": Column(
        "Non-live", ("simple", "multiple", "parallel", "parallel_multiple", "irrelevance")
    ),
    "live": Column("Live", (*_LIVE_AST, "live_irrelevance", "live_relevance"), pooled=True),
    "multi_turn": V4["multi_turn"],
    "overall": Column("Overall v3", ("non_live", "live", "multi_turn")),
}
"""v3 had the irrelevance categories within its groups, and no agentic ones."""


def aggregates(categories: Mapping[str, Accuracy], columns: Mapping[str, Column]) -> dict[str, Any]:
    """``{column: {"title", "value", "interval", "missing"}}``, shares in 0..1.

    ``missing`` names the categories without which there is no value.
    """
    found: dict[str, Any] = {}
    for name, column in columns.items():
        parts = [_part(part, found, categories) for part in column.parts]
        missing = [category for part in parts for category in part["missing"]]
        value = interval = None
        if not missing and column.pooled:
            judged = [categories[part] for part in column.parts]
            total = sum(one.n for one in judged)
            value = sum(one.value * one.n for one in judged) / total
            interval = wilson(value * total, total)
        elif not missing:
            weights = column.weights or [1 / len(parts)] * len(parts)
            pairs = list(zip(weights, parts, strict=True))
            value = sum(weight * part["value"] for weight, part in pairs)
            interval = weighted_interval((w, part["value"], part["interval"]) for w, part in pairs)
        found[name] = {
            "title": column.title,
            "value": value,
            "interval": None if interval is None else list(interval),
            "missing": missing,
        }
    return found


def _part(
    name: str, columns: Mapping[str, Any], categories: Mapping[str, Accuracy]
) -> Mapping[str, Any]:
    if name in columns:
        column: Mapping[str, Any] = columns[name]
        return column
    judged = categories.get(name)
    if judged is None:
        return {"missing": [name]}
    return {"value": judged.value, "interval": judged.interval, "missing": []}
