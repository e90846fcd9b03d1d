"""The tests, intervals and fits behind comparisons: the only importer of scipy and statsmodels.

A *move* is what one cluster adds to a difference: the sum, over its ``sizes`` units, of the value
in the other run less the value in the base run. A cluster is an entry or a dialogue, or several of
one task; clusters are independent. docs/statistics.md has the formulas and their sources.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import sqrt

import numpy as np
from scipy import stats
from statsmodels.genmod.families import Binomial
from statsmodels.genmod.generalized_linear_model import GLM
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.tools.sm_exceptions import PerfectSeparationWarning

from ace_ray.stats import Interval, wilson

ALPHA = 0.05
POWER = 0.8
RESAMPLES = 2_999
SEED = 20_240_601
"""Of the bootstrap: equal data give equal intervals."""
MOST_ENUMERATED = 12
"""Moves up to which every pattern of signs is tried."""

MCNEMAR = "exact McNemar"
SIGN_FLIP = "exact sign flip"
CLUSTERED = "clustered McNemar"
_SAME = 1e-9


def difference_test(moves: np.ndarray) -> tuple[float, str]:
    """The two-sided p of "the runs are equal", and the test that gave it.

    Where every cluster that moved did so by the same amount, as right and wrong entries do, the
    exact McNemar test. Else all patterns of signs of up to `MOST_ENUMERATED` moves; of more the
    clustered McNemar test (Obuchowski 1998, Durkalski et al. 2003) with a continuity correction of
    one smallest move.
    """
    moved = moves[np.abs(moves) > _SAME]
    sizes = np.abs(moved)
    if not len(moved) or np.ptp(sizes) <= _SAME:
        gained = int(np.sum(moved > 0))
        table = [[0, len(moved) - gained], [gained, 0]]
        return float(mcnemar(table, exact=True).pvalue), MCNEMAR
    if len(moved) <= MOST_ENUMERATED:
        result = stats.permutation_test(
            (moved,), np.sum, permutation_type="samples", vectorized=True, n_resamples=np.inf
        )
        return float(result.pvalue), SIGN_FLIP
    z = max(0.0, abs(moved.sum()) - sizes.min()) / sqrt(float(np.sum(moved**2)))
    return float(2 * stats.norm.sf(z)), CLUSTERED


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's (1979) adjusted p-values: a family-wise error of `ALPHA` for those below it."""
    if not p_values:
        return []
    return [float(p) for p in multipletests(p_values, alpha=ALPHA, method="holm")[1]]


def newcombe(both: int, gained: int, lost: int, neither: int) -> Interval | None:
    """The 95 % interval of the difference of two paired shares, ``(gained - lost) / n``.

    Newcombe's (1998) method 10, from the Wilson intervals of both shares and their correlation
    with its continuity correction; it has a width also where no unit moved. None where ``n`` is 0.
    """
    n = both + gained + lost + neither
    base, other = both + lost, both + gained
    of_base, of_other = wilson(base, n), wilson(other, n)
    if of_base is None or of_other is None:
        return None
    margins = float(base) * (n - base) * other * (n - other)
    product = float(both) * neither - float(gained) * lost
    if product > 0:
        product = max(product - n / 2, 0.0)
    phi = product / sqrt(margins) if margins else 0.0
    below = _combined(other / n - of_other[0], of_base[1] - base / n, phi)
    above = _combined(of_other[1] - other / n, base / n - of_base[0], phi)
    difference = (gained - lost) / n
    return max(-1.0, difference - below), min(1.0, difference + above)


def _combined(one: float, two: float, correlation: float) -> float:
    return sqrt(max(0.0, one**2 + two**2 - 2 * correlation * one * two))


def clustered_interval(moves: np.ndarray, sizes: np.ndarray) -> Interval | None:
    """The 95 % interval of the mean move of a unit, by Student's t over clusters.

    With the variance of a ratio of sums, as the units of a cluster are its draw, not theirs.
    """
    if degenerate := _without_spread(moves, sizes):
        return degenerate[0]
    count, units = len(moves), float(sizes.sum())
    mean = float(moves.sum()) / units
    scatter = float(np.sum((moves - mean * sizes) ** 2)) * count / (count - 1)
    half = stats.t.isf(ALPHA / 2, count - 1) * sqrt(scatter) / units
    return _bounded(mean - half, mean + half)


