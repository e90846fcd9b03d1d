"""A law of scores over model sizes, as Figure 7 of the ACEBench paper has, and how sure it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log10, sqrt

from ace_ray.benchmarks.reporting import BandPoint, Estimate
from ace_ray.report.significance import Fit, binomial_fit
from ace_ray.stats import Interval

FEWEST = 3
"""Sizes that a law needs: two points always lie on one."""
_DRAWN = 60


@dataclass(frozen=True, slots=True)
class Law:
    """``accuracy = logistic(a + b * log10(parameters))`` through ``sizes`` different sizes.

    ``slope`` is b, in log-odds per factor of ten, with its 95 % ``interval``. ``dispersion`` above
    1 says by how much the models scatter around the law beyond what their entries explain.
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
        """The law and its limits over the sizes it was fitted to; it is not drawn beyond them."""
        steps = [i / (_DRAWN - 1) for i in range(_DRAWN)]
        ratio = self.largest / self.smallest
        return [(x, *self.at(x)) for x in (self.smallest * ratio**step for step in steps)]


def law_of(points: Sequence[tuple[float, Estimate]]) -> Law | str:
    """The law through (billions of parameters, accuracy) points, or why there is none."""
    sizes = sorted({size for size, _ in points})
    if len(sizes) < FEWEST:
        return f"{len(sizes)} of the {FEWEST} sizes it needs"
    fit = binomial_fit(
        [log10(size * 1e9) for size, _ in points],
        [found.value * found.n for _, found in points],
        [found.n for _, found in points],
    )
    if fit is None:
        return "the accuracies are all 0, all 1, or jump from one to the other"
    half = fit.quantile * sqrt(fit.covariance[1][1])
    return Law(
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
