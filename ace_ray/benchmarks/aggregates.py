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
    """An aggregate: the weighted mean of ``parts``.

    ``weights``: the shares of the parts. "n" weights by judged entries, and gives the interval of
    the pooled entries. "sqrt n" weights by their square roots. The default weights all parts
    equally.
    ``mean``: arithmetic of an upstream evaluator, if the value must equal upstream's exactly."""

    title: str
    parts: Sequence[str]
    weights: Sequence[float] | Literal["n", "sqrt n"] = ()
    mean: Mean | None = None


Columns = Mapping[str, Column]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """The value of a column or of a category, from ``n`` judged entries.

    If categories are ``missing``, there is no value. ``partial`` is then the mean of the categories
    that are present, if any."""

    value: float | None = None
    interval: Interval | None = None
    n: int = 0
    missing: Sequence[str] = ()
    partial: tuple[float, Interval] | None = None

    def as_json(self, **labels: Any) -> dict[str, Any]:
        """Return the aggregate in the form of ``summary.json``, with further ``labels``."""
        limits = None if self.interval is None else list(self.interval)
        tree = {"value": self.value, "interval": limits, **labels, "missing": list(self.missing)}
        if self.missing:
            mean = self.partial
            tree["partial"] = mean and {"value": mean[0], "interval": list(mean[1])}
        return tree


def to_aggregates(
    categories: Mapping[str, Any], rules: str, max_unscored: float
) -> dict[str, Aggregate]:
    """Return the accuracies of the categories that have few enough unscored rows (`is_judged`)."""
    return {
        name: Aggregate(stats[rules]["accuracy"], stats[rules]["interval"], stats[rules]["n"])
        for name, stats in categories.items()
        if is_judged(stats, max_unscored)
    }


def aggregates(columns: Columns, categories: Mapping[str, Aggregate]) -> dict[str, Aggregate]:
    """Compute all ``columns``. A category without a value is missing."""
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
    """Compute a column from the values, or else the partial values, of its parts."""
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
    """Return the shares of the square roots of ``sizes``."""
    total = sum(map(sqrt, sizes))
    return [sqrt(n) / total if total else 0.0 for n in sizes]


def members(columns: Columns, name: str) -> list[str]:
    """Return the categories of a column; a name that is not a column is a category."""
    if name not in columns:
        return [name]
    return [category for part in columns[name].parts for category in members(columns, part)]


def score_of(cell: Mapping[str, Any], name: str, formula: str, n: int, of: int) -> Score:
    """Build a score from a cell of `Aggregate`. ``of``: number of categories of the formula."""
    mean = estimate({**(cell.get("partial") or cell), "n": n}, VALUE)
    missing = tuple(cell["missing"])
    return Score(name, formula, mean and replace(mean, partial=bool(missing)), missing, of)


def column_score(
    block: Mapping[str, Any],
    rules: str,
    columns: tuple[str, Columns],
    name: str,
    title: str = "",
    languages: int = 1,
) -> Score:
    """Return the score of a column from a ``block`` of a summary. The cells of the columns are
    in ``rules.<rule set>.<formula>``. ``columns``: the pair (name of the formula, its columns)."""
    formula, declared = columns
    categories = members(declared, name)
    cell = block["rules"][rules][formula].get(name)
    if cell is None:  # before the first row
        return Score(title, formula, None, categories)
    present = block["categories"]
    n = sum(present[c][rules]["n"] for c in categories if c in present)
    return score_of(cell, title, formula, n, len(categories) * languages)


def column_estimate(
    run: BenchmarkResult,
    block: Mapping[str, Any] | None,
    rules: str,
    columns: tuple[str, Columns],
    name: str,
) -> Estimate | None:
    """Return a run's value of a column as `column_score`; None if a category is missing.

    The overall number is None if the run has too many unscored rows (``run.headline``)."""
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
    """Build a table with a line for each run."""
    labels, legend = mark_labels(runs)
    lines = [[label, *cells(run)] for label, run in zip(labels, runs, strict=True)]
    return Table(name, title, ["Model", *header], lines, [*legend, *notes])
