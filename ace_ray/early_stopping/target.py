"""The draws of a comparison, for either target."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ace_ray.early_stopping.betting import Draws
from ace_ray.early_stopping.units import Order

Bounds = tuple[float, float]


def draws_of(order: Order, bounds: Sequence[Bounds], target: str) -> Draws:
    """Of the first units of ``order``, whose values lie within ``bounds``, in [-1, 1] each.

    For the population, what a stratum (the units of a category that weigh the same) has left is
    drawn with another chance than its weight in the headline: its values are scaled by the ratio.
    Once a stratum has no unit left, nothing more can be said of its population, and the draws
    end."""
    lows, highs = (np.array([one[side] for one in bounds], float) for side in (0, 1))
    weights = order.weights
    count = len(bounds)
    if target == "benchmark":
        return Draws(lows, highs, weights[:count])
    names, cell = np.unique(np.array(order.strata), return_inverse=True)
    count = min(count, int(np.count_nonzero(weights)))
    of_cell = np.zeros((len(weights), len(names)))
    of_cell[np.arange(len(weights)), cell] = weights
    # What has no weight comes last in the order, and says nothing.
    weighs = of_cell.sum(axis=0) > 0
    of_cell, cell = of_cell[:, weighs], np.cumsum(weighs)[cell] - 1
    total = of_cell.sum(axis=0)
    left = total - np.vstack([np.zeros(len(total)), np.cumsum(of_cell, axis=0)[:-1]])
    left = np.where(left < 1e-12, 0.0, left)
    whole = np.flatnonzero((left[:count] <= 0).any(axis=1))
    count = int(whole[0]) if len(whole) else count
    shares = left[:count] / left[:count].sum(axis=1, keepdims=True)
    scales = total / shares
    own = scales[np.arange(count), cell[:count]]
    return Draws(lows[:count], highs[:count], weights[:count], own, scales.max(axis=1))


def estimate_of(draws: Draws) -> float:
    """The difference, as the drawn units have it: exact where they are all."""
    values = (draws.lows + draws.highs) / 2
    if not len(values):
        return 0.0
    if draws.scales is not None:
        return float(np.mean(values * draws.scales))
    added = float(np.sum(draws.weights * values))
    return added + max(0.0, 1.0 - float(draws.weights.sum())) * float(values.mean())
