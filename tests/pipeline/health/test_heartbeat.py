"""Heartbeats go on whatever a process's other threads do, and whatever its clock says."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import ray

from ace_ray.pipeline.health.processes import Heartbeat, ProcessInfo, began_at

PROCESS = ProcessInfo("engine", "actor", "host", "node", 7, 1.0)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_heartbeat_goes_on_after_an_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    over, drains = threading.Event(), list[float]()

    def raises(*errors: BaseException | None) -> Callable[..., None]:
        """Return a function whose calls raise ``errors``, one after another."""
        waiting = iter(errors)

        def step(*seconds: float) -> None:
            drains.extend(seconds)
            if error := next(waiting):
                if isinstance(error, SystemExit):
                    over.set()  # this ends the thread
                raise error

        return step

    monkeypatch.setattr(ray, "get", lambda answer, timeout: 7.0)
    Heartbeat(
        SimpleNamespace(beat=SimpleNamespace(remote=lambda *_: None)),
        PROCESS,
        stall_s=0.04,
        busy_since=raises(RuntimeError("closed"), None, None, SystemExit()),
        on_drain=raises(RuntimeError("closed"), None),
    )
    assert over.wait(60)
    assert drains == [7.0, 7.0]


def test_start_of_a_process_is_the_same_after_the_clock_was_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before, boot = began_at(psutil.Process()), psutil.boot_time()
    created = psutil.Process().create_time()
    monkeypatch.setattr(psutil, "boot_time", lambda: boot - 3600)
    moved: Any = SimpleNamespace(create_time=lambda: created - 3600)
    assert began_at(moved) == before
    assert 0 < before < time.monotonic()
