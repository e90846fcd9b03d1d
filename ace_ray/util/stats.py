"""Compute statistics of accuracies: intervals, pass@k and pass^k."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import comb, sqrt

Interval = tuple[float, float]

# The 97.5 % quantile of the standard normal distribution.
Z95 = 1.959963984540054


def wilson(successes: float, n: int) -> Interval | None:
    """Return the 95 % Wilson score interval of ``successes / n`` within 0..1; None if ``n`` is 0.

    ``successes`` may be fractional. Samples of one entry are not independent. So with several
    samples per entry, ``n`` is the number of entries, ``successes`` the sum of their means."""
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes of {n} are impossible")
    if n == 0:
        return None
    share, z2 = successes / n, Z95 * Z95
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 * sqrt(share * (1 - share) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    # Rounding must not move the observed share out of the interval.
    return max(0.0, min(centre - half, share)), min(1.0, max(centre + half, share))


def share(total: float, count: int, n: int) -> tuple[float | None, Interval | None]:
    """Return ``total / count`` and its 95 % interval for ``n`` entries; None if ``count`` is 0."""
    return (total / count, wilson(total / count * n, n)) if count else (None, None)


def weighted_interval(parts: Iterable[tuple[float, float, Interval]]) -> Interval:
    """Return the 95 % interval of ``sum(weight * value)`` over ``(weight, value, interval)`` parts.

    The squared distances between the parts' values and limits are added (MOVER, Zou and Donner
    2008). Unlike a normal approximation, the interval is not empty if all values are 0 or 1.
    Weights must not be negative, and parts must be independent."""
    total = below = above = 0.0
    for weight, value, (low, high) in parts:
        total += weight * value
        below += (weight * (value - low)) ** 2
        above += (weight * (high - value)) ** 2
    return max(0.0, total - sqrt(below)), min(1.0, total + sqrt(above))


def mean_of_present(
    parts: Iterable[tuple[float, float | None, Sequence[float] | None]],
) -> tuple[float, Interval] | None:
    """Return the weighted mean of the ``(weight, value, interval)`` parts that have a value, and
    the mean's 95 % interval. Return None if their total weight is 0."""
    present = [(w, v, (i[0], i[1])) for w, v, i in parts if v is not None and i is not None]
    total = sum(weight for weight, _, _ in present)
    if not total:
        return None
    shares = [(weight / total, value, interval) for weight, value, interval in present]
    return sum(w * v for w, v, _ in shares), weighted_interval(shares)


def pass_at_k(n: int, c: int, k: int) -> float:
    """Return pass@k, the probability that at least one of ``k`` samples is right.

    ``c`` of ``n`` samples were right. The estimate is unbiased: the share of subsets of k samples
    that contain a right one (Chen et al. 2021)."""
    if not 0 <= c <= n or not 1 <= k <= n:
        raise ValueError(f"pass@{k} is not defined if {c} of {n} samples are right")
    every = comb(n, k)
    return (every - comb(n - c, k)) / every


def pass_hat_k(n: int, c: int, k: int) -> float:
    """Return pass^k, the probability that all of ``k`` samples are right.

    ``c`` of ``n`` samples were right. The estimate is unbiased: the share of subsets of k samples
    that are all right (tau-bench, Yao et al. 2024, https://arxiv.org/pdf/2406.12045)."""
    if not 0 <= c <= n or not 1 <= k <= n:
        raise ValueError(f"pass^{k} is not defined if {c} of {n} samples are right")
    return comb(c, k) / comb(n, k)
