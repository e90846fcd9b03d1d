"""What a comparison has come to, from the units of an order that are settled."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from ace_ray.early_stopping.betting import Draws, rejected_at


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
        first[Outcome.WITHIN] = np.maximum(
            rejected_at(draws, -rule.margin, half), rejected_at(mirrored, -rule.margin, half)
        )
    # `min` takes the first of equals: an outcome that says which one is better.
    outcome = min(first, key=lambda one: float(first[one]))
    if np.isinf(first[outcome]) or len(draws) < rule.min_units:
        return None
    return Decision(outcome, max(int(first[outcome]), rule.min_units))
