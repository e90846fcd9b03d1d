"""Split a benchmark into units for early stopping, and measure each unit's weight in the headline.

The headline is a benchmark's main score. A unit is one task; its items are entries or dialogues.
Benchmarks do not declare weights, so weights are measured with simulated runs. If only one category
of a run is right, the headline equals the weight of this category. If a run contains only one
dialogue, the headline equals the value of this dialogue. A simulated run with random verdicts shows
whether the headline is a weighted mean of the entries. Other headlines are refused."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from ace_ray.benchmarks.base import Benchmark
from ace_ray.early_stopping.betting import Draws
from ace_ray.errors import UserError
from ace_ray.types import Entry, ResultRow, Verdict, task_key

Bounds = tuple[float, float]
# Seed of the order in which units are drawn.
SEED = 0
_BITS = 53
_NOT_LINEAR = "is not a weighted mean of its entries"
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
    """All items (entries or dialogues) of one task, which are drawn together."""

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
    rules: str
    """Rule set whose headline is compared with the reference run."""

    @property
    def weights(self) -> np.ndarray:
        """Weights of the units, which add up to 1."""
        weights = np.array([unit.weight for unit in self.units])
        shares: np.ndarray = weights / weights.sum()
        return shares

    def draws(self, bounds: Sequence[Bounds]) -> Draws:
        """Return the first units as `Draws`. ``bounds``: bounds of each unit's value, -1 to 1."""
        lows, highs = (np.array([pair[side] for pair in bounds], float) for side in (0, 1))
        return Draws(lows, highs, self.weights[: len(bounds)])

    def rows(self, samples: int, *, weighed: bool = False) -> np.ndarray:
        """Return the number of rows of each unit, int64 (units,). If ``weighed``, count only rows
        of items with a weight above 0."""
        entries = [
            sum(len(item.entries) for item in unit.items if item.weight > 0 or not weighed)
            for unit in self.units
        ]
        return np.array(entries) * samples


def order_of(benchmark: Benchmark, entries: Sequence[Entry], indices: Sequence[int]) -> Order:
    """Draw the order of the units (tasks) of ``benchmark``.

    ``indices``: indices of the benchmark's entries in ``entries``. Raises `UserError` if the
    headline under the first rule set is not a weighted mean of the entries."""
    kind, rules = type(benchmark), benchmark.rule_sets[0]
    categories: dict[tuple[str, str], dict[str, list[int]]] = {}
    for index in indices:
        entry = entries[index]
        members = categories.setdefault(entry.category_key, {})
        members.setdefault(task_key(_simulated_row(entry, kind, right=True)), []).append(index)
    items = []
    for category, tasks in categories.items():
        only_category_is_right = (
            _simulated_row(entries[i], kind, right=key == category)
            for key, groups in categories.items()
            for i in chain.from_iterable(groups.values())
        )
        weight = _headline(kind, only_category_is_right, rules)
        shares = [0.0] * len(tasks)  # entries without weight do not affect decisions
        if weight > 0:
            shares = _shares(kind, entries, list(tasks.values()), rules)
        pairs = zip(tasks.values(), shares, strict=True)
        items += [Item(tuple(members), weight * share) for members, share in pairs]
    _check_linear(kind, entries, items, rules)
    units: dict[str, list[Item]] = {}
    for item in items:
        task = kind.task(_simulated_row(entries[item.entries[0]], kind, right=True))
        units.setdefault(task, []).append(item)
    all_units = [Unit(name, tuple(members)) for name, members in units.items()]
    names = [f"{benchmark.name} {unit.name}" for unit in all_units]
    drawn = weighted_order(names, [unit.weight for unit in all_units])
    return Order(kind, [all_units[at] for at in drawn], rules)


