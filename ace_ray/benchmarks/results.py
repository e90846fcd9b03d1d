"""Records of results: rows, estimates, scores, tables, figures, reported runs.

They do not need a benchmark's data, since rows contain the verdicts. Benchmarks compute the numbers
(`ace_ray.benchmarks.base.Benchmark`). `ace_ray.reports` reads runs and shows the numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Estimate:
    """A share in 0..1 with its 95 % interval, computed from ``n`` judged entries or dialogues.

    ``partial`` is true if categories are missing."""

    value: float
    interval: tuple[float, float]
    n: int
    partial: bool = False


@dataclass(frozen=True, slots=True)
class Score:
    """A score of a run. ``formula`` names the way in which categories are averaged ("pooled").

    ``missing`` lists the averaged categories that the run lacks. If there are any, ``estimate`` is
    None, or the mean of the other categories, which is marked as partial."""

    name: str
    formula: str
    estimate: Estimate | None
    missing: Sequence[str] = ()
    of: int = 0
    """Number of categories that the formula averages; 0 if the number is not fixed."""

    @property
    def key(self) -> tuple[str, str]:
        """Return a key that is unique among the scores of a benchmark."""
        return self.name, self.formula

    @classmethod
    def of_json(cls, tree: Mapping[str, Any]) -> Score:
        """Read the score that `as_json` wrote."""
        estimate = None
        if tree["value"] is not None and tree["interval"]:
            low, high = tree["interval"]
            estimate = Estimate(tree["value"], (low, high), tree["n"], tree["partial"])
        return cls(
            tree["name"], tree["formula"], estimate, tuple(tree["missing"]), tree.get("of", 0)
        )

    def as_json(self) -> dict[str, Any]:
        """Return the score in the form of ``summary.json`` (docs/results.md)."""
        estimate = self.estimate
        return {
            "name": self.name,
            "formula": self.formula,
            "value": estimate.value if estimate else None,
            "interval": list(estimate.interval) if estimate else None,
            "n": estimate.n if estimate else 0,
            "partial": estimate is not None and estimate.partial,
            "missing": list(self.missing),
            "of": self.of,
        }


# A table cell: text, a count, a share, or None for a value that the runs lack (printed as N/A).
Value = str | int | Estimate | None


@dataclass(frozen=True, slots=True)
class Table:
    """A table. ``name`` is the stem of its file names. Lines have as many cells as ``header``."""

    name: str
    title: str
    header: Sequence[str]
    lines: Sequence[Sequence[Value]]
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class CategoryResult:
    """One measure of one category of a run, under every rule set.

    ``measure`` is its name (``accuracy``, ``process accuracy``). ``declared`` and ``scored`` are
    numbers of rows. ``shares`` has a value for each rule set, None if too few rows are scored."""

    language: str
    category: str
    measure: str
    declared: int
    scored: int
    shares: Mapping[str, Estimate | None]


@dataclass(frozen=True, slots=True)
class Curves:
    """A figure. ``panels`` maps the title of a panel to its curves, and the name of a curve to its
    (x, share) points, sorted by x. x is billions of parameters, a step, or the cost or the
    completion tokens of an entry (``axis``)."""

    name: str
    title: str
    panels: Mapping[str, Mapping[str, Sequence[tuple[float, Estimate]]]]
    axis: Literal["parameters", "step", "cost", "tokens"] = "parameters"


@dataclass(frozen=True, slots=True)
class Bars:
    """A figure with a bar for each model, divided into ``kinds``. ``bars`` maps the label of a
    model to its number of each kind. If ``by_count``, the lengths of bars show their sums."""

    name: str
    title: str
    kinds: Sequence[str]
    bars: Mapping[str, Sequence[int]]
    by_count: bool = False


@dataclass(frozen=True, slots=True)
class Paper:
    """The tables and figures of a benchmark's paper, made from the user's runs. ``notes`` name the
    figures that are missing."""

    tables: Sequence[Table]
    figures: Sequence[Curves | Bars]
    notes: Sequence[str]


@dataclass(frozen=True, slots=True)
class BenchmarkResult:
    """The results of one benchmark in one run.

    ``label`` is unique in a report. ``model`` is the short name of the candidate, the evaluated
    model. ``candidate`` has the model's revision and how it is served and prompted. ``conditions``
    has everything else that can change a score. Both map dotted keys to JSON
    (`ace_ray.benchmarks.comparability`). ``identity`` is the benchmark's part of the conditions.
    ``parameters`` is the model's size, if the manifest has it. ``summary`` comes from
    `Benchmark.statistics`. ``plays`` lists the roles that the candidate plays itself. ``headline``
    is false if more rows than allowed lack a verdict. ``incomplete`` describes the missing rows, ""
    if there are none. ``step`` is the training step of a checkpoint. ``limited`` is true if the run
    declares only a part of the entries, ``partial`` if it evaluated only named entries."""

    label: str
    model: str
    candidate: Mapping[str, str]
    identity: Mapping[str, Any]
    conditions: Mapping[str, str]
    parameters: int | None
    summary: Mapping[str, Any]
    plays: Sequence[str]
    headline: bool
    incomplete: str
    step: int | None = None
    limited: bool = False
    partial: bool = False
