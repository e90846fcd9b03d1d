"""Size and family of a model, from the manifest or its name, and curves over sizes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ace_ray.benchmarks.conditions import comparable_sets
from ace_ray.benchmarks.results import Curves, Estimate, ReportedRun

# 7B, 1.5b, 135M, 8x7B; not the 5B of 1.5B, nor the A3B of 30B-A3B.
_SIZE = re.compile(
    r"(?<![A-Za-z0-9.])(?:(\d{1,3})x)?(\d{1,4}(?:\.\d{1,3})?)([BbMm])(?![A-Za-z0-9])"
)


@dataclass(frozen=True, slots=True)
class Size:
    """Billions of parameters, and the source of the number."""

    billions: float
    source: str


def size_of(run: ReportedRun) -> Size | None:
    """Return the manifest's number of parameters, else the size in the model's name, else None.

    None for a checkpoint: all steps of a training have one size."""
    if run.step is not None:
        return None
    if run.parameters is not None:
        return Size(run.parameters / 1e9, "the manifest's number of parameters")
    named = parameters_named(run.model)
    return Size(named / 1e9, "the model's name") if named else None


def curves_by_size(
    runs: Sequence[ReportedRun],
    panels: Mapping[str, Callable[[ReportedRun], Estimate | None]],
    name: str,
    title: str,
) -> Curves | None:
    """Draw a curve per family in each panel (title to a run's figure); None below two known sizes.

    Runs that do not compare never share a curve, nor do complete and incomplete ones."""
    sized = [
        (run, size.billions, number)
        for run, number in zip(runs, comparable_sets(runs), strict=True)
        if (size := size_of(run)) is not None
    ]
    if len({billions for _, billions, _ in sized}) < 2:
        return None
    several = len({number for *_, number in sized}) > 1
    drawn: dict[str, dict[str, list[tuple[float, Estimate]]]] = {panel: {} for panel in panels}
    for run, billions, number in sorted(sized, key=lambda one: one[1]):
        mark = ("*" if run.incomplete else "") + (f" [{number}]" if several else "")
        series = without_size(run.model) + mark
        for panel, figure in panels.items():
            if (estimate := figure(run)) is not None:
                drawn[panel].setdefault(series, []).append((billions, estimate))
    shown = {panel: curves for panel, curves in drawn.items() if curves}
    return Curves(name=name, title=title, panels=shown) if shown else None


def parameters_named(name: str) -> int | None:
    """Return the number of parameters that a model's name or size label states, or None.

    A mixture named 8x7B counts 56: its experts share layers, so it is smaller than that."""
    match = _SIZE.search(name)
    if match is None:
        return None
    experts, number, unit = match.groups()
    return round(int(experts or 1) * float(number) * (1e9 if unit in "bB" else 1e6)) or None


def without_size(name: str) -> str:
    """Return the name without its size: models of one family make one curve."""
    return re.sub(r"([-_ ])[-_ ]+", r"\1", _SIZE.sub("", name, count=1)).strip("-_ ")
