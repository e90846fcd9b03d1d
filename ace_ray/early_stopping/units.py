"""What is drawn: tasks, with their weight in a headline and their value for one run.

A benchmark says nothing of this by itself. Its headline is asked: what it is of a run in which one
category is right and all others are wrong is the category's weight, and what it is of a run that
has one dialogue alone is that dialogue's value. A headline that is no weighted mean of its entries
is refused: a run with random verdicts shows it.
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
from ace_ray.benchmarks.results import ScoredRow, own_task
from ace_ray.early_stopping.betting import Draws
from ace_ray.errors import UserError
from ace_ray.types import Entry, Verdict

Bounds = tuple[float, float]
_BITS = 53
_CLOSE = 0.005
"""Headlines that round on their way, as ACEBench's workbook does to three digits, are weighted
means but for that. What is compared is the mean without roundings."""


@dataclass(slots=True)
class Row:
    """A row as headlines see it (`ace_ray.benchmarks.results.ScoredRow`)."""

    language: str
    category: str
    id: str
    group: str
    sample: int
    verdicts: dict[str, Verdict]
    status: str = "scored"


@dataclass(frozen=True, slots=True)
class Item:
    """An entry or a dialogue: what is judged. ``entries`` are places in the plan's list; ``weight``
    is its share in the headline."""

    entries: tuple[int, ...]
    weight: float


@dataclass(frozen=True)
class Unit:
    """Items that are drawn together, since they are of one task."""

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
    """The rule sets whose headlines are decided."""
    seed: int

    @property
    def weights(self) -> np.ndarray:
        """Of the units; they add up to 1."""
        weights = np.array([unit.weight for unit in self.units])
        whole: np.ndarray = weights / weights.sum()
        return whole

    def draws(self, bounds: Sequence[Bounds]) -> Draws:
        """The first units, whose values lie within ``bounds``, in [-1, 1] each."""
        lows, highs = (np.array([one[side] for one in bounds], float) for side in (0, 1))
        return Draws(lows, highs, self.weights[: len(bounds)])

    def rows(self, samples: int, *, weighed: bool = False) -> np.ndarray:
        """Of each unit, how many rows it has; ``weighed``: that count in the headline."""
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
    """The order of the entries at ``places`` of a plan, all of ``benchmark``.

    Raises `UserError`: its headline is no weighted mean of them, or has other weights under
    another of ``rules``."""
    kind = type(benchmark)
    cells: dict[tuple[str, str], dict[str, list[int]]] = {}
    for place in places:
        entry = entries[place]
        key = own_task(_row(entry, 0, {}))
        cells.setdefault((entry.language, entry.category), {}).setdefault(key, []).append(place)
    weights: dict[tuple[str, str], float] = {}
    for rule in rules:
        found = {cell: _headline_where(kind, entries, cells, rule, {cell}) for cell in cells}
        if weights and any(abs(found[cell] - weights[cell]) > _CLOSE for cell in cells):
            raise _refused(kind, f"has other weights under {rule} than under {rules[0]}")
        weights = weights or found
        _check_linear(kind, entries, cells, weights, rules[0], rule, seed)
    units: dict[str, list[Item]] = {}
    for cell, items in cells.items():
        shares = [0.0] * len(items)  # what counts in no headline decides nothing
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
    """In (0, 1): the same for the same seed and name."""
    drawn = hashlib.sha256(f"{seed} {name}".encode()).digest()
    return ((int.from_bytes(drawn[:8], "big") >> (64 - _BITS)) + 0.5) / (1 << _BITS)


def drawn_order(names: Sequence[str], weights: Sequence[float], seed: int) -> np.ndarray:
    """The places of ``names`` in the order in which they are drawn, int64 (n,).

    Each next one is drawn from those that are left, with a chance in proportion to its weight
    (Efraimidis and Spirakis 2006): keys ``-log(u) / weight``, ascending, ``u`` from a hash of the
    seed and the name. So a place among others depends on nothing but them: not on the machine, the
    model, or which other entries are in the run. Units of weight 0 come last: nothing is decided
    by them.
    """
    keys = [
        -math.log(uniform(seed, name)) / weight if weight > 0 else math.inf
        for name, weight in zip(names, weights, strict=True)
    ]
    return np.array(sorted(range(len(names)), key=lambda at: (keys[at], names[at])), np.int64)


def value_of(benchmark: type[Benchmark], rows: Iterable[ScoredRow], rules: str) -> float:
    """What one item is worth, of all its scored rows. Raises `UserError`: no share."""
    value = _headline(benchmark, rows, rules)
    if not 0 <= value <= 1:
        raise _refused(benchmark, f"gives an entry the value {value:g}, which is no share")
    return value


def _headline(benchmark: type[Benchmark], rows: Iterable[ScoredRow], rules: str) -> float:
    with own_code(benchmark, "statistics"):
        summary: Mapping[str, Any] = benchmark.statistics(rows, 1.0)
        first = benchmark.scores(summary, rules)[0]
    if first.estimate is None:
        raise _refused(benchmark, "has no value of these entries")
    return first.estimate.value


Cells = Mapping[tuple[str, str], Mapping[str, Sequence[int]]]


def _shares(
    benchmark: type[Benchmark],
    entries: Sequence[Entry],
    items: Sequence[Sequence[int]],
    rules: str,
) -> list[float]:
    """Of each item in its cell: the same, or by its entries, as a run of the smallest and the
    largest tells. Raises `UserError`: neither."""
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
        raise _refused(benchmark, "is no weighted mean of its entries")
    return [size / sum(sizes) for size in sizes]


def _headline_where(
    benchmark: type[Benchmark],
    entries: Sequence[Entry],
    cells: Cells,
    rules: str,
    right: set[tuple[str, str]],
) -> float:
    """The headline of a run in which the entries of the cells ``right`` are right, others wrong."""
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
    """Raise `UserError` where the headline is not the weighted mean of the means of its cells.
    ``first``: the rule set that the items' shares are of."""
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
    # Without the categories that count nothing a headline may say that it is partial, no more.
    if abs(sum(weights.values()) - 1.0) > _CLOSE or abs(whole - expected) > _CLOSE:
        raise _refused(benchmark, "is no weighted mean of its entries")


def _refused(benchmark: type[Benchmark], why: str) -> UserError:
    return UserError(
        f"the headline of {benchmark.name} {why}, so no comparison of it can be decided early",
        where="early",
        fix="leave early out, or run this benchmark by itself without it",
    )


def _row(entry: Entry, sample: int, verdicts: dict[str, Verdict]) -> Row:
    group = entry.group or entry.id
    return Row(entry.language, entry.category, entry.id, group, sample, verdicts)
