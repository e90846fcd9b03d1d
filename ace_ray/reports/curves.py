"""Curves of a comparison: scores against training steps, and against model sizes with a fit.

The fit over sizes is the scaling law that Figure 7 of the ACEBench paper has, with its interval.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, log10, sqrt

from ace_ray.benchmarks.results import BandPoint, Curves, Estimate
from ace_ray.benchmarks.sizes import family_of, size_of
from ace_ray.reports.compared_runs import ComparedRun, reported_as
from ace_ray.reports.paired import PairedData
from ace_ray.reports.significance import Fit, binomial_fit
from ace_ray.stats import Interval

FEWEST = 3
"""Sizes that a scaling fit needs: two points always lie on one."""
_BAND_POINTS = 60

Place = tuple[str, float]
"""(series, x) of a run."""
Panels = dict[str, dict[str, list[tuple[float, Estimate]]]]


@dataclass(frozen=True, slots=True)
class ScalingFit:
    """``accuracy = logistic(a + b * log10(parameters))`` through ``sizes`` different sizes.

    ``slope`` is b, in log-odds per factor of ten, with its 95 % ``interval``. ``dispersion`` above
    1 says by how much the models scatter around the curve beyond what their entries explain.
    ``smallest`` and ``largest`` are in billions of parameters.
    """

    slope: float
    interval: Interval
    dispersion: float
    sizes: int
    smallest: float
    largest: float
    fit: Fit

    def at(self, billions: float) -> tuple[float, float, float]:
        """The expected accuracy of a model of this size, and its 95 % limits: value, low, high."""
        x = log10(billions * 1e9) - self.fit.centre
        (a, ab), (_, b) = self.fit.covariance
        half = self.fit.quantile * sqrt(max(0.0, a + 2 * x * ab + x * x * b))
        middle = self.fit.intercept + self.fit.slope * x
        return logistic(middle), logistic(middle - half), logistic(middle + half)

    def band(self) -> list[BandPoint]:
        """The curve and its limits over the sizes it was fitted to; it is not drawn beyond them."""
        steps = [i / (_BAND_POINTS - 1) for i in range(_BAND_POINTS)]
        ratio = self.largest / self.smallest
        return [(x, *self.at(x)) for x in (self.smallest * ratio**step for step in steps)]


def scaling_fit(points: Sequence[tuple[float, Estimate]]) -> ScalingFit | str:
    """The fit through (billions of parameters, accuracy) points, or why there is none."""
    sizes = sorted({size for size, _ in points})
    if len(sizes) < FEWEST:
        return f"{len(sizes)} of the {FEWEST} sizes it needs"
    fit = binomial_fit(
        [log10(size * 1e9) for size, _ in points],
        [score.value * score.n for _, score in points],
        [score.n for _, score in points],
    )
    if fit is None:
        return "the accuracies are all 0, all 1, or jump from one to the other"
    half = fit.quantile * sqrt(fit.covariance[1][1])
    return ScalingFit(
        slope=fit.slope,
        interval=(fit.slope - half, fit.slope + half),
        dispersion=fit.dispersion,
        sizes=len(sizes),
        smallest=sizes[0],
        largest=sizes[-1],
        fit=fit,
    )


def logistic(x: float) -> float:
    # Of the two forms the one that cannot overflow.
    return 1 / (1 + exp(-x)) if x >= 0 else exp(x) / (1 + exp(x))


@dataclass(frozen=True)
class PlottedCurves:
    """A figure, the fits in it by (group, series), and why other fits are not there."""

    figure: Curves | None = None
    fits: Mapping[tuple[str, str], ScalingFit] = field(default_factory=dict)
    notes: Sequence[str] = ()


def step_curves(data: PairedData, runs: Sequence[ComparedRun], rules: str) -> PlottedCurves:
    """Accuracy against training step; no figure unless two steps of one training are there."""
    places = {c.label: (c.series, float(c.step)) for c in runs if c.step is not None}
    if not _two_in_a_series(places.values()):
        return PlottedCurves()
    title = f"{data.benchmark}: accuracy against training step ({rules} rules)"
    panels = _panels(data, places, rules)
    return PlottedCurves(Curves(f"steps-{data.benchmark}-{rules}", title, panels, axis="step"))


def size_curves(data: PairedData, runs: Sequence[ComparedRun], rules: str) -> PlottedCurves:
    """Accuracy against parameters, by family, with a fit through three sizes or more."""
    places: dict[str, Place] = {}
    for reported in reported_as(runs, data.benchmark):
        if (size := size_of(reported)) is not None:
            places[reported.label] = (family_of(reported), size.billions)
    if not _two_in_a_series(places.values()):
        return PlottedCurves()
    panels = _panels(data, places, rules)
    fits: dict[tuple[str, str], ScalingFit] = {}
    bands: dict[str, dict[str, list[BandPoint]]] = {}
    notes = []
    for group, curves in panels.items():
        for series, points in curves.items():
            fit = scaling_fit(points)
            if isinstance(fit, str):
                notes.append(f"no law of {series} on {group} ({rules} rules): {fit}")
            else:
                fits[group, series] = fit
                bands.setdefault(group, {})[series] = fit.band()
    title = f"{data.benchmark}: accuracy against model size ({rules} rules)"
    name = f"sizes-{data.benchmark}-{rules}"
    return PlottedCurves(Curves(name, title, panels, bands=bands), fits, notes)


def _two_in_a_series(places: Iterable[Place]) -> bool:
    series: dict[str, set[float]] = {}
    for name, x in places:
        series.setdefault(name, set()).add(x)
    return any(len(xs) > 1 for xs in series.values())


def _panels(data: PairedData, places: Mapping[str, Place], rules: str) -> Panels:
    """Group -> series -> points by x, of the runs that have a place."""
    panels: Panels = {}
    for group in data.main_groups():
        for number, label in enumerate(data.labels):
            score = data.score(number, group, rules)
            if label in places and score is not None:
                series, x = places[label]
                panels.setdefault(group.name, {}).setdefault(series, []).append((x, score))
    for curves in panels.values():
        for points in curves.values():
            points.sort(key=lambda point: point[0])
    return panels
