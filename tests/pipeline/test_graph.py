"""Ray Data's executor looks less often while much is left, and at once at the end."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ace_ray.pipeline.graph import MANY_TASKS, NOTHING_S, PAUSE_S, ThrottledExecutor, pause


@pytest.mark.parametrize(
    ("left", "seconds"), [(24, 0.024), (100, 0.1), (2_040, PAUSE_S), (0, 0.0), (-8, 0.0)]
)
def test_a_row_that_is_left_is_worth_a_millisecond(left: int, seconds: float) -> None:
    assert pause(left, stopping=False) == pytest.approx(seconds)


def test_a_run_that_is_to_end_does_not_wait() -> None:
    assert pause(2_040, stopping=True) == 0.0


class Executor:
    """Ray Data's, with operators of so many tasks each."""

    def __init__(self, *tasks: int, unread: int = 0) -> None:
        made = [SimpleNamespace(get_waitable=lambda: "a waitable")] * max(tasks, default=0)
        self._topology = [
            SimpleNamespace(get_active_tasks=lambda count=count: made[:count]) for count in tasks
        ]
        self._metadata_fetcher = SimpleNamespace(_fifos={"an operator": ["a pair"] * unread})


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float]]:
    """What a look waits for, and how long at most."""
    waits: list[tuple[str, float]] = []
    monkeypatch.setattr("time.sleep", lambda seconds: waits.append(("pause", seconds)))

    def wait(waitables: list[str], *, timeout: float, **_: object) -> None:
        waits.append((f"{len(waitables)} tasks", timeout))

    monkeypatch.setattr("ray.wait", wait)
    monkeypatch.setattr(ThrottledExecutor, "pause", staticmethod(lambda: 0.07))
    return waits


def test_each_look_pauses_and_waits_for_a_task(waits: list[tuple[str, float]]) -> None:
    ThrottledExecutor().on_execution_step(Executor(2, 1))
    assert waits == [("pause", 0.07), ("3 tasks", NOTHING_S)]


@pytest.mark.parametrize("executor", [Executor(0, 0), Executor(MANY_TASKS), Executor(2, unread=1)])
def test_it_does_not_wait_for_what_will_not_come(
    waits: list[tuple[str, float]], executor: Executor
) -> None:
    ThrottledExecutor().on_execution_step(executor)
    assert waits == [("pause", 0.07)]


def test_a_graph_that_is_to_end_waits_for_nothing(
    waits: list[tuple[str, float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ThrottledExecutor, "stopping", staticmethod(lambda: True))
    ThrottledExecutor().on_execution_step(Executor(2))
    assert waits == [("pause", 0.07)]
