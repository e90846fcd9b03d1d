"""Draw the order of each benchmark's units (tasks), and split the rows of a run into windows.

A decision uses the first units of the order, up to the first unit with a pending row. But engines
work best if the longest rows come first. So the order is cut into windows, which are evaluated one
after another, and in each window the longest rows come first."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.validation import user_code
from ace_ray.config.schema import EarlyConfig
from ace_ray.early_stopping.units import SEED, Order, order_of
from ace_ray.types import Entry

# Maximum windows in a run. At the end of each window the engine has too few rows.
WINDOWS = 20


@dataclass(frozen=True)
class EntryOrder:
    """The random order of a run's entries. ``orders``: benchmark -> order of its units (tasks).
    ``windows``: number of each entry's window, a group that starts together; int8 (entries,)."""

    orders: Mapping[str, Order]
    windows: np.ndarray

    def as_json(self) -> dict[str, Any]:
        """Return the record for ``run.json``: the seed, the number of windows, and for each
        benchmark a hash of its order. The hash is the same for every model."""
        return {
            "seed": SEED,
            "windows": int(self.windows.max()) + 1,
            "orders": {
                name: {
                    "units": len(order.units),
                    "rules": [order.rules],
                    "sha256": hashlib.sha256(
                        "\n".join(f"{u.name} {u.weight:.12g}" for u in order.units).encode()
                    ).hexdigest(),
                }
                for name, order in self.orders.items()
            },
        }


def draw_order(
    config: EarlyConfig, benchmarks: Mapping[str, Benchmark], entries: Sequence[Entry], samples: int
) -> EntryOrder:
    """Draw the orders and windows of a run. Raises `UserError` if the headline (main score) of a
    benchmark is not a weighted mean of its entries."""
    orders = {}
    for name, benchmark in benchmarks.items():
        if indices := [at for at, entry in enumerate(entries) if entry.benchmark == name]:
            with user_code(type(benchmark), "statistics or task"):
                orders[name] = order_of(benchmark, entries, indices)
    # Interleave the benchmarks, so that at any time the same share of each is evaluated.
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
    return EntryOrder(orders, windows)
