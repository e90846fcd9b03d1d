"""Test for each group of entries whether one run is better or worse than another.

`ace_ray.reports.paired` explains units, cells and groups. All tests under one rule set are a
family: their p-values are corrected for the number of tests. Rows that were generated twice give
the noise floor: the difference between two runs of the same model that occurs by chance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import Any

import numpy as np

from ace_ray.reports import significance
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
from ace_ray.reports.significance import ALPHA, Change, Share
from ace_ray.types import ResultRow
from ace_ray.util.stats import Z95, Interval

WEIGHT = 30  # of the noise of all groups, in cells, when the noise of one group is estimated


@dataclass(frozen=True, slots=True)
class Difference:
    """Difference ``other_mean`` - ``base_mean`` of shares in 0..1 over ``n`` units of equal weight.

    ``gained``, ``lost``: number of units on which the run ``other`` is better, or worse.
    ``left_out``: number of rows that lack a verdict in one of the runs. ``change``: the difference
    with its uncertainty, None if this cannot be computed. ``p``: uncorrected p-value of ``test``.
    ``sizes``: number of units of each cluster. ``moves``: sum of the units' differences in each
    cluster. ``samples``: number of samples of each unit."""

    n: int
    left_out: int
    base_mean: float
    other_mean: float
    value: float
    change: Change | None
    gained: int
    lost: int
    test: str
    p: float
    moves: np.ndarray = field(repr=False, compare=False)
    sizes: np.ndarray = field(repr=False, compare=False)
    samples: np.ndarray = field(repr=False, compare=False)

    @property
    def interval(self) -> Interval | None:
        """The 95 % interval."""
        return None if self.change is None else self.change.interval()


def difference_of(cells: Cells, pairs: Pairs, within: np.ndarray) -> Difference:
    """Compute the difference between both runs over the paired units that the mask ``within``
    selects, at least one."""
    units = within & (pairs.samples > 0)
    base_means, other_means = pairs.base_means[units], pairs.other_means[units]
    by_unit = other_means - base_means
    # Means of equal samples may differ in the last bit.
    by_unit[np.abs(by_unit) < 1e-12] = 0.0
    _, cluster_of = np.unique(cells.cluster_of[units], return_inverse=True)
    moves, sizes = np.bincount(cluster_of, by_unit), np.bincount(cluster_of)
    p, test = significance.difference_test(moves)
    return Difference(
        n=len(by_unit),
        left_out=int(pairs.left_out[within].sum()),
        base_mean=float(base_means.mean()),
        other_mean=float(other_means.mean()),
        value=float(by_unit.mean()),
        change=significance.change_of(moves, sizes, int(pairs.samples[units].sum())),
        gained=int(np.sum(by_unit > 0)),
        lost=int(np.sum(by_unit < 0)),
        test=test,
        p=p,
        moves=moves,
        sizes=sizes,
        samples=pairs.samples[units],
    )


def kept_share(cells: Cells, before: np.ndarray, after: np.ndarray) -> Share | None:
    """Return the share of the answers right ``before`` that are right ``after``, too; None if no
    answer is right before. Arrays have the scores of a run, (cells,), or NaN. Each unit counts the
    shares of its paired samples."""
    paired = ~np.isnan(before) & ~np.isnan(after)
    right = paired & (before == 1)
    if not right.any():
        return None
    samples, before_counts, after_counts = (
        np.bincount(cells.unit_of[mask], minlength=len(cells.units))
        for mask in (paired, right, right & (after == 1))
    )
    sizes, totals = (
        np.bincount(cells.cluster_of, counts / np.maximum(samples, 1))
        for counts in (before_counts, after_counts)
    )
    return significance.share_of(totals, sizes, int(right.sum()))


@dataclass(frozen=True, slots=True)
class Noise:
    """Noise of a group. ``n``: number of cells that were generated twice. ``flips``: number of
    these cells whose two values differ. ``variance``: mean squared difference between both values
    of a cell, shrunk towards the variance over all groups."""

    flips: int
    n: int
    variance: float

    def floor(self, samples: np.ndarray) -> float:
        """Compute the noise floor: 95 % of the differences between identical runs are smaller.
        ``samples``: number of samples over which the value of each unit is averaged."""
        return Z95 * sqrt(self.variance * float(np.mean(1 / samples)) / len(samples))


def repeats_of(
    rows: Sequence[ResultRow], again: Sequence[ResultRow], rule_sets: Sequence[str]
) -> Cells | None:
    """Return the cells of rows that were generated twice; None if ``again`` is empty. ``again``:
    the second generations of some ``rows`` of a run."""
    keys = {(unit_of(row), row.id, row.sample) for row in again}
    if not keys:
        return None
    first = [row for row in rows if (unit_of(row), row.id, row.sample) in keys]
    return cells_of([first, again], rule_sets)


def noise_of(
    repeats: Sequence[Cells], metric: Metric, rules: str, group: Group | None = None
) -> Noise | None:
    """Estimate the noise of ``group``, or of all groups together if it is None. ``repeats`` has an
    item per run. Return None if no row has two values."""
    moves, within = np.zeros(0), np.zeros(0, dtype=bool)
    for cells in repeats:
        first, second = cells.values[metric, rules]
        units = cells.mask_of(cells.strata[0] if group is None else group.strata)
        moves, within = np.append(moves, second - first), np.append(within, units[cells.unit_of])
    has_value = ~np.isnan(moves)
    if not has_value.any():
        return None
    group_moves, variance = moves[has_value & within], float(np.mean(moves[has_value] ** 2))
    if group is not None:
        variance = (float(np.sum(group_moves**2)) + WEIGHT * variance) / (len(group_moves) + WEIGHT)
    return Noise(int(np.sum(np.abs(group_moves) > 1e-9)), len(group_moves), variance)


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """The question whether run ``other`` is better or worse than run ``base`` on a group."""

    benchmark: str
    rules: str
    base: str
    other: str
    group: Group
    metric: Metric

    @property
    def table_key(self) -> tuple[str, str, str, str]:
        """Key of the printed table: (rules, base, other, benchmark)."""
        return (self.rules, self.base, self.other, self.benchmark)


@dataclass(frozen=True, slots=True, repr=False)
class TestResult:
    """The test of a hypothesis; one line of a comparison.

    ``holm``: p-value adjusted for the ``family``, the number of tests. ``detectable``: smallest
    true difference that a test on these units can show, or None if even 1 is too small. ``noise``:
    None if no rows were generated twice."""

    hypothesis: Hypothesis
    difference: Difference
    holm: float
    family: int
    detectable: float | None
    noise: Noise | None

    @property
    def is_significant(self) -> bool:
        """Whether the test shows a difference, at a family-wise error rate of `ALPHA`."""
        return self.holm < ALPHA

    @property
    def noise_floor(self) -> float | None:
        """The noise floor (`Noise.floor`), or None if no rows were generated twice."""
        return None if self.noise is None else self.noise.floor(self.difference.samples)

    @property
    def under_noise(self) -> bool:
        """Whether the difference is smaller than the noise floor."""
        return self.noise_floor is not None and abs(self.difference.value) < self.noise_floor

    @property
    def record(self) -> dict[str, Any]:
        """The columns of the line in ``comparison.csv`` (docs/statistics.md)."""
        hypothesis, difference, noise = self.hypothesis, self.difference, self.noise
        low, high = difference.interval or (None, None)
        return {
            **{name: getattr(hypothesis, name) for name in ("benchmark", "rules", "base", "other")},
            **{"group": hypothesis.group.name, "language": hypothesis.group.language},
            **{"metric": hypothesis.metric, "n": difference.n, "clusters": len(difference.sizes)},
            "left_out_rows": difference.left_out,
            **{"base_value": difference.base_mean, "other_value": difference.other_mean},
            **{"difference": difference.value, "low": low, "high": high},
            **{name: getattr(difference, name) for name in ("gained", "lost", "test", "p")},
            **{"holm_p": self.holm, "family": self.family, "shown": self.is_significant},
            **{"detectable": self.detectable, "noise_floor": self.noise_floor},
            "under_noise": self.under_noise,
            **{"repeated": noise.n if noise else 0, "repeated_flips": noise.flips if noise else 0},
        }


Measured = tuple[PairedData, Hypothesis, Difference]


def measure(
    data: Sequence[PairedData], pairs: Sequence[tuple[str, str]], rule_sets: Sequence[str]
) -> list[Measured]:
    """Compute all differences, in print order: by rule set, pair, benchmark, metric and group.

    ``pairs``: labels (base, other). A benchmark is compared for each pair whose runs both have it.
    """
    return [
        (paired, hypothesis, difference)
        for rules in rule_sets
        for base, other in pairs
        for paired in data
        if paired.has_runs(base, other) and rules in paired.rule_sets
        for hypothesis, difference in _differences(paired, base, other, rules)
    ]


def results_of(measured: Sequence[Measured]) -> list[TestResult]:
    """Test the differences, in the same order. The differences of a rule set are a family."""
    results: list[TestResult] = []
    for rules in dict.fromkeys(hypothesis.rules for _, hypothesis, _ in measured):
        tests = [m for m in measured if m[1].rules == rules]
        adjusted = significance.holm([difference.p for _, _, difference in tests])
        for (paired, hypothesis, difference), p in zip(tests, adjusted, strict=True):
            repeats = paired.repeats_between(hypothesis.base, hypothesis.other)
            noise = noise_of(repeats, hypothesis.metric, rules, hypothesis.group)
            sums, count = (difference.moves, difference.sizes), len(tests)
            limit = significance.detectable_effect(*sums, count)
            results.append(TestResult(hypothesis, difference, p, count, limit, noise))
    return results


def _differences(
    data: PairedData, base: str, other: str, rules: str
) -> Iterator[tuple[Hypothesis, Difference]]:
    for metric in METRICS:
        pairs = pairs_of(data.cells, metric, rules, *data.index_pair(base, other))
        paired_strata = data.cells.strata_of(pairs.samples > 0)
        for group in data.groups:
            # A group is reported only if all its categories have pairs.
            if group.strata <= paired_strata:
                hypothesis = Hypothesis(data.benchmark, rules, base, other, group, metric)
                within = data.cells.mask_of(group.strata)
                yield hypothesis, difference_of(data.cells, pairs, within)
