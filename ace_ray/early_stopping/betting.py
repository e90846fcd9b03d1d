"""Confidence sequences for paired differences, by betting on draws without replacement.

The units of a benchmark are drawn one after another, each of those that are left with a chance in
proportion to its weight. Unit i adds ``weight_i * value_i`` to the difference, its value is in
[-1, 1] and the weights add up to 1. Given what was drawn, the next value has the mean

    m = (difference - what the drawn units added) / (weight that is left)

so that, where the difference is at most ``null``, a bettor who stakes a fixed share of what he has
on values above the m of ``null`` has no growing capital: a nonnegative supermartingale, which ever
reaches 1 / alpha with a chance of at most alpha (Ville 1939). The bets are those of Waudby-Smith
and Ramdas (2020, "Confidence sequences for sampling without replacement", section 4; 2024,
"Estimating means of bounded random variables by betting"); with weights, of Shekhar et al. (2023,
"Risk-limiting financial audits via weighted sampling without replacement"). The capital is a
mean over several shares, a supermartingale, too, that needs no knowledge of how much entries
differ.

A stake is a share of what can be staked, ``share / (1 + m)``, so the capital falls as ``null``
rises, on every path: tests of several nulls are nested, and those that are not rejected are an
interval.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

SHARES = (0.0125, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8)
"""Of the largest stake. Differences of 3 points where a fifth of the entries differ are found best
with 0.15; the smaller ones are for larger benchmarks, the larger ones for clear cases."""
_SLACK = 1e-9
"""Sums of weights and values are exact to this."""


@dataclass(frozen=True, slots=True)
class Draws:
    """Units in the order in which they were drawn; of several comparisons over the same order, ...,
    each with values of its own.

    ``lows`` and ``highs``: the bounds of their values, float64 (..., n), in [-1, 1]; equal where a
    value is known. ``weights``: float64 (n,), above 0; with those of the units that are not drawn
    yet they add up to 1. ``scales``: None where the target is the benchmark. Where it is the
    population that the benchmark samples: by how much a value counts more than its chance to be
    drawn (n,), and ``spans``: the most that any unit left would have counted (n,).
    """

    lows: np.ndarray
    highs: np.ndarray
    weights: np.ndarray
    scales: np.ndarray | None = None
    spans: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.weights)

    def mirrored(self) -> Draws:
        """With the runs exchanged."""
        return replace(self, lows=-self.highs, highs=-self.lows)

    def first(self, count: int) -> Draws:
        """The prefix of ``count`` units."""
        cut = slice(count)
        return Draws(
            self.lows[..., cut],
            self.highs[..., cut],
            self.weights[cut],
            None if self.scales is None else self.scales[cut],
            None if self.spans is None else self.spans[cut],
        )


def log_capital(draws: Draws, null: float) -> np.ndarray:
    """The logarithm of the capital after each draw, float64 (..., n), against "the difference is at
    most ``null``"; infinite from where ``null`` is impossible. Unknown values are at their worst.
    """
    if draws.scales is not None and draws.spans is not None:
        values, least, means = draws.lows * draws.scales, draws.spans, np.asarray(null)
        impossible = np.zeros(values.shape, bool)
    else:
        added = np.cumsum(draws.weights * draws.lows, axis=-1)
        left = np.maximum(1.0 - np.cumsum(draws.weights), 0.0)
        # Even if all that is left were -1, the difference would be above.
        impossible = np.maximum.accumulate(added - left > null + _SLACK, axis=-1)
        before = np.concatenate([np.zeros_like(added[..., :1]), added[..., :-1]], axis=-1)
        room = np.maximum(np.concatenate([[1.0], left[:-1]]), draws.weights)
        values, least, means = draws.lows, np.ones(len(draws)), (null - before) / room
    stake = np.maximum(least + means, _SLACK)
    gain = np.minimum(np.maximum(values + least, 0.0) / stake - 1.0, 1.0 / _SLACK)
    # Behind an impossible mean the ratio means nothing.
    gain = np.where(impossible, 0.0, gain)
    capital = np.full(gain.shape, -np.inf)
    for share in SHARES:
        capital = np.logaddexp(capital, np.cumsum(np.log1p(share * gain), axis=-1))
    return np.where(impossible, np.inf, capital - np.log(len(SHARES)))


def rejected_at(draws: Draws, null: float, alpha: float) -> np.ndarray:
    """After how many draws "the difference is at most ``null``" is rejected, float64 (...);
    infinite: it is not."""
    if not len(draws):
        return np.full(draws.lows.shape[:-1], np.inf)
    above = log_capital(draws, null) >= -np.log(alpha)
    return np.where(above.any(axis=-1), above.argmax(axis=-1) + 1.0, np.inf)


def lower_bounds(draws: Draws, alpha: float, at: np.ndarray, precision: float = 1e-4) -> np.ndarray:
    """The lower confidence sequence of one comparison after ``at`` draws each, ascending (k,):
    below the difference at all of them with a chance of at least 1 - ``alpha``. To
    ``precision``, and exact where all is drawn."""
    found = np.full(len(at), -1.0)
    for place, count in enumerate(at):
        seen = draws.first(int(count))
        # What was rejected once stays rejected.
        low, high = float(found[place - 1]) if place else -1.0 - precision, 1.0
        if seen.scales is None:  # it is there even if all that is left were -1
            drawn = float(seen.weights.sum())
            low = max(low, float(np.sum(seen.weights * seen.lows)) - max(0.0, 1.0 - drawn))
        while high - low > precision:
            middle = (low + high) / 2
            if np.isinf(rejected_at(seen, middle, alpha)):
                high = middle
            else:
                low = middle
        found[place] = max(low, -1.0)
    return found


def confidence_sequence(
    draws: Draws, alpha: float, at: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The lower and upper sequences after ``at`` draws each, of half the ``alpha`` each."""
    low = lower_bounds(draws, alpha / 2, at)
    return low, -lower_bounds(draws.mirrored(), alpha / 2, at)
