"""The orders of a run's benchmarks, and the windows in which its rows are evaluated.

A decision uses the longest complete prefix of an order. Engines stay busy only if long work comes
first. So rows are evaluated in windows. A window is a part of the order, and its rows are sorted
like the rows of a whole run.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ace_ray.benchmarks.base import Benchmark
from ace_ray.config.schema import EarlyConfig
from ace_ray.early_stopping.units import Order, order_of
from ace_ray.types import Entry

# Seed of the order in which units are drawn.
SEED = 0
# Maximum windows in a run. At the end of each window the engine is not full.
WINDOWS = 20


@dataclass(frozen=True)
class Drawn:
    """``orders``: by benchmark. ``windows``: the window of each entry of the plan, int8
    (entries,)."""

    orders: Mapping[str, Order]
    windows: np.ndarray

    def as_json(self) -> dict[str, Any]:
        """Return the manifest entry: the seed, and for each benchmark the number of units and a
        hash of their order. The hash is the same for every model."""
        return {
            "seed": next(iter(self.orders.values())).seed,
            "windows": int(self.windows.max()) + 1,
            "orders": {
                name: {
                    "units": len(order.units),
                    "rules": list(order.rules),
                    "sha256": hashlib.sha256(
                        "\n".join(f"{u.name} {u.weight:.12g}" for u in order.units).encode()
                    ).hexdigest(),
                }
                for name, order in self.orders.items()
            },
        }


def draw(
    config: EarlyConfig,
    benchmarks: Mapping[str, Benchmark],
    entries: Sequence[Entry],
    samples: int,
) -> Drawn:
    """Draw the orders and windows of a run. Raises `UserError`: a headline cannot be decided."""
    orders = {}
    for name, benchmark in benchmarks.items():
        places = [at for at, entry in enumerate(entries) if entry.benchmark == name]
        if places:
            orders[name] = order_of(benchmark, entries, places, benchmark.rule_sets[:1], SEED)
    # Benchmarks advance together: at any time each has used the same share of its units.
    merged = sorted(
        ((at + 0.5) / len(order.units), number, at)
        for number, order in enumerate(orders.values())
        for at in range(len(order.units))
    )
    every = list(orders.values())
    size = max(config.min_rows, math.ceil(len(entries) * samples / WINDOWS))
    windows, rows = np.zeros(len(entries), np.int8), 0
    for _, number, at in merged:
        for item in every[number].units[at].items:
            windows[list(item.entries)] = rows // size
            rows += len(item.entries) * samples
    return Drawn(orders, windows)
