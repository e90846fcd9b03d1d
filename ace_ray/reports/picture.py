"""What a report opens with: a benchmark's scores over steps or sizes, or side by side."""

from __future__ import annotations

from collections.abc import Sequence

from ace_ray.benchmarks.conditions import comparable_sets
from ace_ray.benchmarks.results import Curves, Estimate, Figure, Intervals
from ace_ray.benchmarks.sizes import family_of, size_of
from ace_ray.reports.runs import BenchmarkRuns

Numbers = Sequence[Sequence[Estimate | None]]
"""Of each run, its scores."""


def picture(
    holders: BenchmarkRuns, titles: Sequence[str], numbers: Numbers, rules: str
) -> Figure | None:
    """The scores ``numbers``, called ``titles``: against the training step where two runs have one,
    against the size where two are known, else side by side. None where there are none.

    Runs that do not compare never share a curve, nor do complete and incomplete ones."""
    held = [i for i, _ in enumerate(titles) if any(of_run[i] is not None for of_run in numbers)]
    if not held:
        return None
    name, title = f"scores-{holders.benchmark}", f"{holders.benchmark}, {rules} rules"
    steps = [run.step for run in holders.runs]
    sizes = [size_of(run) for run in holders.reported]
    series = _series(holders)
    if len({step for step in steps if step is not None}) > 1:
        places = [None if step is None else float(step) for step in steps]
        panels = _panels(titles, numbers, held, series, places)
        return Curves(name, f"{title}, by training step", panels, axis="step")
    if len({size.billions for size in sizes if size is not None}) > 1:
        billions = [None if size is None else size.billions for size in sizes]
        panels = _panels(titles, numbers, held, series, billions)
        return Curves(name, f"{title}, by model size", panels)
    lines = {
        run.label: [of_run[i] for i in held]
        for run, of_run in zip(holders.reported, numbers, strict=True)
    }
    return Intervals(name, title, [titles[i] for i in held], lines)


def _series(holders: BenchmarkRuns) -> list[str]:
    sets = comparable_sets(holders.reported)
    several = len(set(sets)) > 1
    return [
        f"{run.training or family_of(reported)}{'*' if reported.incomplete else ''}"
        f"{f' [{number}]' if several else ''}"
        for run, reported, number in zip(holders.runs, holders.reported, sets, strict=True)
    ]


def _panels(
    titles: Sequence[str],
    numbers: Numbers,
    held: Sequence[int],
    series: Sequence[str],
    places: Sequence[float | None],
) -> dict[str, dict[str, list[tuple[float, Estimate]]]]:
    panels: dict[str, dict[str, list[tuple[float, Estimate]]]] = {}
    for i in held:
        curves: dict[str, list[tuple[float, Estimate]]] = {}
        for of_run, name, place in zip(numbers, series, places, strict=True):
            share = of_run[i]
            if share is not None and place is not None:
                curves.setdefault(name, []).append((place, share))
        if curves:
            panels[titles[i]] = {name: sorted(c, key=lambda p: p[0]) for name, c in curves.items()}
    return panels
