"""Split a benchmark into units for early stopping, and measure each unit's weight in the headline.

The headline is a benchmark's main score. A unit is one task; its items are entries or dialogues.
Benchmarks do not declare weights, so weights are measured with simulated runs. If only one category
of a run is right, the headline equals the weight of this category. If a run contains only one
dialogue, the headline equals the value of this dialogue. A simulated run with random verdicts shows
whether the headline is a weighted mean of the entries. Other headlines are refused.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.checked import own_code
from ace_ray.early_stopping.betting import Draws
from ace_ray.errors import UserError
from ace_ray.types import Entry, ResultRow, Verdict, own_task

Bounds = tuple[float, float]
_BITS = 53
# Tolerance for headlines that are rounded: ACEBench's workbook rounds to three digits. Decisions
# use the mean without rounding.
_CLOSE = 0.005


@dataclass(frozen=True, slots=True)
class Item:
    """An entry, or a dialogue whose entries are judged together. ``entries``: indices into the
    entries of the plan. ``weight``: weight of the item in the headline."""

    entries: tuple[int, ...]
    weight: float


@dataclass(frozen=True)
class Unit:
    """All items of one task. They are drawn together."""

    benchmark: str
    name: str
    items: tuple[Item, ...]

    @property
    def weight(self) -> float:
        return sum(item.weight for item in self.items)


@dataclass(frozen=True)
class Order:
    """The units of a benchmark in the order in which they are drawn."""

    benchmark: type[Benchmark]
    units: Sequence[Unit]
    rules: tuple[str, ...]
    """Rule sets whose headlines are compared with the reference run."""
    seed: int

    @property
    def weights(self) -> np.ndarray:
        """Weights of the units, which add up to 1."""
        weights = np.array([unit.weight for unit in self.units])
        whole: np.ndarray = weights / weights.sum()
        return whole

    def draws(self, bounds: Sequence[Bounds]) -> Draws:
        """Return `Draws` of the first units: one unit for each item of ``bounds``, in [-1, 1]."""
        lows, highs = (np.array([one[side] for one in bounds], float) for side in (0, 1))
        return Draws(lows, highs, self.weights[: len(bounds)])

    def rows(self, samples: int, *, weighed: bool = False) -> np.ndarray:
        """Return the number of rows of each unit, int64 (units,). If ``weighed``, count only rows
        of items with a weight above 0."""
        entries = [
            sum(len(item.entries) for item in unit.items if item.weight > 0 or not weighed)
            for unit in self.units
        ]
        return np.array(entries) * samples


def order_of(
    benchmark: Benchmark,
    entries: Sequence[Entry],
    places: Sequence[int],
    rules: Sequence[str],
    seed: int,
) -> Order:
    """Draw the order of the units of ``benchmark``.

    ``places``: indices of the benchmark's entries in ``entries``. Raises `UserError` if the
    headline is not a weighted mean of the entries, or if its weights differ between rule sets."""
    kind = type(benchmark)
    cells: dict[tuple[str, str], dict[str, list[int]]] = {}
    for place in places:
        entry = entries[place]
        key = own_task(_row(entry, 0, {}))
        cells.setdefault(entry.category_key, {}).setdefault(key, []).append(place)
    weights: dict[tuple[str, str], float] = {}
    for rule in rules:
        found = {cell: _headline_where(kind, entries, cells, rule, {cell}) for cell in cells}
        if weights and any(abs(found[cell] - weights[cell]) > _CLOSE for cell in cells):
            raise _refused(kind, f"has different weights under {rule} and under {rules[0]}")
        weights = weights or found
        _check_linear(kind, entries, cells, weights, rules[0], rule, seed)
    units: dict[str, list[Item]] = {}
    for cell, items in cells.items():
        shares = [0.0] * len(items)  # entries without weight do not affect decisions
        if weights[cell] > 0:
            shares = _shares(kind, entries, list(items.values()), rules[0])
        for members, share in zip(items.values(), shares, strict=True):
            item = Item(tuple(members), weights[cell] * share)
            with own_code(kind, "task"):
                task = kind.task(_row(entries[members[0]], 0, {}))
            units.setdefault(task, []).append(item)
    made = [Unit(benchmark.name, name, tuple(items)) for name, items in units.items()]
    drawn = drawn_order(
        [f"{benchmark.name} {unit.name}" for unit in made], [unit.weight for unit in made], seed
    )
    return Order(kind, [made[at] for at in drawn], tuple(rules), seed)


def uniform(seed: int, name: str) -> float:
    """Return a number in (0, 1) that depends only on the seed and the name."""
    drawn = hashlib.sha256(f"{seed} {name}".encode()).digest()
    return ((int.from_bytes(drawn[:8], "big") >> (64 - _BITS)) + 0.5) / (1 << _BITS)


def drawn_order(names: Sequence[str], weights: Sequence[float], seed: int) -> np.ndarray:
    """Return the indices of ``names`` in the order in which they are drawn, int64 (n,).

    Each name is drawn from the remaining names with a probability proportional to its weight. This
    sorts the names by ``-log(u) / weight``, where ``u`` is a hash of the seed and the name
    (Efraimidis and Spirakis 2006). So the order of two names does not depend on the machine, the
    model, or the other entries of the run. Names of weight 0 come last."""
    keys = [
        -math.log(uniform(seed, name)) / weight if weight > 0 else math.inf
        for name, weight in zip(names, weights, strict=True)
    ]
    return np.array(sorted(range(len(names)), key=lambda at: (keys[at], names[at])), np.int64)


def value_of(benchmark: type[Benchmark], rows: Iterable[ResultRow], rules: str) -> float:
    """Compute the value of one item from all of its scored ``rows``. Raises `UserError` if the
    value is not between 0 and 1."""
    value = _headline(benchmark, rows, rules)
    if not 0 <= value <= 1:
        raise _refused(
            benchmark, f"gives an entry the value {value:g}, which is not between 0 and 1"
        )
    return value


def _headline(benchmark: type[Benchmark], rows: Iterable[ResultRow], rules: str) -> float:
    with own_code(benchmark, "statistics"):
        summary: Mapping[str, Any] = benchmark.statistics(rows, 1.0)
        first = benchmark.scores(summary, rules)[0]
    if first.estimate is None:
        raise _refused(benchmark, "has no value for these entries")
    return first.estimate.value


Cells = Mapping[tuple[str, str], Mapping[str, Sequence[int]]]


def _shares(
    benchmark: type[Benchmark],
    entries: Sequence[Entry],
    items: Sequence[Sequence[int]],
    rules: str,
) -> list[float]:
    """Return each item's share of its category's weight: equal, or in proportion to its size.

    A simulated run of two items shows which of these two rules the headline follows. Raises
    `UserError` if it follows neither."""
    sizes = [len(members) for members in items]
    small, large = min(sizes), max(sizes)
    if small == large:
        return [1 / len(items)] * len(items)
    pair = [items[sizes.index(small)], items[sizes.index(large)]]
    rows = (
        _row(entries[place], 0, dict.fromkeys(benchmark.rule_sets, Verdict(not number)))
        for number, members in enumerate(pair)
        for place in members
    )
    value = _headline(benchmark, rows, rules)
    if abs(value - 0.5) <= _CLOSE:
        return [1 / len(items)] * len(items)
    if abs(value - small / (small + large)) > _CLOSE:
        raise _refused(benchmark, "is not a weighted mean of its entries")
    return [size / sum(sizes) for size in sizes]


def _headline_where(
    benchmark: type[Benchmark],
    entries: Sequence[Entry],
    cells: Cells,
    rules: str,
    right: set[tuple[str, str]],
) -> float:
    """Compute the headline of a simulated run whose answers are correct in the cells ``right``, and
    wrong in all others. A cell is a (language, category)."""
    rows = (
        _row(entries[place], 0, {r: Verdict(cell in right) for r in benchmark.rule_sets})
        for cell, items in cells.items()
        for members in items.values()
        for place in members
    )
    return _headline(benchmark, rows, rules)


def _check_linear(
    benchmark: type[Benchmark],
    entries: Sequence[Entry],
    cells: Cells,
    weights: Mapping[tuple[str, str], float],
    first: str,
    rules: str,
    seed: int,
) -> None:
    """Raise `UserError` if the headline under ``rules`` is not the weighted mean of its cells.
    ``first``: rule set under which the shares of the items were measured."""
    drawn = random.Random(seed)
    rows, expected = [], 0.0
    for cell, items in cells.items():
        values = []
        for members in items.values() if weights[cell] > 0 else ():
            mine = [
                _row(
                    entries[place],
                    0,
                    dict.fromkeys(benchmark.rule_sets, Verdict(drawn.random() < 0.6)),
                )
                for place in members
            ]
            rows += mine
            values.append(mine)
        shares = _shares(benchmark, entries, list(items.values()), first) if values else []
        for one, share in zip(values, shares, strict=True):
            expected += weights[cell] * share * value_of(benchmark, iter(one), rules)
    whole = _headline(benchmark, iter(rows), rules)
    # The rows lack categories of weight 0, so the headline may be partial. Check only its value.
    if abs(sum(weights.values()) - 1.0) > _CLOSE or abs(whole - expected) > _CLOSE:
        raise _refused(benchmark, "is not a weighted mean of its entries")


def _refused(benchmark: type[Benchmark], why: str) -> UserError:
    return UserError(
        f"the headline of {benchmark.name} {why}, so no comparison of it can be decided early",
        where="early",
        fix="remove early, or evaluate this benchmark in a separate run without early stopping",
    )


def _row(entry: Entry, sample: int, verdicts: dict[str, Verdict]) -> ResultRow:
    group = entry.group or entry.id
    return ResultRow(
        row_id="",
        benchmark=entry.benchmark,
        category=entry.category,
        language=entry.language,
        id=entry.id,
        group=group,
        sample=sample,
        status="scored",
        verdicts=verdicts,
    )
