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

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import stdev, variance
from typing import Any

from ace_ray.benchmarks.bfcl.categories import (
    CATEGORIES,
    FORMAT_SENSITIVITY,
    LIVE,
    MEMORY,
    MULTI_TURN,
    SCORING,
    WEB_SEARCH,
)
from ace_ray.benchmarks.bfcl.forms import FORMS, form_of
from ace_ray.benchmarks.results import ScoredRow
from ace_ray.benchmarks.tally import Tally, accuracies, add_costs, counts, errors, lacks, totals
from ace_ray.records import RULE_SETS, Verdict
from ace_ray.stats import Z95, Interval, mean_of_present, weighted_interval, wilson


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
    "multi_turn": Column("Multi-turn", MULTI_TURN),
    "web_search": Column("Web search", WEB_SEARCH),
    "memory": Column("Memory", MEMORY),
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

    ``missing`` names the categories without which there is no value; then ``partial`` is the mean
    of what there is, ``{"value", "interval"}`` or None.
    """
    cells: dict[str, Any] = {}
    for name, column in columns.items():
        parts = [_part(part, cells, categories) for part in column.parts]
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
        cells[name] = {
            "title": column.title,
            "value": value,
            "interval": None if interval is None else list(interval),
            "missing": missing,
        }
        if missing:
            cells[name]["partial"] = _partial(column, parts, categories)
    return cells


def _partial(
    column: Column, parts: Sequence[Mapping[str, Any]], categories: Mapping[str, Accuracy]
) -> dict[str, Any] | None:
    """The mean of what there is, of a column that lacks categories."""
    if column.pooled:
        judged = [categories[part] for part in column.parts if part in categories]
        found = mean_of_present((one.n, one.value, one.interval) for one in judged)
    else:
        weights = column.weights or [1.0] * len(parts)
        there = [
            part if part.get("value") is not None else part.get("partial") or {} for part in parts
        ]
        found = mean_of_present(
            (weight, part.get("value"), part.get("interval"))
            for weight, part in zip(weights, there, strict=True)
        )
    return None if found is None else {"value": found[0], "interval": list(found[1])}


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


ENDINGS = ("finished", "steps", "context", "deadline", "preparation")
"""The last: of memory questions, where a conversation before them was cut and forgotten."""
GOLD = "gold_token_probability"
_ENDED = "ended_"


def with_metrics(
    verdicts: Mapping[str, Verdict],
    *,
    ended: str | None,
    gold_logprobs: Sequence[float] | None = None,
) -> dict[str, Verdict]:
    """``verdicts`` with what the episode is known for.

    ``ended`` is one of `ENDINGS`, None for a single call; ``gold_logprobs`` those of the gold
    calls' tokens, if they were asked for.
    """
    more: dict[str, float] = {}
    if ended in ENDINGS:
        more[f"{_ENDED}{ended}"] = 1
    if gold_logprobs:
        more[GOLD] = math.exp(sum(gold_logprobs) / len(gold_logprobs))
    return {
        rules: replace(verdict, metrics={**verdict.metrics, **more}) if more else verdict
        for rules, verdict in verdicts.items()
    }


class Diagnostics:
    """Collects both while rows pass by."""

    def __init__(self) -> None:
        self._endings: dict[str, Counter[str]] = {}
        self._logs: dict[str, list[float]] = {"single_turn": [], "live": []}

    def through(self, rows: Iterable[ScoredRow]) -> Iterator[ScoredRow]:
        for row in rows:
            for name, value in row.verdicts["official"].metrics.items() if row.verdicts else ():
                if name.startswith(_ENDED):
                    how = name.removeprefix(_ENDED)
                    self._endings.setdefault(row.category, Counter())[how] += 1
                elif name == GOLD and value > 0:
                    where = "live" if row.category in LIVE else "single_turn"
                    self._logs[where].append(math.log(value))
            yield row

    def endings(self) -> dict[str, dict[str, int]]:
        """``{category: {ending: episodes}}``."""
        return {
            category: {how: counts[how] for how in ENDINGS}
            for category, counts in self._endings.items()
        }

    def contamination(self) -> dict[str, Any] | None:
        """The score, its 95 % interval and both perplexities; None where either set is absent."""
        if not all(self._logs.values()):
            return None
        single, live = (_mean(logs) for logs in self._logs.values())
        gap, half = live[0] - single[0], Z95 * math.sqrt(single[1] + live[1])
        return {
            "score": math.exp(gap),
            "interval": [math.exp(gap - half), math.exp(gap + half)],
            "perplexity": {"single_turn": math.exp(-single[0]), "live": math.exp(-live[0])},
            "n": {name: len(logs) for name, logs in self._logs.items()},
        }


def _mean(logs: Sequence[float]) -> tuple[float, float]:
    """The mean, and the square of its standard error."""
    mean = sum(logs) / len(logs)
    spread = sum((value - mean) ** 2 for value in logs)
    return mean, spread / max(len(logs) - 1, 1) / len(logs)


class Sensitivity:
    """Counts the rows of each form."""

    def __init__(self) -> None:
        self._tallies: dict[str, Tally] = {}

    def add(self, row: ScoredRow) -> None:
        form = str(form_of(row.id))
        self._tallies.setdefault(form, Tally(form, RULE_SETS)).add(row)

    def result(self) -> dict[str, Any] | None:
        """``{rules: {"forms": {form: STATS}, "range", "stdev", "variance"}}``; None for no rows.

        The spread is over forms with a judged row, in points; null for fewer than two."""
        if not self._tallies:
            return None
        return {rules: self._of(rules) for rules in RULE_SETS}

    def _of(self, rules: str) -> dict[str, Any]:
        forms: Mapping[str, Any] = {
            str(form): accuracies([self._tallies[str(form)]], rules)
            for form in FORMS
            if str(form) in self._tallies
        }
        points = [100 * f["accuracy"] for f in forms.values() if f["accuracy"] is not None]
        several = len(points) > 1
        return {
            "forms": forms,
            "range": max(points) - min(points) if several else None,
            "stdev": stdev(points) if several else None,
            "variance": variance(points) if several else None,
        }
