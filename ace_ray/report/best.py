"""The best run of each group, and how good it is on entries that did not choose it.

The best of several runs was also the luckiest: on the entries that chose it, its score is too high
(the winner's curse). So one half of the entries chooses, and the other half says how good it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ace_ray.benchmarks.reporting import Estimate
from ace_ray.records import digest
from ace_ray.report.paired import Group, PairedData, Unit, mean_estimate, unit_means


@dataclass(frozen=True, slots=True)
class Best:
    """``chosen`` (a label) is the best run on the choosing half of the entries.

    ``choosing`` is its score there, too high by the choice, ``held_out`` on the other half, which
    had no part in it. ``tied`` names runs that were as good there; the first run is taken.
    ``highest`` is the best on all entries and ``everything`` its score, also too high. Ranked were
    the checkpoints of ``series``, "" for all runs.
    """

    benchmark: str
    rules: str
    series: str
    group: Group
    chosen: str
    tied: tuple[str, ...]
    choosing: Estimate
    held_out: Estimate
    highest: str
    everything: Estimate


def best_runs(
    data: PairedData, rules: str, labels: Sequence[str], series: str = ""
) -> Iterator[Best]:
    """The best of the runs ``labels`` on each group that has entries in both halves judged in all
    of them."""
    values = np.array(
        [unit_means(data.cells, "accuracy", rules, data.labels.index(label)) for label in labels]
    )
    # Runs are ranked on the same entries.
    common = ~np.isnan(values).any(axis=0)
    first = choosing_half(data)
    for group in data.main_groups():
        within = common & data.cells.within(group.strata)
        if (within & first).any() and (within & ~first).any():
            ranked = _Ranked(labels, values[:, within], first[within])
            yield _best(ranked, data.benchmark, rules, group, series)


def choosing_half(data: PairedData) -> np.ndarray:
    """(units,): whether a unit chooses. By a hash of the first key of its cluster, so the same in
    every comparison of the same entries."""
    _, first, cluster_of = np.unique(data.cells.cluster_of, return_index=True, return_inverse=True)
    chooses = [_chooses(data.benchmark, data.cells.units[index]) for index in first]
    half: np.ndarray = np.array(chooses, dtype=bool)[cluster_of]
    return half


def _chooses(benchmark: str, unit: Unit) -> bool:
    return int(digest("best", benchmark, *unit)[:8], 16) % 2 == 0


@dataclass(frozen=True)
class _Ranked:
    """What runs reached (runs, units) on units that all of them have, and (units,) which choose."""

    labels: Sequence[str]
    values: np.ndarray
    first: np.ndarray

    def scores(self, mask: np.ndarray) -> list[Estimate]:
        """Of each run; ``mask`` holds units."""
        scores = [mean_estimate(values[mask]) for values in self.values]
        return [score for score in scores if score is not None]


def _best(ranked: _Ranked, benchmark: str, rules: str, group: Group, series: str) -> Best:
    choosing = ranked.scores(ranked.first)
    everything = ranked.scores(np.ones_like(ranked.first))
    runs = range(len(ranked.labels))
    chosen = max(runs, key=lambda run: choosing[run].value)
    highest = max(runs, key=lambda run: everything[run].value)
    return Best(
        benchmark=benchmark,
        rules=rules,
        series=series,
        group=group,
        chosen=ranked.labels[chosen],
        choosing=choosing[chosen],
        held_out=ranked.scores(~ranked.first)[chosen],
        tied=tuple(
            ranked.labels[run]
            for run in runs
            if run != chosen and choosing[run].value == choosing[chosen].value
        ),
        highest=ranked.labels[highest],
        everything=everything[highest],
    )
