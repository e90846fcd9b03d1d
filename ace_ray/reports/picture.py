"""The figure that a report begins with: a benchmark's scores over training steps, or over sizes."""

from __future__ import annotations

from collections.abc import Sequence

from ace_ray.benchmarks.conditions import comparable_sets
from ace_ray.benchmarks.results import Curves, Estimate
from ace_ray.benchmarks.sizes import family_of, size_of
from ace_ray.reports.runs import BenchmarkRuns

Numbers = Sequence[Sequence[Estimate | None]]
"""The scores of each run."""


def picture(
    holders: BenchmarkRuns, titles: Sequence[str], numbers: Numbers, rules: str
) -> Curves | None:
    """Draw the scores ``numbers``, called ``titles``, against the training step or the size; None
    where no two runs differ in either.

    Runs that do not compare never share a curve, nor do complete and incomplete ones."""
    sizes = [size_of(run) for run in holders.reported]
    steps = [None if run.step is None else float(run.step) for run in holders.runs]
    places, by_step = steps, True
    if len(set(steps) - {None}) < 2:
        places, by_step = [size.billions if size else None for size in sizes], False
    if len(set(places) - {None}) < 2:
        return None
    panels: dict[str, dict[str, list[tuple[float, Estimate]]]] = {}
    for of_run, name, place in zip(numbers, _series(holders), places, strict=True):
        for title, share in zip(titles, of_run, strict=True):
            if share is not None and place is not None:
                panels.setdefault(title, {}).setdefault(name, []).append((place, share))
    if not panels:
        return None
    for panel in panels.values():
        for curve in panel.values():
            curve.sort(key=lambda point: point[0])
    return Curves(
        f"scores-{holders.benchmark}",
        f"{holders.benchmark}, {rules} rules, by {'training step' if by_step else 'model size'}",
        panels,
        axis="step" if by_step else "parameters",
    )


def _series(holders: BenchmarkRuns) -> list[str]:
    sets = comparable_sets(holders.reported)
    several = len(set(sets)) > 1
    return [
        f"{run.training or family_of(reported)}{'*' if reported.incomplete else ''}"
        f"{f' [{number}]' if several else ''}"
        for run, reported, number in zip(holders.runs, holders.reported, sets, strict=True)
    ]
