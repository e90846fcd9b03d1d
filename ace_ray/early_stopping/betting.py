"""Decisions on paired differences: confidence sequences, by betting on draws without replacement.

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

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

SHARES = (0.0125, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8)
"""Of the largest stake. Differences of 3 points where a fifth of the entries differ are found best
with 0.15; the smaller ones are for larger benchmarks, the larger ones for clear cases."""
_SLACK = 1e-9
"""Sums of weights and values are exact to this."""


@dataclass(frozen=True, slots=True)
class Draws:
    """Units in the order in which they were drawn.

    ``lows`` and ``highs``: the bounds of their values, float64 (n,), in [-1, 1]; equal where a
    value is known. ``weights``: float64 (n,), above 0; with those of the units that are not drawn
    yet they add up to 1.
    """

    lows: np.ndarray
    highs: np.ndarray
    weights: np.ndarray

    def __len__(self) -> int:
        return len(self.weights)

    def mirrored(self) -> Draws:
        """With the runs exchanged."""
        return Draws(-self.highs, -self.lows, self.weights)

    @property
    def estimate(self) -> float:
        """The difference, as the drawn units have it: exact where they are all."""
        if not len(self):
            return 0.0
        values = (self.lows + self.highs) / 2
        left = max(0.0, 1.0 - float(self.weights.sum()))
        return float(np.sum(self.weights * values)) + left * float(values.mean())


def log_capital(draws: Draws, null: float) -> np.ndarray:
    """The logarithm of the capital after each draw, float64 (n,), against "the difference is at
    most ``null``"; infinite from where ``null`` is impossible. Unknown values are at their worst.
    """
    added = np.cumsum(draws.weights * draws.lows)
    left = np.maximum(1.0 - np.cumsum(draws.weights), 0.0)
    # Even if all that is left were -1, the difference would be above.
    impossible = np.maximum.accumulate(added - left > null + _SLACK)
    before = np.concatenate([[0.0], added[:-1]])
    room = np.maximum(np.concatenate([[1.0], left[:-1]]), draws.weights)
    stake = np.maximum(1.0 + (null - before) / room, _SLACK)
    gain = np.minimum(np.maximum(draws.lows + 1.0, 0.0) / stake - 1.0, 1.0 / _SLACK)
    # Behind an impossible mean the ratio means nothing.
    gain = np.where(impossible, 0.0, gain)
    capital = np.full(gain.shape, -np.inf)
    for share in SHARES:
        capital = np.logaddexp(capital, np.cumsum(np.log1p(share * gain)))
    return np.where(impossible, np.inf, capital - np.log(len(SHARES)))


def rejected_at(draws: Draws, null: float, alpha: float) -> float:
    """After how many draws "the difference is at most ``null``" is rejected; infinite: never."""
    if not len(draws):
        return np.inf
    above = log_capital(draws, null) >= -np.log(alpha)
    return float(above.argmax()) + 1.0 if above.any() else np.inf


def lower_bound(draws: Draws, alpha: float, precision: float = 1e-4) -> float:
    """The lower confidence sequence after these draws: below the difference at any number of them
    with a chance of at least 1 - ``alpha``. To ``precision``, and exact where all is drawn."""
    # It is there even if all that is left were -1.
    left = max(0.0, 1.0 - float(draws.weights.sum()))
    low = max(-1.0 - precision, float(np.sum(draws.weights * draws.lows)) - left)
    high = 1.0
    while high - low > precision:
        middle = (low + high) / 2
        if np.isinf(rejected_at(draws, middle, alpha)):
            high = middle
        else:
            low = middle
    return max(low, -1.0)


def confidence_sequence(draws: Draws, alpha: float) -> tuple[float, float]:
    """The lower and upper sequences after these draws, of half the ``alpha`` each."""
    return lower_bound(draws, alpha / 2), -lower_bound(draws.mirrored(), alpha / 2)


class Outcome(StrEnum):
    """Of a checkpoint against its reference."""

    BETTER = "better"
    WORSE = "worse"
    WITHIN = "within"
    """Neither is better by the margin or more."""


@dataclass(frozen=True, slots=True)
class Rule:
    """``alpha``: the chance of a wrong outcome of one comparison under one headline; ``margin``:
    as a share, 0 for none; ``min_units``: no outcome comes before so many."""

    alpha: float
    margin: float
    min_units: int = 0


@dataclass(frozen=True, slots=True)
class Decision:
    outcome: Outcome
    units: int
    """How many had to be settled for it."""


def decide(draws: Draws, rule: Rule) -> Decision | None:
    """The first outcome that ``draws``, a prefix of the order, allow; None: none yet.

    A wrong outcome needs a sequence of half the ``alpha`` to pass the difference on one side; both
    sides can be wrong only where the difference is exactly 0. So the chance that it is ever wrong,
    however often one looks, is at most ``alpha``. Later draws do not change an outcome.
    """
    half, mirrored = rule.alpha / 2, draws.mirrored()
    first = {
        Outcome.BETTER: rejected_at(draws, 0.0, half),
        Outcome.WORSE: rejected_at(mirrored, 0.0, half),
    }
    if rule.margin > 0:
        within = [rejected_at(one, -rule.margin, half) for one in (draws, mirrored)]
        first[Outcome.WITHIN] = max(within)
    # `min` takes the first of equals: an outcome that says which one is better.
    outcome = min(first, key=first.__getitem__)
    if np.isinf(first[outcome]) or len(draws) < rule.min_units:
        return None
    return Decision(outcome, max(int(first[outcome]), rule.min_units))
