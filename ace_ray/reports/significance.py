"""Compute tests and intervals for comparisons. Only this module imports scipy.

A cluster contains the units of one task (`ace_ray.reports.paired`). Clusters are independent.
``sizes`` has the number of units of each cluster. ``moves`` has the difference of each cluster: the
sum of the other run's values minus the sum of the base run's values. Formulas: docs/statistics.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, sqrt

import numpy as np
from scipy import special, stats

from ace_ray.util.stats import Interval

ALPHA = 0.05
POWER = 0.8
MOST_ENUMERATED = 12  # maximum moves for which every pattern of signs is tried
MCNEMAR, SIGN_FLIP, CLUSTERED = "exact McNemar", "exact sign flip", "clustered McNemar"
_SAME = 1e-9


def difference_test(moves: np.ndarray) -> tuple[float, str]:
    """Return the two-sided p-value of "the runs are equal", and the name of the test.

    If all moves that are not 0 have the same size, the test is the exact McNemar test. Otherwise,
    for at most `MOST_ENUMERATED` moves, it is the exact sign-flip test over all patterns of signs.
    For more moves, it is the clustered McNemar test (Obuchowski 1998, Durkalski et al. 2003). Its
    continuity correction is the smallest move."""
    moved = moves[np.abs(moves) > _SAME]
    sizes = np.abs(moved)
    if not len(moved):
        return 1.0, MCNEMAR
    if np.ptp(sizes) <= _SAME:
        return float(stats.binomtest(int(np.sum(moved > 0)), len(moved)).pvalue), MCNEMAR
    if len(moved) <= MOST_ENUMERATED:
        result = stats.permutation_test(
            (moved,), np.sum, permutation_type="samples", vectorized=True, n_resamples=np.inf
        )
        return float(result.pvalue), SIGN_FLIP
    z = max(0.0, abs(moved.sum()) - sizes.min()) / sqrt(float(np.sum(moved**2)))
    return float(2 * stats.norm.sf(z)), CLUSTERED


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values by the method of Holm (1979), which limits the family-wise error rate."""
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted


@dataclass(frozen=True, slots=True)
class Share:
    """A share of units, 0..1. ``units``: number of independent units with the variance of this
    share. ``clusters``: number of clusters. ``mixed``: number of clusters that contribute to the
    share, or of clusters that do not contribute all their units, whichever is smaller."""

    value: float
    units: float
    clusters: float
    mixed: int

    def __str__(self) -> str:
        low, high = self.interval()
        return f"{100 * self.value:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"

    def interval(self, alpha: float = ALPHA, growth: float = 1.0) -> Interval:
        """Compute the exact binomial interval for `units` units, times ``growth``, with the
        confidence 1 - ``alpha``. It contains the interval of equal clusters."""
        units, clusters = self.units * growth, self.clusters * growth
        if units > clusters:
            few = max(1.0, (self.mixed - 1) * growth)
            normal, student = special.stdtrit((units - 1, few), alpha / 2)
            units = max(clusters, units * (normal / student) ** 2)
        right, wrong = self.value * units, (1 - self.value) * units
        low = float(special.betaincinv(right, wrong + 1, alpha / 2)) if right > 0 else 0.0
        high = float(special.betaincinv(right + 1, wrong, 1 - alpha / 2)) if wrong > 0 else 1.0
        limit = float((alpha / 2) ** (1 / clusters))
        return min(low, limit), max(high, 1 - limit)


def share_of(totals: np.ndarray, sizes: np.ndarray, answers: int) -> Share:
    """Return the share ``sum(totals) / sum(sizes)``. Both have an item per cluster, and the sum of
    ``sizes`` is above 0. ``answers``: maximum number of independent units."""
    units, clusters = float(sizes.sum()), int(np.count_nonzero(sizes))
    value = min(1.0, float(totals.sum()) / units)
    scatter = float(np.sum((totals - value * sizes) ** 2))
    mixed = min(int(np.sum(totals > _SAME)), int(np.sum(totals < sizes - _SAME)))
    independent = value * (1 - value) * units**2 / scatter if scatter > _SAME else clusters
    return Share(value, min(independent, answers), clusters, mixed)


@dataclass(frozen=True, slots=True)
class Change:
    """The difference of two paired means: the share that is ``gained`` minus the share that is
    ``lost``, with their ``correlation``."""

    gained: Share
    lost: Share
    correlation: float

    @property
    def value(self) -> float:
        return self.gained.value - self.lost.value

    def interval(self, alpha: float = ALPHA, growth: float = 1.0) -> Interval:
        """Return the interval of the difference of both shares (MOVER, Zou and Donner 2008)."""
        gained, lost = (share.interval(alpha, growth) for share in (self.gained, self.lost))
        below = self._combined(self.gained.value - gained[0], lost[1] - self.lost.value)
        above = self._combined(gained[1] - self.gained.value, self.lost.value - lost[0])
        return max(-1.0, self.value - below), min(1.0, self.value + above)

    def _combined(self, first: float, second: float) -> float:
        return sqrt(max(0.0, first**2 + second**2 - 2 * self.correlation * first * second))


def change_of(moves: np.ndarray, sizes: np.ndarray, answers: int) -> Change | None:
    """Return the mean difference per unit, or None for a single cluster of several units. See
    `share_of`."""
    if len(moves) < 2 and sizes.sum() > 1:
        return None
    parts = np.maximum(moves, 0.0), np.maximum(-moves, 0.0)
    gained, lost = (share_of(part, sizes, answers) for part in parts)
    first, second = parts[0] - gained.value * sizes, parts[1] - lost.value * sizes
    scatter = sqrt(float(np.sum(first**2)) * float(np.sum(second**2)))
    correlation = float(np.sum(first * second)) / scatter if scatter > _SAME else 0.0
    return Change(gained, lost, correlation)


def rows_to_decide(
    interval: Callable[[float, float], Interval], limit: float, alpha: float, n: int
) -> int | None:
    """Return how many more rows than ``n`` put the one-sided bound at ``alpha`` on one side of
    ``limit`` if the shares stay the same; None if even a thousand times as many do not.
    ``interval``: a method such as `Share.interval`."""

    def decides(growth: float) -> bool:
        low, high = interval(2 * alpha, growth)
        return low >= limit or high < limit

    low, high = 1.0, 1000.0
    if not decides(high):
        return None
    for _ in range(30):
        middle = sqrt(low * high)
        low, high = (low, middle) if decides(middle) else (middle, high)
    return ceil(n * (high - 1))


def detectable_effect(moves: np.ndarray, sizes: np.ndarray, tests: int = 1) -> float | None:
    """Compute the smallest true difference that these clusters show with a power of 80 %.

    The level is Bonferroni's `ALPHA` / ``tests``, the strictest level of Holm. With n units and z,
    the sum of the normal quantiles of level and power, the result is ``z * sqrt(sum(moves ** 2)) /
    n``. The result is at least ``z ** 2 * sum(sizes ** 2) / n ** 2``, since a difference of d
    requires that a share d of the units differs (Connor 1987). Returns None above 1."""
    n, z = float(sizes.sum()), float(special.ndtri(1 - ALPHA / tests / 2) + special.ndtri(POWER))
    by_variance = z * sqrt(float(np.sum(moves**2))) / n
    difference = max(by_variance, z * z * float(np.sum(np.square(sizes, dtype=float))) / n**2)
    return difference if difference <= 1 else None
