"""The best run of each group, and how good it is on entries that did not choose it.

The best of several runs was also the luckiest: on the entries that chose it, its score is too high
(the winner's curse). So one half of the entries chooses, and the other half says how good it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ace_ray.benchmarks.results import Estimate
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
        if not (within & first).any() or not (within & ~first).any():
            continue
        choosing, everything = _scores(values, within & first), _scores(values, within)
        chosen, highest = _highest(choosing), _highest(everything)
        yield Best(
            benchmark=data.benchmark,
            rules=rules,
            series=series,
            group=group,
            chosen=labels[chosen],
            tied=tuple(
                label
                for run, label in enumerate(labels)
                if run != chosen and choosing[run].value == choosing[chosen].value
            ),
            choosing=choosing[chosen],
            held_out=_scores(values, within & ~first)[chosen],
            highest=labels[highest],
            everything=everything[highest],
        )


def choosing_half(data: PairedData) -> np.ndarray:
    """(units,): whether a unit chooses. By a hash of the first key of its cluster, so the same in
    every comparison of the same entries."""
    _, first, cluster_of = np.unique(data.cells.cluster_of, return_index=True, return_inverse=True)
    chooses = [_chooses(data.benchmark, data.cells.units[index]) for index in first]
    half: np.ndarray = np.array(chooses, dtype=bool)[cluster_of]
    return half


def _chooses(benchmark: str, unit: Unit) -> bool:
    return int(digest("best", benchmark, *unit)[:8], 16) % 2 == 0


def _scores(values: np.ndarray, mask: np.ndarray) -> list[Estimate]:
    """Of each run, on the units of the mask, which all have; ``values`` are (runs, units)."""
    scores = [mean_estimate(of_run[mask]) for of_run in values]
    return [score for score in scores if score is not None]


def _highest(scores: Sequence[Estimate]) -> int:
    """The first of the best."""
    return max(range(len(scores)), key=lambda run: scores[run].value)
