"""Curves of a sweep: headline numbers against the training step."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from ace_ray.benchmarks.conditions import comparable_sets
from ace_ray.benchmarks.reporting import Curves, Estimate
from ace_ray.report.benchmark_runs import BenchmarkRuns
from ace_ray.report.sweeps import LedgerLine

_Points = list[tuple[float, Estimate]]


def step_curves(
    held: BenchmarkRuns, line_of: Mapping[str, LedgerLine], rules: str
) -> Curves | None:
    """A panel per headline number, a curve per training run; None without two steps of one.

    A training run is known by the folder or prefix that its checkpoints lie in. Runs that do not
    compare never share a curve. ``line_of`` finds a run's line in the ledger by its label.
    """
    panels: dict[str, dict[str, _Points]] = {}
    sets = comparable_sets(held.reported)
    several = len(set(sets)) > 1
    steps: dict[str, set[int]] = {}
    for run, number in zip(held.reported, sets, strict=True):
        line = line_of.get(run.label)
        if line is None or line.step is None:
            continue
        series = _training(line.source) + (f" [{number}]" if several else "")
        steps.setdefault(series, set()).add(line.step)
        for column, found in held.reporting.headline(run, rules).items():
            if found is not None:
                points = panels.setdefault(column, {}).setdefault(series, [])
                points.append((line.step, found))
    if not panels or max(map(len, steps.values())) < 2:
        return None
    for curves in panels.values():
        for points in curves.values():
            points.sort(key=lambda point: point[0])
    return Curves(
        name=f"steps-{held.benchmark}-{rules}",
        title=f"{held.benchmark} against the training step ({rules} rules)",
        panels=panels,
        axis="step",
    )


def _training(source: str) -> str:
    path = PurePosixPath(source)
    return path.parent.name or str(path)
