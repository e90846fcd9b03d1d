"""Find a model's size and family, in the manifest or in the model's name; build size curves."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ace_ray.benchmarks.comparability import comparable_sets
from ace_ray.benchmarks.results import BenchmarkResult, Curves, Estimate, Paper, Table

# Matches 7B, 1.5b, 135M and 8x7B, but not the 5B in 1.5B or the A3B in 30B-A3B.
_SIZE = re.compile(
    r"(?<![A-Za-z0-9.])(?:(\d{1,3})x)?(\d{1,4}(?:\.\d{1,3})?)([BbMm])(?![A-Za-z0-9])"
)


@dataclass(frozen=True, slots=True)
class Size:
    """Billions of parameters, and the source of the number."""

    billions: float
    source: str


def size_of(run: BenchmarkResult) -> Size | None:
    """Return a model's size: from the manifest, else from the model's name, else None.

    Return None for a checkpoint: checkpoints of one training differ in step, not in size."""
    if run.step is not None:
        return None
    if run.parameters is not None:
        return Size(run.parameters / 1e9, "the manifest's number of parameters")
    parameters = parameter_count(run.model)
    return Size(parameters / 1e9, "the model's name") if parameters else None


def curves_by_size(
    runs: Sequence[BenchmarkResult],
    panels: Mapping[str, Callable[[BenchmarkResult], Estimate | None]],
    name: str,
    title: str,
) -> Curves | None:
    """Build a figure with one curve per model family in each panel.

    ``panels`` maps the title of a panel to a function that returns a run's value. A family has
    separate curves for runs that are not comparable, and for incomplete runs. Return None if fewer
    than two sizes are known."""
    sized = [
        (run, size.billions, number)
        for run, number in zip(runs, comparable_sets(runs), strict=True)
        if (size := size_of(run)) is not None
    ]
    if len({billions for _, billions, _ in sized}) < 2:
        return None
    several = len({number for *_, number in sized}) > 1
    drawn: dict[str, dict[str, list[tuple[float, Estimate]]]] = {panel: {} for panel in panels}
    for run, billions, number in sorted(sized, key=lambda point: point[1]):
        mark = ("*" if run.incomplete else "") + (f" [{number}]" if several else "")
        series = without_size(run.model) + mark
        for panel, figure in panels.items():
            if (estimate := figure(run)) is not None:
                drawn[panel].setdefault(series, []).append((billions, estimate))
    panel_curves = {panel: curves for panel, curves in drawn.items() if curves}
    return Curves(name=name, title=title, panels=panel_curves) if panel_curves else None


def paper_with_curves(tables: Sequence[Table], notes: list[str], curves: Curves | None) -> Paper:
    """Return a paper whose only figure is ``curves``. If that is None, a note says why."""
    lacking = [] if curves else ["no curve over model size: it needs runs of two known sizes"]
    return Paper(tables, [curves] if curves else [], [*notes, *lacking])


def parameter_count(name: str) -> int | None:
    """Return the number of parameters that a model's name or size label contains, or None.

    A mixture named 8x7B counts as 56 billion. Its real number is smaller: experts share layers."""
    match = _SIZE.search(name)
    if match is None:
        return None
    experts, number, unit = match.groups()
    return round(int(experts or 1) * float(number) * (1e9 if unit in "bB" else 1e6)) or None


def without_size(name: str) -> str:
    """Return a model's name without its size, which is the name of its family."""
    return re.sub(r"([-_ ])[-_ ]+", r"\1", _SIZE.sub("", name, count=1)).strip("-_ ")
