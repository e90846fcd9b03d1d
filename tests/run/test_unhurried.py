"""Ray Data's executor looks less often while much is left, and at once at the end."""

from __future__ import annotations

import pytest

from ace_ray.run import graph
from ace_ray.run.graph import PAUSE_S, Progress, unhurried


@pytest.mark.parametrize(
    ("owed", "stored", "pause"),
    [(24, 0, 0.024), (2_040, 0, PAUSE_S), (2_040, 1_940, 0.1), (24, 24, 0.0), (24, 32, 0.0)],
)
def test_a_row_that_is_left_is_worth_a_millisecond(
    owed: int, stored: int, pause: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(graph.time, "sleep", slept.append)
    progress = Progress(owed)
    step = unhurried(progress)().on_execution_step
    progress.stored = stored
    step(None)
    assert slept == pytest.approx([pause])
