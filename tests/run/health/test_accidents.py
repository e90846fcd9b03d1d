"""Runs under simulated accidents (perf/accidents.py): only killers are quarantined, and soon."""

from __future__ import annotations

import pytest

from perf.accidents import simulated

RUNS, ROWS = 30, 10_000


@pytest.mark.nightly
@pytest.mark.parametrize("minutes", [1, 5, 20])
def test_no_innocent_row_is_quarantined(minutes: float) -> None:
    for run in simulated(RUNS, rows=ROWS, minutes=minutes, killers=2):
        quarantined = {row for row, end in run.ends.items() if end == "quarantined"}
        assert quarantined == run.killers
        assert max(run.engines.values()) <= 6


def test_nor_where_accidents_look_like_deaths_of_the_engines_own() -> None:
    for run in simulated(RUNS, rows=ROWS, minutes=5, killers=2, recognised=False):
        assert {row for row, end in run.ends.items() if end == "quarantined"} == run.killers


def test_the_simulation_can_quarantine_an_innocent_row() -> None:
    """With accidents at the pace of the work, and none recognised."""
    runs = simulated(5, rows=2000, minutes=1 / 6, seconds=60.0, start_s=1.0, recognised=False)
    assert any(set(run.ends) - run.killers for run in runs)
