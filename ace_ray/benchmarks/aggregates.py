"""Compute the aggregates that a benchmark declares as columns, and read them from summaries.

A `Column` names its parts, which are categories or earlier columns, and their weights. Values,
intervals and partial means of all benchmarks are computed here. Example::

    COLUMNS = {"live": Column("Live", ("a", "b"), weights="n"), "all": Column("All", ("live", "c"))}
    aggregates(COLUMNS, judged(summary["categories"], "official", max_unscored=0.0))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any, Literal

from ace_ray.benchmarks.comparability import mark_labels
from ace_ray.benchmarks.results import BenchmarkResult, Estimate, Score, Table, Value
from ace_ray.benchmarks.statistics import VALUE, estimate, is_judged
from ace_ray.util.stats import Interval, mean_of_present, weighted_interval, wilson

# The mean of values; the weights are None if they are equal.
Mean = Callable[[Sequence[float], Sequence[float] | None], float]


@dataclass(frozen=True, slots=True)
class Column:
    """An aggregate: the weighted mean of ``parts``, which are categories or earlier columns.

    ``weights``: a number per part. () weights all parts equally, "n" by the number of judged
    entries, "sqrt n" by its square root. With "n", the interval is that of the pooled entries.
    ``mean``: function for the mean, if the value must equal an upstream evaluator's exactly."""

    title: str
    parts: Sequence[str]
    weights: Sequence[float] | Literal["n", "sqrt n"] = ()
    mean: Mean | None = None


Columns = Mapping[str, Column]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """The value of a column or of a category, from ``n`` judged entries.

    If categories are ``missing``, ``value`` is None. ``partial`` is then the mean of the present
    categories and its interval, or None if there are none."""

    value: float | None = None
    interval: Interval | None = None
    n: int = 0
    missing: Sequence[str] = ()
    partial: tuple[float, Interval] | None = None

    def as_json(self, **labels: Any) -> dict[str, Any]:
        """Return the aggregate as ``summary.json`` has it, with ``labels`` as further keys."""
        limits = None if self.interval is None else list(self.interval)
        tree = {"value": self.value, "interval": limits, **labels, "missing": list(self.missing)}
        if self.missing:
            mean = self.partial
            tree["partial"] = mean and {"value": mean[0], "interval": list(mean[1])}
        return tree


def to_aggregates(
    categories: Mapping[str, Any], rules: str, max_unscored: float
) -> dict[str, Aggregate]:
    """Return the accuracy under ``rules`` of each category. Categories in which a larger share of
    rows than ``max_unscored`` is unscored are left out."""
    return {
        name: Aggregate(stats[rules]["accuracy"], stats[rules]["interval"], stats[rules]["n"])
        for name, stats in categories.items()
        if is_judged(stats, max_unscored)
    }


def aggregates(columns: Columns, categories: Mapping[str, Aggregate]) -> dict[str, Aggregate]:
    """Compute ``columns`` from the values of ``categories``; absent categories count as missing."""
    cells: dict[str, Aggregate] = {}
    for name, column in columns.items():
        parts = []
        for part in column.parts:
            cell = cells.get(part) or categories.get(part) or Aggregate()
            missing = cell.value is None and not cell.missing
            parts.append(Aggregate(missing=[part]) if missing else cell)
        cells[name] = aggregate(column, parts)
    return cells


def aggregate(column: Column, parts: Sequence[Aggregate]) -> Aggregate:
    """Compute a column from the values of its parts, or from their partial means."""
    sizes = [part.n for part in parts]
    n, weights = sum(sizes), _weights(column, sizes)
    missing = [category for part in parts for category in part.missing]
    means = [part.partial or (part.value, part.interval) for part in parts]
    terms = [(weight, *mean) for weight, mean in zip(weights, means, strict=True)]
    if missing or not parts:
        partial = mean_of_present(terms)
        if partial and column.weights == "n":
            partial = partial[0], wilson(partial[0] * n, n) or partial[1]
        return Aggregate(n=n, missing=missing, partial=partial)
    total = sum(weights) if column.weights in ((), "n") else 1.0
    shares = [(weight / total, v, i) for weight, v, i in terms if v is not None and i is not None]
    value = sum(weight * v for weight, v, _ in shares)
    interval = wilson(value * n, n) if column.weights == "n" else weighted_interval(shares)
    if column.mean is not None:
        value = column.mean([v for _, v, _ in shares], (column.weights and weights) or None)
    return Aggregate(value, interval, n)


def _weights(column: Column, sizes: Sequence[int]) -> Sequence[float]:
    if column.weights == "n":
        return sizes
    if column.weights == "sqrt n":
        return root_shares(sizes)
    return column.weights or [1.0] * len(sizes)


def root_shares(sizes: Sequence[int]) -> list[float]:
    """Return weights that are proportional to the square roots of ``sizes`` and sum to 1."""
    total = sum(map(sqrt, sizes))
    return [sqrt(n) / total if total else 0.0 for n in sizes]


def members(columns: Columns, name: str) -> list[str]:
    """Return the categories that the column ``name`` averages; for a category, only itself."""
    if name not in columns:
        return [name]
    return [category for part in columns[name].parts for category in members(columns, part)]


def score_of(cell: Mapping[str, Any], name: str, formula: str, n: int, of: int) -> Score:
    """Build a score from `Aggregate.as_json`. ``of``: number of categories that it averages."""
    mean = estimate({**(cell.get("partial") or cell), "n": n}, VALUE)
    missing = tuple(cell["missing"])
    return Score(name, formula, mean and replace(mean, partial=bool(missing)), missing, of)


# A summary, or its part for a language.
Block = Mapping[str, Any]
# (formula, columns): ``block.rules.<rules>.<formula>`` has the columns' values.
Formula = tuple[str, Columns]


def column_score(
    block: Block, rules: str, columns: Formula, name: str, title: str = "", languages: int = 1
) -> Score:
    """Return the score of the column ``name`` from ``block``."""
    formula, declared = columns
    categories = members(declared, name)
    cell = block["rules"][rules][formula].get(name)
    if cell is None:  # before the first row
        return Score(title, formula, None, categories)
    present = block["categories"]
    n = sum(present[c][rules]["n"] for c in categories if c in present)
    return score_of(cell, title, formula, n, len(categories) * languages)


def complete_estimate(
    run: BenchmarkResult, block: Block | None, rules: str, columns: Formula, name: str
) -> Estimate | None:
    """Return a run's value of a column (see `column_score`), or None if a category is missing.

    The column "overall" is None, too, if the run has too many unscored rows (``run.headline``)."""
    if block is None or (name == "overall" and not run.headline):
        return None
    score = column_score(block, rules, columns, name)
    return None if score.missing else score.estimate


def table_of_runs(
    name: str,
    title: str,
    header: Sequence[str],
    runs: Sequence[BenchmarkResult],
    cells: Callable[[BenchmarkResult], Sequence[Value]],
    notes: Sequence[str] = (),
) -> Table:
    """Build a table with a line for each run: its label, then the values that ``cells`` returns."""
    labels, legend = mark_labels(runs)
    lines = [[label, *cells(run)] for label, run in zip(labels, runs, strict=True)]
    return Table(name, title, ["Model", *header], lines, [*legend, *notes])
