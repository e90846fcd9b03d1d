"""The noise floor: what two runs of one model differ by, from rows that were generated twice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from ace_ray.benchmarks.protocol import ScoredRow
from ace_ray.report.groups import Group
from ace_ray.report.paired import Cells, Metric, cells_of, unit_of
from ace_ray.stats import Z95

WEIGHT = 30
"""Repeated cells that all groups together are worth beside a group's own: a group has few."""


@dataclass(frozen=True, slots=True)
class Noise:
    """Of ``n`` cells of a group generated twice ``flips`` differ.

    ``variance`` is the mean square of what a cell generated twice moves by, the group's own drawn
    towards that of all groups.
    """

    flips: int
    n: int
    variance: float

    def spread(self, samples: np.ndarray) -> float:
        """The standard deviation of the difference of two identical runs.

        ``samples``: of each unit how many are averaged.
        """
        return sqrt(self.variance * float(np.mean(1 / samples)) / len(samples))

    def floor(self, samples: np.ndarray) -> float:
        """What 95 % of the differences of two identical runs stay within."""
        return Z95 * self.spread(samples)


Repeats = Cells
"""Cells of two "runs": what was generated first, and again."""


def repeats_of(rows: Sequence[ScoredRow], again: Sequence[ScoredRow]) -> Repeats | None:
    """The cells of ``rows`` that ``again`` has a second time; None when there are none."""
    keys = {(unit_of(row), row.id, row.sample) for row in again}
    if not keys:
        return None
    return cells_of([[row for row in rows if (unit_of(row), row.id, row.sample) in keys], again])


def noise_of(repeats: Sequence[Repeats], group: Group, metric: Metric, rules: str) -> Noise | None:
    """What the ``repeats`` of some runs say of ``group``; None without any."""
    every = overall(repeats, metric, rules)
    if every is None:
        return None
    own = _known(
        _moves(cells, metric, rules)[cells.within(group.strata)[cells.unit_of]] for cells in repeats
    )
    squares = float(np.sum(own**2)) + WEIGHT * every.variance
    return Noise(_flips(own), len(own), squares / (len(own) + WEIGHT))


def overall(repeats: Sequence[Repeats], metric: Metric, rules: str) -> Noise | None:
    """What the ``repeats`` of some runs say of all groups together; None without any."""
    every = _known(_moves(cells, metric, rules) for cells in repeats)
    return Noise(_flips(every), len(every), float(np.mean(every**2))) if len(every) else None


def _known(parts: Iterable[np.ndarray]) -> np.ndarray:
    every = np.concatenate([np.zeros(0), *parts])
    known: np.ndarray = every[~np.isnan(every)]
    return known


def _flips(moves: np.ndarray) -> int:
    return int(np.sum(np.abs(moves) > 1e-9))


def _moves(cells: Repeats, metric: Metric, rules: str) -> np.ndarray:
    first, second = cells.values[metric, rules]
    moves: np.ndarray = second - first
    return moves
