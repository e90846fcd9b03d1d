"""Ray Data's executor looks less often while much is left, and at once at the end."""

from __future__ import annotations

import pytest

from ace_ray.run.graph import PAUSE_S, ThrottledExecutor, pause


@pytest.mark.parametrize(
    ("left", "seconds"), [(24, 0.024), (100, 0.1), (2_040, PAUSE_S), (0, 0.0), (-8, 0.0)]
)
def test_a_row_that_is_left_is_worth_a_millisecond(left: int, seconds: float) -> None:
    assert pause(left, stopping=False) == pytest.approx(seconds)


def test_a_run_that_is_to_end_does_not_wait() -> None:
    assert pause(2_040, stopping=True) == 0.0


def test_each_look_pauses_as_long_as_the_graph_says(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("ace_ray.run.graph.time.sleep", slept.append)
    monkeypatch.setattr(ThrottledExecutor, "pause", staticmethod(lambda: 0.07))
    ThrottledExecutor().on_execution_step(None)
    assert slept == [0.07]
