"""Pair the rows of several runs that have the same question and the same sample number.

A *unit* is an entry, or a dialogue whose entries are judged together (`ace_ray.types.Entry.group`).
A *cell* is one sample of a unit. A *cluster* contains the units of one task, in most cases one
unit. Clusters are statistically independent; the units of a cluster are not. A *stratum* is a
category in one language. A *group* contains one, several or all categories, in one language or all.

Rows are paired by benchmark, language, category, id and sample: row ids differ between models."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, product
from typing import Literal

import numpy as np

from ace_ray.types import ResultRow, task_key

Unit = tuple[str, str, str]  # (language, category, group)
Stratum = tuple[str, str]
Metric = Literal["accuracy", "process"]
METRICS: tuple[Metric, ...] = ("accuracy", "process")
_PROCESS = "process_accuracy"  # metric of a row (docs/results.md)
ALL = "All"  # name of the group of all categories


@dataclass(frozen=True)
class Cells:
    """Values of each run in each cell.

    ``accuracy`` is the score of the row; for a dialogue, 1 if all turns are valid, else 0.
    ``process`` is the process accuracy of the row; for a dialogue, the share of valid turns. Values
    are NaN if a row of the cell lacks its verdict, or the verdict of a row lacks the metric."""

    units: Sequence[Unit]
    unit_of: np.ndarray  # (cells,): index into ``units``
    cluster_of: np.ndarray  # (units,): number of the task
    samples: np.ndarray  # (cells,): number of the sample
    rows: np.ndarray  # (cells,): number of rows, more than one in dialogues
    values: dict[tuple[Metric, str], np.ndarray]  # (metric, rule set) -> (runs, cells)

    @cached_property
    def strata(self) -> tuple[list[Stratum], np.ndarray]:
        """The strata, and the index of the stratum for each unit."""
        indices: dict[Stratum, int] = {}
        of_unit = [indices.setdefault(unit[:2], len(indices)) for unit in self.units]
        return list(indices), np.array(of_unit, dtype=np.int64)

    def mask_of(self, strata: Collection[Stratum]) -> np.ndarray:
        """Return a mask (units,) of the units in ``strata``."""
        names, of_unit = self.strata
        mask: np.ndarray = np.array([name in strata for name in names], dtype=bool)[of_unit]
        return mask

    def strata_of(self, units: np.ndarray) -> set[Stratum]:
        """Return the strata of the units that the mask ``units`` selects."""
        names, of_unit = self.strata
        return {names[index] for index in np.unique(of_unit[units])}


def cells_of(
    runs: Sequence[Sequence[ResultRow]],
    rule_sets: Sequence[str],
    task: Callable[[ResultRow], str] = task_key,
) -> Cells:
    """Build the cells of ``runs``. Each item of ``runs`` has a run's rows of one benchmark.

    ``task`` returns the task of a row (`ace_ray.benchmarks.base.Benchmark.task`)."""
    turns: dict[Unit, set[str]] = {}
    tasks: dict[Unit, str] = {}
    dialogues: set[Unit] = set()
    keys: set[tuple[Unit, int]] = set()
    for row in chain.from_iterable(runs):
        unit = unit_of(row)
        turns.setdefault(unit, set()).add(row.id)
        tasks.setdefault(unit, task(row))
        keys.add((unit, row.sample))
        if row.group != row.id:
            dialogues.add(unit)
    # Sorted, so that results do not depend on the order of stored rows.
    units = sorted(turns)
    numbers = {unit: number for number, unit in enumerate(units)}
    cells = {key: index for index, key in enumerate(sorted(keys))}
    rows = np.array([len(turns[unit]) for unit, _ in cells], dtype=np.int64)
    together = np.array([unit in dialogues for unit, _ in cells], dtype=bool)
    values: dict[tuple[Metric, str], np.ndarray] = {}
    for rules in rule_sets:
        judged = zip(*(_accuracies(run, cells, rows, together, rules) for run in runs), strict=True)
        values |= {(m, rules): np.array(v) for m, v in zip(METRICS, judged, strict=True)}
    clusters = {name: index for index, name in enumerate(sorted(set(tasks.values())))}
    return Cells(
        units=units,
        unit_of=np.array([numbers[unit] for unit, _ in cells], dtype=np.int64),
        cluster_of=np.array([clusters[tasks[unit]] for unit in units], dtype=np.int64),
        samples=np.array([sample for _, sample in cells], dtype=np.int64),
        rows=rows,
        values=values,
    )


def unit_of(row: ResultRow) -> Unit:
    return (*row.category_key, row.group)


def _accuracies(
    run: Sequence[ResultRow],
    cells: dict[tuple[Unit, int], int],
    rows: np.ndarray,
    together: np.ndarray,
    rules: str,
) -> tuple[np.ndarray, np.ndarray]:
    """Compute accuracy and process accuracy of one run (the order of `METRICS`), by cell."""
    scored, score, process, with_process = np.zeros((4, len(cells)))
    for row in run:
        verdict = row.verdicts.get(rules)
        if row.status != "scored" or verdict is None:
            continue
        cell = cells[unit_of(row), row.sample]
        scored[cell] += 1
        score[cell] += verdict.score
        if _PROCESS in verdict.metrics:
            with_process[cell] += 1
            process[cell] += verdict.metrics[_PROCESS]
    # A dialogue with a missing turn is not judged.
    is_complete = scored == rows
    process_share = np.where(with_process == rows, process / rows, np.nan)
    return (
        np.where(is_complete, np.where(together, score == rows, score), np.nan),
        np.where(is_complete, np.where(together, score / rows, process_share), np.nan),
    )


@dataclass(frozen=True)
class Pairs:
    """The paired values of two runs under one metric and rule set. Arrays have an item per unit.

    A cell is paired if it has verdicts in both runs. ``base_means``, ``other_means``: means over a
    unit's paired cells, or NaN. ``samples``: number of these cells. ``left_out``: number of rows in
    the other cells."""

    base_means: np.ndarray
    other_means: np.ndarray
    samples: np.ndarray
    left_out: np.ndarray


def pairs_of(cells: Cells, metric: Metric, rules: str, base_index: int, other_index: int) -> Pairs:
    """Pair the values of the runs with these indices in ``cells``."""
    values = cells.values[metric, rules]
    in_both = ~np.isnan(values[base_index]) & ~np.isnan(values[other_index])
    count, units = len(cells.units), cells.unit_of[in_both]
    samples = np.bincount(units, minlength=count)
    with np.errstate(invalid="ignore"):  # 0 / 0 is NaN
        base_means, other_means = (
            np.bincount(units, values[run][in_both], minlength=count) / samples
            for run in (base_index, other_index)
        )
    left_out = np.bincount(cells.unit_of[~in_both], cells.rows[~in_both], minlength=count)
    return Pairs(base_means, other_means, samples, left_out)


@dataclass(frozen=True, slots=True)
class Group:
    """Entries that are compared together, with equal weights. ``language`` is "" for all languages.
    ``category`` is true for a single category that is not a named group."""

    name: str
    language: str
    strata: frozenset[Stratum]
    category: bool = False


def groups_of(units: Collection[Unit], by_group: Mapping[str, Sequence[str]]) -> list[Group]:
    """Return the groups whose categories all occur in ``units``, each set of entries once.

    ``by_group``: group -> categories (`ace_ray.benchmarks.base.Benchmark.groups`). Groups over all
    languages come first, then the groups of each language: named groups, then single categories.
    """
    unit_strata = {unit[:2] for unit in units}
    languages = sorted({language for language, _ in unit_strata})
    order = list(dict.fromkeys(category for members in by_group.values() for category in members))
    order += sorted({category for _, category in unit_strata} - set(order))
    groups: dict[frozenset[Stratum], Group] = {}
    for chosen in [languages, *([language] for language in languages)]:
        # The label names the language if there is only one.
        label = chosen[0] if len(chosen) == 1 else ""
        every = frozenset(stratum for stratum in unit_strata if stratum[0] in chosen)
        named = {name: frozenset(product(chosen, members)) for name, members in by_group.items()}
        candidates = [Group(n, label, strata) for n, strata in named.items() if strata <= every]
        if len({category for _, category in every}) > 1:
            candidates.append(Group(ALL, label, every))
        for name in order:
            strata = frozenset(stratum for stratum in every if stratum[1] == name)
            candidates.append(Group(name, label, strata, category=True))
        for group in candidates:
            if group.strata and len({language for language, _ in group.strata}) == len(chosen):
                groups.setdefault(group.strata, group)
    return list(groups.values())


@dataclass(frozen=True)
class PairedData:
    """The paired rows of one benchmark in the runs ``labels``.

    ``repeats``: cells of each run whose rows were generated twice, with the first and the second
    generation as two runs. ``seeds``: sampling seed of each run, None for greedy decoding."""

    benchmark: str
    labels: Sequence[str]
    cells: Cells
    groups: Sequence[Group]
    repeats: Sequence[Cells | None]
    seeds: Sequence[int | None]

    @property
    def rule_sets(self) -> list[str]:
        return list(dict.fromkeys(rules for _, rules in self.cells.values))

    def has_runs(self, base_label: str, other_label: str) -> bool:
        return base_label in self.labels and other_label in self.labels

    def index_pair(self, base_label: str, other_label: str) -> tuple[int, int]:
        """Return the indices of the runs ``base_label`` and ``other_label`` in ``labels``."""
        return self.labels.index(base_label), self.labels.index(other_label)

    def same_seed(self, base_label: str, other_label: str) -> bool:
        first, second = self.index_pair(base_label, other_label)
        return self.seeds[first] == self.seeds[second]

    def repeats_between(self, base_label: str, other_label: str) -> list[Cells]:
        """Return ``repeats`` of both runs, which show how much identical runs differ. The list is
        empty if the seeds of the runs differ, since a repeat uses its run's seed."""
        if not self.same_seed(base_label, other_label):
            return []
        indices = self.index_pair(base_label, other_label)
        return [cells for i in indices if (cells := self.repeats[i]) is not None]
