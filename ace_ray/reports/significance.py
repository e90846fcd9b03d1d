"""Compute tests and intervals for comparisons. Only this module imports scipy.

A cluster contains the units of one task (`ace_ray.reports.paired`). Clusters are independent.
``sizes`` has the number of units of each cluster. ``moves`` has the difference of each cluster: the
sum of the other run's values minus the sum of the base run's values. Formulas: docs/statistics.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import sqrt

import numpy as np
from scipy import stats

from ace_ray.util.stats import Interval, wilson

ALPHA = 0.05
POWER = 0.8
# Maximum moves for which every pattern of signs is tried.
MOST_ENUMERATED = 12

MCNEMAR = "exact McNemar"
SIGN_FLIP = "exact sign flip"
CLUSTERED = "clustered McNemar"
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


def newcombe(both_right: int, gained: int, lost: int, neither_right: int) -> Interval | None:
    """Compute the 95 % interval of the difference of two paired shares, ``(gained - lost) / n``.

    This is method 10 of Newcombe (1998). It combines the Wilson intervals of both shares with their
    continuity-corrected correlation. The width is positive even if no unit changed. Returns None if
    n = 0."""
    n = both_right + gained + lost + neither_right
    base_right, other_right = both_right + lost, both_right + gained
    of_base, of_other = wilson(base_right, n), wilson(other_right, n)
    if of_base is None or of_other is None:
        return None
    margins = float(base_right) * (n - base_right) * other_right * (n - other_right)
    product = float(both_right) * neither_right - float(gained) * lost
    if product > 0:
        product = max(product - n / 2, 0.0)
    phi = product / sqrt(margins) if margins else 0.0
    below = _combine_margins(other_right / n - of_other[0], of_base[1] - base_right / n, phi)
    above = _combine_margins(of_other[1] - other_right / n, base_right / n - of_base[0], phi)
    difference = (gained - lost) / n
    return max(-1.0, difference - below), min(1.0, difference + above)


def _combine_margins(first: float, second: float, correlation: float) -> float:
    return sqrt(max(0.0, first**2 + second**2 - 2 * correlation * first * second))


def share_interval(successes: int, n: int, alpha: float) -> Interval:
    """Compute Wilson's interval of a share with the confidence 1 - ``alpha``."""
    interval = stats.binomtest(successes, n).proportion_ci(1 - alpha, "wilson")
    return float(interval.low), float(interval.high)


def clustered_interval(
    moves: np.ndarray, sizes: np.ndarray, alpha: float = ALPHA
) -> Interval | None:
    """Compute the interval of the mean difference per unit, by Student's t over clusters.

    The mean is treated as a ratio of two sums, since the sizes of clusters are random, too. If the
    difference per unit is 0 in all clusters, the interval is the exact binomial limit on the share
    that may differ. Returns None if it is the same in all clusters, but not 0."""
    if len(moves) and not np.any(np.abs(moves) > _SAME):
        limit = float(stats.binomtest(0, len(moves)).proportion_ci(1 - alpha, "exact").high)
        return -limit, limit
    if len(moves) < 2 or np.ptp(moves / sizes) <= _SAME:
        return None
    count, units = len(moves), float(sizes.sum())
    mean = float(moves.sum()) / units
    scatter = float(np.sum((moves - mean * sizes) ** 2)) * count / (count - 1)
    half = stats.t.isf(alpha / 2, count - 1) * sqrt(scatter) / units
    return max(-1.0, float(mean - half)), min(1.0, float(mean + half))


def detectable_effect(moves: np.ndarray, sizes: np.ndarray, tests: int = 1) -> float | None:
    """Compute the smallest true difference that these clusters show with a power of 80 %.

    The level is Bonferroni's `ALPHA` / ``tests``, the strictest level of Holm. With z from
    `_detection_z` and n units, the result is ``z * sqrt(sum(moves ** 2)) / n``. It is at least
    ``z ** 2 * sum(sizes ** 2) / n ** 2``, since a difference of d requires that a share d of the
    units differs (Connor 1987, in its conservative form). Returns None if the result exceeds 1."""
    n = float(sizes.sum())
    z = _detection_z(tests)
    by_variance = z * sqrt(float(np.sum(moves**2))) / n
    difference = max(by_variance, z * z * float(np.sum(np.square(sizes, dtype=float))) / n**2)
    return difference if difference <= 1 else None


@cache
def _detection_z(tests: int) -> float:
    """Return z: the smallest detectable difference, divided by its standard error."""
    return float(stats.norm.isf(ALPHA / tests / 2) + stats.norm.ppf(POWER))
