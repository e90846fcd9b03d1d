"""Is one run better or worse than another on a group? Every such hypothesis, tested.

The test results of a rule set are one family: their p-values are corrected for how many there are.
Rows that were generated twice give the noise floor, what two runs of one model differ by.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import sqrt

import numpy as np

from ace_ray.benchmarks.results import ScoredRow
from ace_ray.reports.paired import (
    METRICS,
    Cells,
    Group,
    Metric,
    PairedData,
    Pairs,
    cells_of,
    pairs_of,
    unit_of,
)
from ace_ray.reports.significance import (
    ALPHA,
    clustered_interval,
    detectable,
    difference_test,
    holm,
    newcombe,
)
from ace_ray.util.stats import Z95, Interval

WEIGHT = 30
"""Repeated cells that all groups together are worth beside a group's own: a group has few."""


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


def difference_of(cells: Cells, pairs: Pairs, within: np.ndarray) -> Difference:
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
        interval=_interval(base, other, moves, sizes),
        gained=int(np.sum(by_unit > 0)),
        lost=int(np.sum(by_unit < 0)),
        test=test,
        p=p,
        moves=moves,
        sizes=sizes,
        samples=pairs.samples[used],
    )


def _interval(
    base: np.ndarray, other: np.ndarray, moves: np.ndarray, sizes: np.ndarray
) -> Interval | None:
    binary = np.all(np.isin(base, (0.0, 1.0)) & np.isin(other, (0.0, 1.0)))
    if not binary or len(sizes) < len(base):
        return clustered_interval(moves, sizes)
    return newcombe(
        both=int(np.sum((base == 1) & (other == 1))),
        gained=int(np.sum(moves > 0)),
        lost=int(np.sum(moves < 0)),
        neither=int(np.sum((base == 0) & (other == 0))),
    )


@dataclass(frozen=True, slots=True)
class Noise:
    """Of ``n`` cells of a group generated twice ``flips`` differ.

    ``variance`` is the mean square of what a cell generated twice moves by, the group's own drawn
    towards that of all groups.
    """

    flips: int
    n: int
    variance: float

    def floor(self, samples: np.ndarray) -> float:
        """What 95 % of the differences of two identical runs stay within.

        ``samples``: of each unit how many are averaged.
        """
        return Z95 * sqrt(self.variance * float(np.mean(1 / samples)) / len(samples))


def repeats_of(
    rows: Sequence[ScoredRow], again: Sequence[ScoredRow], rule_sets: Sequence[str]
) -> Cells | None:
    """The cells of ``rows`` that ``again`` has a second time; None when there are none."""
    keys = {(unit_of(row), row.id, row.sample) for row in again}
    if not keys:
        return None
    first = [row for row in rows if (unit_of(row), row.id, row.sample) in keys]
    return cells_of([first, again], rule_sets)


def noise_of(repeats: Sequence[Cells], group: Group, metric: Metric, rules: str) -> Noise | None:
    """What the ``repeats`` of some runs say of ``group``; None without any."""
    every = overall_noise(repeats, metric, rules)
    if every is None:
        return None
    own = _known(
        _moves(cells, metric, rules)[cells.within(group.strata)[cells.unit_of]] for cells in repeats
    )
    squares = float(np.sum(own**2)) + WEIGHT * every.variance
    return Noise(_flips(own), len(own), squares / (len(own) + WEIGHT))


def overall_noise(repeats: Sequence[Cells], metric: Metric, rules: str) -> Noise | None:
    """What the ``repeats`` of some runs say of all groups together; None without any."""
    every = _known(_moves(cells, metric, rules) for cells in repeats)
    return Noise(_flips(every), len(every), float(np.mean(every**2))) if len(every) else None


def _known(parts: Iterable[np.ndarray]) -> np.ndarray:
    every = np.concatenate([np.zeros(0), *parts])
    known: np.ndarray = every[~np.isnan(every)]
    return known


def _flips(moves: np.ndarray) -> int:
    return int(np.sum(np.abs(moves) > 1e-9))


def _moves(repeats: Cells, metric: Metric, rules: str) -> np.ndarray:
    first, second = repeats.values[metric, rules]
    moves: np.ndarray = second - first
    return moves


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """Is ``other`` better or worse than ``base`` (labels of runs) on this group?"""

    benchmark: str
    rules: str
    base: str
    other: str
    group: Group
    metric: Metric

    @property
    def section(self) -> tuple[str, str, str, str]:
        """(rules, base, other, benchmark): the hypotheses that are printed as one table."""
        return (self.rules, self.base, self.other, self.benchmark)


@dataclass(frozen=True, slots=True, repr=False)
class TestResult:
    """A hypothesis and what the data say of it: a line of a comparison.

    ``holm`` is the p-value adjusted over the ``family``, all results of the rule set.
    ``detectable`` is the smallest true difference that this n shows as one of them; None: none at
    all. ``noise`` is None when nothing was generated twice.
    """

    hypothesis: Hypothesis
    difference: Difference
    holm: float
    family: int
    detectable: float | None
    noise: Noise | None

    @property
    def shown(self) -> bool:
        """Whether there is a difference, at a family-wise error of `ALPHA`."""
        return self.holm < ALPHA

    @property
    def noise_floor(self) -> float | None:
        """What 95 % of the differences between identical runs stay within."""
        return None if self.noise is None else self.noise.floor(self.difference.samples)

    @property
    def under_noise(self) -> bool:
        """Whether identical runs differ as much."""
        return self.noise_floor is not None and abs(self.difference.value) < self.noise_floor


def results_of(
    data: Sequence[PairedData], pairs: Sequence[tuple[str, str]], rule_sets: Sequence[str]
) -> list[TestResult]:
    """All results of a comparison in print order: by rule set, pair, benchmark, metric, group.

    ``pairs`` are labels (base, other); where a benchmark lacks one of them it has no results.
    """
    results: list[TestResult] = []
    for rules in rule_sets:
        measured = [
            (paired, hypothesis, difference)
            for base, other in pairs
            for paired in data
            if paired.holds(base, other) and rules in paired.rule_sets
            for hypothesis, difference in _differences(paired, base, other, rules)
        ]
        adjusted = holm([difference.p for _, _, difference in measured])
        for (paired, hypothesis, difference), p in zip(measured, adjusted, strict=True):
            repeats = paired.repeats_between(hypothesis.base, hypothesis.other)
            results.append(
                TestResult(
                    hypothesis=hypothesis,
                    difference=difference,
                    holm=p,
                    family=len(measured),
                    detectable=detectable(difference.moves, difference.sizes, len(measured)),
                    noise=noise_of(repeats, hypothesis.group, hypothesis.metric, rules),
                )
            )
    return results


def _differences(
    data: PairedData, base: str, other: str, rules: str
) -> Iterator[tuple[Hypothesis, Difference]]:
    for metric in METRICS:
        pairs = pairs_of(data.cells, metric, rules, *data.numbers(base, other))
        there = data.cells.strata_of(pairs.samples > 0)
        for group in data.groups:
            # A group of which a category has no pairs would bear its name wrongly.
            if group.strata <= there:
                within = data.cells.within(group.strata)
                yield (
                    Hypothesis(data.benchmark, rules, base, other, group, metric),
                    difference_of(data.cells, pairs, within),
                )
