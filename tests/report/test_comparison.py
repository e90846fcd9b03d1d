"""The best run of a group, and the winner's curse."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from ace_ray.reports.comparison import Best, best_runs, choosing_half
from ace_ray.reports.paired import PairedData
from tests.report.builders import column, made, paired


def best_among(ranked: PairedData) -> Iterator[Best]:
    return best_runs(ranked, "strict", ranked.labels)


def test_the_best_run_is_chosen_on_one_half() -> None:
    rng = np.random.default_rng(0)
    runs = [column(rng.random(400) < share) for share in (0.4, 0.6, 0.5)]
    data = paired(*runs)
    (best,) = best_among(data)
    half = choosing_half(data)
    values = [np.array([row.verdicts["strict"].valid for row in run]) for run in runs]
    order = [int(unit[2]) for unit in data.cells.units]
    assert (best.chosen, best.highest) == ("r1", "r1")
    assert best.choosing.value == pytest.approx(values[1][order][half].mean())
    assert best.held_out.value == pytest.approx(values[1][order][~half].mean())
    assert best.choosing.n + best.held_out.n == best.everything.n == 400
    assert 160 < half.sum() < 240


@pytest.mark.nightly
def test_the_winner_s_curse_is_gone_from_the_held_out_half() -> None:
    """Twenty equal runs: the best looks better than it is, but not on the entries held out."""
    rng = np.random.default_rng(1)
    chosen, held = [], []
    for _ in range(20):
        (best,) = best_among(paired(*(column(rng.random(100) < 0.5) for _ in range(20))))
        chosen.append(best.choosing.value)
        held.append(best.held_out.value)
    assert np.mean(chosen) > 0.58
    assert np.mean(held) == pytest.approx(0.5, abs=0.035)


def test_halves_keep_dialogues_and_tasks_whole_and_do_not_depend_on_the_rest() -> None:
    rows = [made(True, f"{d}_{t}", group=str(d)) for d in range(40) for t in range(3)]
    alone, more = paired(rows), paired([*rows, *column([True] * 9, category="d")])
    halves = [
        dict(zip(s.cells.units, choosing_half(s).tolist(), strict=True)) for s in (alone, more)
    ]
    assert all(halves[1][unit] == half for unit, half in halves[0].items())
    tasks = paired(column([True] * 40), task=lambda row: str(int(row.id) // 2))
    by_task: dict[int, set[bool]] = {}
    for unit, half in zip(tasks.cells.units, choosing_half(tasks).tolist(), strict=True):
        by_task.setdefault(int(unit[2]) // 2, set()).add(half)
    assert all(len(found) == 1 for found in by_task.values())


def test_runs_are_ranked_on_entries_that_all_have() -> None:
    """A run that lacks what it would get wrong is not the best."""
    whole = column([True] * 60 + [False] * 40)
    lucky = [*column([True] * 60), *(made(False, str(i), status="skipped") for i in range(60, 100))]
    (best,) = best_among(paired(whole, lucky))
    assert (best.chosen, best.tied, best.everything.n) == ("r0", ("r1",), 60)


def test_no_best_run_without_two_halves() -> None:
    assert list(best_among(paired(column([True]), column([False])))) == []
