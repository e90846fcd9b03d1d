"""Processes of a run, what a checker reports of a row, and a clock that stands still."""

import time
from typing import Any

import pytest

from ace_ray.pipeline.health.heartbeat import Kind, ProcessInfo


class Clock:
    time_s = 1000.0

    def monotonic(self) -> float:
        return self.time_s

    time = monotonic


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Stop the monotonic clock until the test moves it."""
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock.monotonic)
    return clock


def process(pid: int = 1, actor: str = "actor", kind: Kind = "engine") -> ProcessInfo:
    return ProcessInfo(kind, actor, "host", "ab" * 28, pid, 1.0)


def judged_row(
    run: int = 0, *, language: str = "en", status: str = "scored", official: bool = True
) -> tuple[Any, ...]:
    scores = {"official": official, "strict": False} if status == "scored" else {}
    return (run, "toy", language, status, scores, 3, 5)
