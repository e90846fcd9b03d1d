"""Test the difference between two runs by betting on units (tasks) drawn without replacement.

The units of a benchmark are drawn one after another. Each remaining unit is drawn with a
probability proportional to its weight. The weights add up to 1. Unit i adds ``weight_i * value_i``
to the difference, with a value in [-1, 1]. Given the drawn units, the expected next value is

    m = (difference - sum over the drawn units) / (remaining weight)

The null hypothesis is that the difference is at most ``null``. A bettor stakes a share of the
capital on the next value being above m, computed for a difference of ``null``. Under the null
hypothesis, the capital ever reaches 1 / alpha with a probability of at most alpha (Ville 1939).

The bets follow Waudby-Smith and Ramdas (2020, "Confidence sequences for sampling without
replacement", section 4; 2024, "Estimating means of bounded random variables by betting"). The
weights follow Shekhar et al. (2023, "Risk-limiting financial audits via weighted sampling without
replacement"). The capital is the mean over several shares, since the best share is not known.

The stake is ``share / (1 + m)``, where ``1 / (1 + m)`` is the largest possible stake. With this
stake, a higher ``null`` never gives a higher capital. So the values of ``null`` that are not
rejected form an interval."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

# Shares of the largest possible stake. If a fifth of the entries differ, a share of 0.15 is best
# for a difference of 3 points. Smaller differences need smaller shares.
SHARES = (0.0125, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8)
# Tolerance for rounding errors in sums of weights and values.
_SLACK = 1e-9


@dataclass(frozen=True, slots=True)
class Draws:
    """Bounds and weights of the drawn units, in the order in which the units were drawn.

    ``lows`` and ``highs``: bounds of the units' values, float64 (n,), in [-1, 1]; equal if a value
    is known. ``weights``: float64 (n,), above 0. The weights of drawn and other units sum to 1."""

    lows: np.ndarray
    highs: np.ndarray
    weights: np.ndarray

    def __len__(self) -> int:
        return len(self.weights)

    def swap_runs(self) -> Draws:
        """Return the draws with the two runs exchanged."""
        return Draws(-self.highs, -self.lows, self.weights)

    @property
    def estimate(self) -> float:
        """Estimate of the difference; exact when all units are drawn."""
        if not len(self):
            return 0.0
        values = (self.lows + self.highs) / 2
        undrawn_weight = max(0.0, 1.0 - float(self.weights.sum()))
        return float(np.sum(self.weights * values)) + undrawn_weight * float(values.mean())


def log_capital(draws: Draws, null: float) -> np.ndarray:
    """Return the logarithm of the capital after each draw, float64 (n,).

    The null hypothesis is "the difference is at most ``null``". The capital is infinite as soon as
    the draws make this hypothesis impossible. Unknown values count as their lower bounds."""
    added = np.cumsum(draws.weights * draws.lows)
    undrawn_weights = np.maximum(1.0 - np.cumsum(draws.weights), 0.0)
    # Even if all remaining values were -1, the difference would be above `null`.
    impossible = np.maximum.accumulate(added - undrawn_weights > null + _SLACK)
    before = np.concatenate([[0.0], added[:-1]])
    room = np.maximum(np.concatenate([[1.0], undrawn_weights[:-1]]), draws.weights)
    stake = np.maximum(1.0 + (null - before) / room, _SLACK)
    gain = np.minimum(np.maximum(draws.lows + 1.0, 0.0) / stake - 1.0, 1.0 / _SLACK)
    # After `null` has become impossible, the ratio has no meaning.
    gain = np.where(impossible, 0.0, gain)
    capital = np.full(gain.shape, -np.inf)
    for share in SHARES:
        capital = np.logaddexp(capital, np.cumsum(np.log1p(share * gain)))
    return np.where(impossible, np.inf, capital - np.log(len(SHARES)))


def draws_to_reject(draws: Draws, null: float, alpha: float) -> float:
    """Return the number of draws after which "the difference is at most ``null``" is rejected, or
    infinity if it is not rejected."""
    if not len(draws):
        return np.inf
    above = log_capital(draws, null) >= -np.log(alpha)
    return float(above.argmax()) + 1.0 if above.any() else np.inf


def lower_bound(draws: Draws, alpha: float, precision: float = 1e-4) -> float:
    """Compute the lower confidence bound of the difference after ``draws``.

    With a probability of at least 1 - ``alpha``, the bounds after every number of draws are all
    below the difference. Accurate to ``precision``; exact when all units are drawn."""
    # The lowest possible difference: all remaining values are -1.
    undrawn_weight = max(0.0, 1.0 - float(draws.weights.sum()))
    low = max(-1.0 - precision, float(np.sum(draws.weights * draws.lows)) - undrawn_weight)
    high = 1.0
    while high - low > precision:
        middle = (low + high) / 2
        if np.isinf(draws_to_reject(draws, middle, alpha)):
            high = middle
        else:
            low = middle
    return max(low, -1.0)


def confidence_sequence(draws: Draws, alpha: float) -> tuple[float, float]:
    """Compute the lower and the upper confidence bound, each with half of ``alpha``."""
    return lower_bound(draws, alpha / 2), -lower_bound(draws.swap_runs(), alpha / 2)


def draws_to_decide(draws: int, of: int, half_width: float, needed: float) -> int:
    """Estimate after how many draws the half-width of a confidence sequence is ``needed``.

    The half-width is ``half_width`` now, after ``draws`` of ``of`` draws. After n draws, its square
    is proportional to 1 / n - 1 / of."""
    shrinks = (needed / half_width) ** 2
    return math.ceil(1 / (1 / of + shrinks * (1 / draws - 1 / of)))


class Outcome(StrEnum):
    """Outcome of comparing a checkpoint with its reference."""

    BETTER = "better"
    WORSE = "worse"
    WITHIN = "within"
    """The checkpoint and its reference differ by less than the margin."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Parameters of `decide`.

    ``alpha``: maximum probability of a wrong outcome for one headline of a comparison. ``margin``:
    difference (0 to 1) below which the outcome is ``within``; 0 turns this outcome off.
    ``min_units``: minimum number of drawn units before an outcome."""

    alpha: float
    margin: float
    min_units: int = 0


@dataclass(frozen=True, slots=True)
class Decision:
    outcome: Outcome
    units: int
    """Number of drawn units after which the outcome was reached."""


def decide(draws: Draws, rule: Rule) -> Decision | None:
    """Return the first outcome that ``draws`` prove, or None if more units must be drawn first.

    An outcome can be wrong only if the lower or the upper confidence sequence is wrong. Each uses
    half of ``alpha``, so the probability of ever being wrong is at most ``alpha``, however often
    this function is called. Later draws do not change an outcome."""
    half, mirrored = rule.alpha / 2, draws.swap_runs()
    first = {
        Outcome.BETTER: draws_to_reject(draws, 0.0, half),
        Outcome.WORSE: draws_to_reject(mirrored, 0.0, half),
    }
    if rule.margin > 0:
        within = [draws_to_reject(d, -rule.margin, half) for d in (draws, mirrored)]
        first[Outcome.WITHIN] = max(within)
    # On a tie, `min` returns the first key: better or worse before within.
    outcome = min(first, key=first.__getitem__)
    if np.isinf(first[outcome]) or len(draws) < rule.min_units:
        return None
    return Decision(outcome, max(int(first[outcome]), rule.min_units))
