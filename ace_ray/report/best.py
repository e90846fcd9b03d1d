"""The best run of each group, and how good it is on entries that did not choose it.

The best of several runs was also the luckiest: on the entries that chose it, its score is too high
(the winner's curse). So one half of the entries chooses, and the other half says how good it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ace_ray.benchmarks.reporting import Estimate
from ace_ray.records import digest
from ace_ray.report.groups import Group
from ace_ray.report.lines import Side
from ace_ray.report.paired import Unit, alone
from ace_ray.report.scores import estimate, shown_groups


@dataclass(frozen=True, slots=True)
class Best:
    """``chosen`` (a label) is the best run on the choosing half of the entries.

    ``choosing`` is its score there, too high by the choice, ``held_out`` on the other half, which
    had no part in it. ``tied`` names runs that were as good there; the first run is taken.
    ``highest`` is the best on all entries and ``everything`` its score, also too high.
    """

    benchmark: str
    rules: str
    group: Group
    chosen: str
    choosing: Estimate
    held_out: Estimate
    tied: tuple[str, ...]
    highest: str
    everything: Estimate


def best_runs(side: Side, rules: str) -> Iterator[Best]:
    """The best run of each group that has entries in both halves judged in all runs."""
    values = np.array(
        [alone(side.cells, "accuracy", rules, run) for run in range(len(side.labels))]
    )
    # Runs are ranked on the same entries.
    common = ~np.isnan(values).any(axis=0)
    first = choosing_half(side)
    for group in shown_groups(side):
        within = common & side.cells.within(group.strata)
        if (within & first).any() and (within & ~first).any():
            yield _best(side, rules, group, values, within, first)


def choosing_half(side: Side) -> np.ndarray:
    """(units,): whether a unit chooses. By a hash of the first key of its cluster, so the same in
    every comparison of the same entries."""
    _, first, cluster_of = np.unique(side.cells.cluster_of, return_index=True, return_inverse=True)
    chooses = [_chooses(side.benchmark, side.cells.units[index]) for index in first]
    half: np.ndarray = np.array(chooses, dtype=bool)[cluster_of]
    return half


def _chooses(benchmark: str, unit: Unit) -> bool:
    return int(digest("best", benchmark, *unit)[:8], 16) % 2 == 0


def _best(
    side: Side, rules: str, group: Group, values: np.ndarray, within: np.ndarray, first: np.ndarray
) -> Best:
    def score(run: int, mask: np.ndarray) -> Estimate:
        found = estimate(values[run][within & mask])
        assert found is not None  # both halves hold units
        return found

    everywhere = np.ones_like(first)
    runs = range(len(side.labels))
    chosen = max(runs, key=lambda run: score(run, first).value)
    highest = max(runs, key=lambda run: score(run, everywhere).value)
    top = score(chosen, first)
    return Best(
        benchmark=side.benchmark,
        rules=rules,
        group=group,
        chosen=side.labels[chosen],
        choosing=top,
        held_out=score(chosen, ~first),
        tied=tuple(
            side.labels[run]
            for run in runs
            if run != chosen and score(run, first).value == top.value
        ),
        highest=side.labels[highest],
        everything=score(highest, everywhere),
    )
