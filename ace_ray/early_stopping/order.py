"""The order in which the units of a benchmark are drawn: seeded, the same for every checkpoint.

A unit is all rows of entries that share a group. Each next one is drawn from those that are left,
with a chance in proportion to its weight (Efraimidis and Spirakis 2006): keys ``-log(u) / weight``,
ascending, ``u`` from a hash of the seed and the unit's name. So a unit's place among others depends
on nothing but them: not on the machine, the model, or which other entries are in the run.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import numpy as np

_BITS = 53


def uniform(seed: int, name: str) -> float:
    """In (0, 1): the same for the same seed and name."""
    drawn = hashlib.sha256(f"{seed} {name}".encode()).digest()
    return ((int.from_bytes(drawn[:8], "big") >> (64 - _BITS)) + 0.5) / (1 << _BITS)


def drawn_order(names: Sequence[str], weights: Sequence[float], seed: int) -> np.ndarray:
    """The places of ``names`` in the order in which they are drawn, int64 (n,). Those of weight 0
    come last: nothing is decided by them."""
    keys = [
        -math.log(uniform(seed, name)) / weight if weight > 0 else math.inf
        for name, weight in zip(names, weights, strict=True)
    ]
    return np.array(sorted(range(len(names)), key=lambda at: (keys[at], names[at])), np.int64)