def bootstrap_interval(moves: np.ndarray, sizes: np.ndarray) -> Interval | None:
    """The 95 % BCa bootstrap interval of the mean move of a unit, whole clusters resampled."""
    if degenerate := _without_spread(moves, sizes):
        return degenerate[0]
    # Mirrored data get mirrored intervals, to the last bit.
    sign = -1.0 if moves.sum() < 0 else 1.0
    single = bool(np.all(sizes == 1))
    interval = stats.bootstrap(
        (sign * moves,) if single else (sign * moves, sizes),
        np.mean if single else _ratio,
        paired=not single,
        vectorized=True,
        n_resamples=RESAMPLES,
        batch=max(1, 4_000_000 // len(moves)),
        method="BCa",
        rng=np.random.default_rng(SEED),
    ).confidence_interval
    ends = (float(interval.low), float(interval.high))
    return _bounded(*ends) if sign > 0 else _bounded(-ends[1], -ends[0])


def _ratio(moves: np.ndarray, sizes: np.ndarray, axis: int) -> np.ndarray:
    ratio: np.ndarray = moves.sum(axis=axis) / sizes.sum(axis=axis)
    return ratio


def _without_spread(moves: np.ndarray, sizes: np.ndarray) -> tuple[Interval | None] | None:
    """The interval, if any, of clusters that all moved the same; None when they did not.

    If none of n clusters moved, the share of those that move is below the exact binomial limit.
    """
    if len(moves) and not np.any(np.abs(moves) > _SAME):
        most = float(stats.binomtest(0, len(moves)).proportion_ci(1 - ALPHA, "exact").high)
        return ((-most, most),)
    if len(moves) < 2 or np.ptp(moves / sizes) <= _SAME:
        return (None,)
    return None


def _bounded(low: float, high: float) -> Interval:
    return max(-1.0, float(low)), min(1.0, float(high))


def detectable(moves: np.ndarray, sizes: np.ndarray, tests: int = 1) -> float | None:
    """The smallest true difference that these clusters show with a power of 80 %; None: none.

    At the level `ALPHA` / ``tests``, Bonferroni's, which Holm's is at its strictest. With n units
    ``z * sqrt(sum(moves ** 2)) / n``, at least ``z ** 2 * sum(sizes ** 2) / n ** 2``: a difference
    of d needs a share d of units that move, also where none was seen to (Connor 1987, in its
    conservative form).
    """
    n = float(sizes.sum())
    z = _detected_at(tests)
    seen = z * sqrt(float(np.sum(moves**2))) / n
    difference = max(seen, z * z * float(np.sum(np.square(sizes, dtype=float))) / n**2)
    return difference if difference <= 1 else None


@cache
def _detected_at(tests: int) -> float:
    """How many standard errors a difference must be for the power."""
    return float(stats.norm.isf(ALPHA / tests / 2) + stats.norm.ppf(POWER))


@dataclass(frozen=True, slots=True)
class Fit:
    """``logit(share) = intercept + slope * (x - centre)``.

    ``covariance`` of (intercept, slope) holds the dispersion; ``quantile`` is that of Student's t
    for 95 % intervals.
    """

    centre: float
    intercept: float
    slope: float
    covariance: tuple[tuple[float, float], tuple[float, float]]
    dispersion: float
    quantile: float


def binomial_fit(x: Sequence[float], right: Sequence[float], n: Sequence[float]) -> Fit | None:
    """A logistic curve of ``right`` out of ``n`` over ``x``, by weighted likelihood.

    A binomial GLM whose covariance is scaled by Pearson's dispersion, at least 1: models scatter
    around a curve more than the sampling of entries explains. Needs three different ``x``. None
    where the likelihood has no maximum: the shares are all 0, all 1, or jump from one to the other.
    """
    if _separated(x, right, n):
        return None
    counts = np.column_stack([np.asarray(right, float), np.subtract(n, right)])
    centre = float(np.mean(x))
    design = np.column_stack([np.ones(len(x)), np.asarray(x, float) - centre])
    with warnings.catch_warnings():
        # It also warns of shares that lie on a curve exactly, and of nothing else here.
        warnings.simplefilter("ignore", PerfectSeparationWarning)
        fit = GLM(counts, design, family=Binomial()).fit()
    if not fit.converged:
        return None
    # `fit(scale="X2")` of statsmodels 0.15 forgets how many trials there were.
    dispersion = max(1.0, float(fit.pearson_chi2 / fit.df_resid))
    (a, ab), (_, b) = (dispersion * np.asarray(fit.cov_params())).tolist()
    return Fit(
        centre=centre,
        intercept=float(fit.params[0]),
        slope=float(fit.params[1]),
        covariance=((a, ab), (ab, b)),
        dispersion=dispersion,
        quantile=float(stats.t.isf(ALPHA / 2, fit.df_resid)),
    )


def _separated(x: Sequence[float], right: Sequence[float], n: Sequence[float]) -> bool:
    """Whether a step explains all: no wrong answer above a right one, or none below (Albert and
    Anderson 1984). The likelihood of a logistic curve then grows without end."""
    rights = [place for place, count in zip(x, right, strict=True) if count > 0]
    wrongs = [place for place, k, of in zip(x, right, n, strict=True) if k < of]
    if not rights or not wrongs:
        return True
    return max(wrongs) <= min(rights) or max(rights) <= min(wrongs)