def weighted_order(names: Sequence[str], weights: Sequence[float]) -> np.ndarray:
    """Return the indices of ``names`` in the order in which they are drawn, int64 (n,).

    Each name is drawn from the remaining names with a probability proportional to its weight. This
    sorts the names by ``-log(u) / weight``, where ``u`` is a hash of the seed and the name
    (Efraimidis and Spirakis 2006). So the order of two names does not depend on the machine, the
    model, or the other entries of the run. Names of weight 0 come last."""
    keys = []
    for name, weight in zip(names, weights, strict=True):
        drawn = int.from_bytes(hashlib.sha256(f"{SEED} {name}".encode()).digest()[:8], "big")
        uniform = ((drawn >> (64 - _BITS)) + 0.5) / (1 << _BITS)  # in (0, 1)
        keys.append(-math.log(uniform) / weight if weight > 0 else math.inf)
    return np.array(sorted(range(len(names)), key=lambda at: (keys[at], names[at])), np.int64)


def value_of(benchmark: type[Benchmark], rows: Iterable[ResultRow], rules: str) -> float:
    """Compute the value of one item from all of its scored ``rows``. Raises `UserError` if the
    value is not between 0 and 1."""
    value = _headline(benchmark, rows, rules)
    if not 0 <= value <= 1:
        raise _refusal_error(
            benchmark, f"gives an entry the value {value:g}, which is not between 0 and 1"
        )
    return value


def _headline(benchmark: type[Benchmark], rows: Iterable[ResultRow], rules: str) -> float:
    summary: Mapping[str, Any] = benchmark.statistics(rows, 1.0)
    first = benchmark.scores(summary, rules)[0]
    if first.estimate is None:
        raise _refusal_error(benchmark, "has no value for these entries")
    return first.estimate.value


def _shares(
    benchmark: type[Benchmark], entries: Sequence[Entry], items: Sequence[Sequence[int]], rules: str
) -> list[float]:
    """Return each item's share of its category's weight: equal, or in proportion to its size.

    A simulated run of two items shows which of these two rules the headline follows. Raises
    `UserError` if the headline follows neither rule."""
    sizes = [len(members) for members in items]
    small, large = min(sizes), max(sizes)
    equal = [1 / len(items)] * len(items)
    if small == large:
        return equal
    right, wrong = items[sizes.index(small)], items[sizes.index(large)]
    rows = (
        _simulated_row(entries[index], benchmark, right=indices is right)
        for indices in (right, wrong)
        for index in indices
    )
    value = _headline(benchmark, rows, rules)
    if abs(value - 0.5) <= _CLOSE:
        return equal
    if abs(value - small / (small + large)) > _CLOSE:
        raise _refusal_error(benchmark, _NOT_LINEAR)
    return [size / sum(sizes) for size in sizes]


def _check_linear(
    benchmark: type[Benchmark], entries: Sequence[Entry], items: Sequence[Item], rules: str
) -> None:
    """Raise `UserError` if the headline of random verdicts is not the mean of the ``items``."""
    drawn, rows, expected = random.Random(SEED), [], 0.0
    for item in items:
        if item.weight > 0:
            simulated = [
                _simulated_row(entries[index], benchmark, right=drawn.random() < 0.6)
                for index in item.entries
            ]
            rows += simulated
            expected += item.weight * value_of(benchmark, iter(simulated), rules)
    headline = _headline(benchmark, iter(rows), rules)
    # The rows lack categories of weight 0, so the headline may be partial. Check only its value.
    total = sum(item.weight for item in items)
    if abs(total - 1.0) > _CLOSE or abs(headline - expected) > _CLOSE:
        raise _refusal_error(benchmark, _NOT_LINEAR)


def _refusal_error(benchmark: type[Benchmark], why: str) -> UserError:
    return UserError(
        f"the headline of {benchmark.name} {why}, so no comparison of it can be decided early",
        where="early",
        fix="remove early, or evaluate this benchmark in a separate run without early stopping",
    )


def _simulated_row(entry: Entry, benchmark: type[Benchmark], *, right: bool) -> ResultRow:
    return ResultRow(
        row_id="",
        benchmark=entry.benchmark,
        category=entry.category,
        language=entry.language,
        id=entry.id,
        group=entry.group or entry.id,
        sample=0,
        status="scored",
        verdicts=dict.fromkeys(benchmark.rule_sets, Verdict(right)),
    )
