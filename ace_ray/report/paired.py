"""Rows of several runs laid side by side: the same question, the same sample, every run's verdict.

A *unit* is what is judged as one: an entry, or the dialogue that entries share
(`ace_ray.records.Entry.group`). A *cell* is one sample of a unit. A *cluster* holds the units of
one task, mostly one: clusters are independent evidence, units within one are not. Rows pair by
benchmark, language, category, id and sample; the row ids of two models differ.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from ace_ray.benchmarks.protocol import ScoredRow
from ace_ray.benchmarks.reporting import own_task
from ace_ray.records import RULE_SETS

Unit = tuple[str, str, str]
"""(language, category, group)"""
Stratum = tuple[str, str]
"""(language, category)"""
Metric = Literal["accuracy", "process"]
METRICS: tuple[Metric, ...] = ("accuracy", "process")
_PROCESS = "process_accuracy"
"""The metric of a row's verdict that is its process accuracy (docs/results.md)."""


@dataclass(frozen=True)
class Cells:
    """What each run reached in each cell.

    ``accuracy`` is 1 where the row is valid, of a dialogue where all its turns are, else 0.
    ``process`` is the row's process accuracy, of a dialogue the share of its valid turns. Both are
    NaN where the run has no verdict on a row of the cell, ``process`` also where there is none.
    """

    units: Sequence[Unit]
    unit_of: np.ndarray
    """(cells,): index into ``units``."""
    cluster_of: np.ndarray
    """(units,): which share a number are of one task."""
    rows: np.ndarray
    """(cells,): how many rows a cell has, more than one in dialogues."""
    values: dict[tuple[Metric, str], np.ndarray]
    """(metric, rule set) -> (runs, cells)."""

    @cached_property
    def strata(self) -> tuple[list[Stratum], np.ndarray]:
        """The strata, and (units,): the index of each unit's."""
        found: dict[Stratum, int] = {}
        of_unit = [found.setdefault(unit[:2], len(found)) for unit in self.units]
        return list(found), np.array(of_unit, dtype=np.int64)

    def within(self, strata: Collection[Stratum]) -> np.ndarray:
        """(units,): whether it is of one of ``strata``."""
        names, of_unit = self.strata
        mask: np.ndarray = np.array([name in strata for name in names], dtype=bool)[of_unit]
        return mask


def cells_of(
    runs: Sequence[Sequence[ScoredRow]], task: Callable[[ScoredRow], str] = own_task
) -> Cells:
    """The cells that any of ``runs`` has, each a run's rows of one benchmark.

    ``task`` is `ace_ray.benchmarks.reporting.Reporting.task`.
    """
    turns: dict[Unit, set[str]] = {}
    tasks: dict[Unit, str] = {}
    dialogues: set[Unit] = set()
    keys: set[tuple[Unit, int]] = set()
    for run in runs:
        for row in run:
            unit = unit_of(row)
            turns.setdefault(unit, set()).add(row.id)
            tasks.setdefault(unit, task(row))
            keys.add((unit, row.sample))
            if row.group != row.id:
                dialogues.add(unit)
    # Sorted, so that the order of stored rows moves nothing.
    units = sorted(turns)
    place = {unit: index for index, unit in enumerate(units)}
    cells = {key: index for index, key in enumerate(sorted(keys))}
    rows = np.array([len(turns[unit]) for unit, _ in cells], dtype=np.int64)
    together = np.array([unit in dialogues for unit, _ in cells], dtype=bool)
    values: dict[tuple[Metric, str], np.ndarray] = {}
    for rules in RULE_SETS:
        judged = [_judged(run, cells, rows, together, rules) for run in runs]
        values["accuracy", rules] = np.array([accuracy for accuracy, _ in judged])
        values["process", rules] = np.array([process for _, process in judged])
    clusters = {name: index for index, name in enumerate(sorted(set(tasks.values())))}
    return Cells(
        units=units,
        unit_of=np.array([place[unit] for unit, _ in cells], dtype=np.int64),
        cluster_of=np.array([clusters[tasks[unit]] for unit in units], dtype=np.int64),
        rows=rows,
        values=values,
    )


def unit_of(row: ScoredRow) -> Unit:
    return (row.language, row.category, row.group)


def _judged(
    run: Sequence[ScoredRow],
    cells: dict[tuple[Unit, int], int],
    rows: np.ndarray,
    together: np.ndarray,
    rules: str,
) -> tuple[np.ndarray, np.ndarray]:
    """Accuracy and process accuracy of one run, by cell."""
    scored, valid, process, with_process = np.zeros((4, len(cells)))
    for row in run:
        verdict = row.verdicts.get(rules)
        if row.status != "scored" or verdict is None:
            continue
        cell = cells[unit_of(row), row.sample]
        scored[cell] += 1
        valid[cell] += verdict.valid
        if _PROCESS in verdict.metrics:
            with_process[cell] += 1
            process[cell] += verdict.metrics[_PROCESS]
    # A dialogue of which a turn is missing is not judged.
    whole = scored == rows
    own = np.where(with_process == rows, process / rows, np.nan)
    return (
        np.where(whole, valid == rows, np.nan),
        np.where(whole, np.where(together, valid / rows, own), np.nan),
    )


@dataclass(frozen=True)
class Pairs:
    """Two runs under one metric and rule set, by unit; all arrays are (units,).

    ``base`` and ``other`` are means over the cells that both runs have verdicts on, NaN where there
    are none. ``samples`` counts those cells, ``left_out`` the rows of the cells that are not
    paired.
    """

    base: np.ndarray
    other: np.ndarray
    samples: np.ndarray
    left_out: np.ndarray


def pairs_of(cells: Cells, metric: Metric, rules: str, base: int, other: int) -> Pairs:
    """The runs number ``base`` and ``other`` of ``cells``, paired."""
    values = cells.values[metric, rules]
    both = ~np.isnan(values[base]) & ~np.isnan(values[other])
    count = len(cells.units)
    return Pairs(
        _means(cells, values[base], both),
        _means(cells, values[other], both),
        np.bincount(cells.unit_of[both], minlength=count),
        np.bincount(cells.unit_of[~both], cells.rows[~both], minlength=count),
    )


def alone(cells: Cells, metric: Metric, rules: str, run: int) -> np.ndarray:
    """The mean of one run by unit, (units,); NaN where it has no verdict."""
    values = cells.values[metric, rules][run]
    return _means(cells, values, ~np.isnan(values))


def _means(cells: Cells, values: np.ndarray, mask: np.ndarray) -> np.ndarray:
    count = len(cells.units)
    where = cells.unit_of[mask]
    found = np.bincount(where, minlength=count)
    sums = np.bincount(where, values[mask], minlength=count)
    means: np.ndarray = np.divide(sums, found, out=np.full(count, np.nan), where=found > 0)
    return means
