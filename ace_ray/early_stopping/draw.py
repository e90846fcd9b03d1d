"""The orders of a run's benchmarks, and the windows in which its rows are evaluated.

A decision uses the longest prefix of an order that is whole, while engines are full only where long
work comes first. So rows come in windows: a part of the order, whose rows are sorted as those of a
whole run are.
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
from ace_ray.early_stopping.target import draws_of
from ace_ray.early_stopping.units import Order, order_of
from ace_ray.errors import UserError
from ace_ray.types import Entry

SEED = 0
"""Seed of the order in which units are drawn."""
WINDOWS = 20
"""At most, in a run: each ends with fewer rows at work than the engine has room for."""


@dataclass(frozen=True)
class Drawn:
    """``orders``: by benchmark; ``windows``: of each entry of the plan, int8 (entries,)."""

    orders: Mapping[str, Order]
    windows: np.ndarray

    def as_json(self) -> dict[str, Any]:
        """For the manifest: the seed and, by benchmark, how many units there are and a hash of
        their order, which is the same for every model."""
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
    """Raises `UserError`: a headline cannot be decided."""
    orders = {}
    for name, benchmark in benchmarks.items():
        places = [at for at, entry in enumerate(entries) if entry.benchmark == name]
        if places:
            rules = benchmark.rule_sets[:1]
            orders[name] = order_of(benchmark, entries, places, rules, SEED)
            if config.target == "population":
                _check_population(orders[name], config, samples)
    # Benchmarks advance together: each has had the same share of its units at any time.
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


def _check_population(order: Order, config: EarlyConfig, samples: int) -> None:
    """Raise `UserError` where a stratum is so small that nothing could ever be decided."""
    seen = len(draws_of(order, [(0.0, 0.0)] * len(order.units), config.target))
    rows = order.rows(samples, weighed=True)
    if rows[:seen].sum() < min(config.min_rows, rows.sum()):
        weights = order.weights
        left = {s for s, w in zip(order.strata[seen:], weights[seen:], strict=True) if w > 0}
        gone = {s for s, w in zip(order.strata[:seen], weights, strict=False) if w > 0} - left
        raise UserError(
            f"of a population can be said nothing more after {seen} of {len(order.units)} tasks of "
            f"{order.benchmark.name}: then none of {min(gone).rpartition(' ')[0]} is left",
            where="early.target",
            fix="use target: benchmark, leave small categories out, or lower early.min_rows",
        )
