"""What two runs differ by on some units, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ace_ray.report.paired import Cells, Metric, Pairs
from ace_ray.report.significance import (
    bootstrap_interval,
    clustered_interval,
    difference_test,
    newcombe,
)
from ace_ray.stats import Interval


@dataclass(frozen=True, slots=True)
class Difference:
    """``other`` less ``base``, both shares in 0..1 over the same ``n`` units, of equal weight.

    ``gained`` and ``lost`` count the units on which ``other`` is better and worse, ``left_out``
    rows without a verdict in either run. ``interval`` (95 %) is None where the data give none.
    ``p`` is that of ``test`` alone. By cluster, of which there are ``len(sizes)``: ``sizes``, and
    ``moves``, what its units add to the difference. ``samples``: by unit, how many are averaged.
    """

    n: int
    left_out: int
    base: float
    other: float
    value: float
    interval: Interval | None
    gained: int
    lost: int
    test: str
    p: float
    moves: np.ndarray = field(repr=False, compare=False)
    sizes: np.ndarray = field(repr=False, compare=False)
    samples: np.ndarray = field(repr=False, compare=False)


def difference_of(cells: Cells, pairs: Pairs, within: np.ndarray, metric: Metric) -> Difference:
    """The difference over the units of the mask ``within``, of which one at least is paired."""
    used = within & (pairs.samples > 0)
    base, other = pairs.base[used], pairs.other[used]
    by_unit = other - base
    # Means of equal samples may differ in the last bit.
    by_unit[np.abs(by_unit) < 1e-12] = 0.0
    _, cluster_of = np.unique(cells.cluster_of[used], return_inverse=True)
    moves, sizes = np.bincount(cluster_of, by_unit), np.bincount(cluster_of)
    p, test = difference_test(moves)
    return Difference(
        n=len(by_unit),
        left_out=int(pairs.left_out[within].sum()),
        base=float(base.mean()),
        other=float(other.mean()),
        value=float(by_unit.mean()),
        interval=_interval(base, other, moves, sizes, metric),
        gained=int(np.sum(by_unit > 0)),
        lost=int(np.sum(by_unit < 0)),
        test=test,
        p=p,
        moves=moves,
        sizes=sizes,
        samples=pairs.samples[used],
    )


def _interval(
    base: np.ndarray, other: np.ndarray, moves: np.ndarray, sizes: np.ndarray, metric: Metric
) -> Interval | None:
    if metric == "process":
        return bootstrap_interval(moves, sizes)
    binary = np.all(np.isin(base, (0.0, 1.0)) & np.isin(other, (0.0, 1.0)))
    if not binary or len(sizes) < len(base):
        return clustered_interval(moves, sizes)
    return newcombe(
        both=int(np.sum((base == 1) & (other == 1))),
        gained=int(np.sum(moves > 0)),
        lost=int(np.sum(moves < 0)),
        neither=int(np.sum((base == 0) & (other == 0))),
    )
