"""What a benchmark tells a report: a run's headline numbers, its paper's tables and figures.

The seam between `ace_ray.report`, which reads runs, prints and draws, and the benchmarks, which
know what their numbers mean. A benchmark offers a `Reporting` through the entry-point group
``ace_ray.reports``, under the name of the benchmark. It needs no data: rows hold the verdicts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pkgutil import resolve_name
from typing import Any, Literal, Protocol

from ace_ray.benchmarks.protocol import ScoredRow

GROUP = "ace_ray.reports"
BUILT_IN = {
    "acebench": "ace_ray.benchmarks.acebench.paper.reporting:REPORTING",
    "bfcl": "ace_ray.benchmarks.bfcl.reporting:REPORTING",
    "stabletoolbench": "ace_ray.benchmarks.stabletoolbench.reporting:REPORTING",
}
"""A checkout shipped with `ray job submit --working-dir` has no installed metadata."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A share in 0..1 with its 95 % interval, over ``n`` judged entries or dialogues."""

    value: float
    interval: tuple[float, float]
    n: int


Value = str | int | Estimate | None
"""A cell: text, a count, a share, or None for what the runs do not hold (printed as N/A)."""


@dataclass(frozen=True, slots=True)
class Table:
    """``name`` is the stem of its files; each line has as many cells as ``header``."""

    name: str
    title: str
    header: Sequence[str]
    lines: Sequence[Sequence[Value]]
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class CategoryResult:
    """One number of one category of a run, under every rule set.

    ``measure`` says what is shared out (``accuracy``, ``process accuracy``). ``declared`` and
    ``scored`` count rows. ``shares`` has every rule set; None where the rows allow no number.
    """

    language: str
    category: str
    measure: str
    declared: int
    scored: int
    shares: Mapping[str, Estimate | None]


@dataclass(frozen=True, slots=True)
class StackedBars:
    """One bar per (label, counts); counts are those of ``kinds``, drawn as shares of the bar."""

    name: str
    title: str
    kinds: Sequence[str]
    bars: Sequence[tuple[str, Sequence[int]]]


BandPoint = tuple[float, float, float, float]
"""(x, value, low, high) of a fitted law and its 95 % limits."""


@dataclass(frozen=True, slots=True)
class Curves:
    """Panel -> series -> (x, share) points, by x: billions of parameters, or a training step.

    ``bands``: panel -> series -> a law through the points, which are then not joined.
    """

    name: str
    title: str
    panels: Mapping[str, Mapping[str, Sequence[tuple[float, Estimate]]]]
    axis: Literal["parameters", "step"] = "parameters"
    bands: Mapping[str, Mapping[str, Sequence[BandPoint]]] = field(default_factory=dict)


Figure = StackedBars | Curves


@dataclass(frozen=True, slots=True)
class Paper:
    """Counterparts of a paper's tables and figures; ``notes`` say what could not be drawn."""

    tables: Sequence[Table]
    figures: Sequence[Figure]
    notes: Sequence[str]


@dataclass(frozen=True, slots=True)
class ReportedRun:
    """One benchmark of one run.

    ``label`` is unique in a report, ``model`` the candidate's short name. ``candidate`` holds the
    model's revision and the way it is served and asked, ``conditions`` everything else that can
    move a score (both dotted key -> JSON, `ace_ray.benchmarks.conditions`), ``identity`` the
    benchmark's part of it.
    ``parameters`` is the model's size where the manifest names one. ``summary`` comes from
    `Reporting.summarize`. ``plays`` are the roles of episodes that the candidate plays itself.
    ``headline`` is false when more rows than allowed have no verdict, and
    ``incomplete`` says what is missing, "" for nothing. ``step`` is the training step of a
    checkpoint.
    """

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


class Reporting(Protocol):
    """A benchmark's share in a report."""

    def summarize(self, rows: Iterable[ScoredRow], max_unscored: float) -> dict[str, Any]:
        """As `Benchmark.summarize`, from nothing but the rows."""

    def headline(self, run: ReportedRun, rules: str) -> Mapping[str, Estimate | None]:
        """Column -> number of the comparison of runs; the same columns for every run."""

    def categories(self, run: ReportedRun) -> Sequence[CategoryResult]:
        """Every category of the run, in the benchmark's order."""

    def groups(self) -> Mapping[str, Sequence[str]]:
        """The groups of categories that the benchmark's tables have: name -> categories.

        In print order; the categories of runs are printed in the order in which they come here.
        """

    def task(self, row: ScoredRow) -> str:
        """A key that rows share whose entries are no independent evidence: one task asked twice.

        At least the rows of one dialogue share it, so `own_task` unless there is more to know.
        """

    def paper(self, runs: Sequence[ReportedRun], rules: str) -> Paper:
        """The tables and figures of the benchmark's paper for these runs, the main table first."""


def own_task(row: ScoredRow) -> str:
    """The key of an entry, or dialogue, that shares its task with no other."""
    return f"{row.language}/{row.category}/{row.group}"


def reporting_of(name: str) -> Reporting | None:
    """What the benchmark ``name`` offers, None if nothing."""
    offered = BUILT_IN | {point.name: point.value for point in entry_points(group=GROUP)}
    if name not in offered:
        return None
    found: Reporting = resolve_name(offered[name])
    return found
