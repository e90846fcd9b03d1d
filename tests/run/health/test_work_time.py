"""What work takes, whoever else has the cores."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from ace_ray.run.health.processes import WorkTime


def work(seconds: float) -> None:
    """So many seconds of CPU."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def keep_busy(core: int, has_it: Event) -> None:
    os.sched_setaffinity(0, {core})
    has_it.set()
    while True:
        pass


@pytest.fixture
def shared_core() -> Iterator[None]:
    """This process has one core, and another process, too."""
    cores = os.sched_getaffinity(0)
    core = min(cores)
    context = multiprocessing.get_context("fork")
    has_it = context.Event()
    rival = context.Process(target=keep_busy, args=(core, has_it), daemon=True)
    rival.start()
    assert has_it.wait(600)
    os.sched_setaffinity(0, {core})
    yield
    os.sched_setaffinity(0, cores)
    rival.kill()
    rival.join()


@pytest.mark.nightly
@pytest.mark.skipif(not Path("/proc/thread-self/schedstat").exists(), reason="needs Linux")
@pytest.mark.usefixtures("shared_core")
def test_a_core_that_others_have_is_not_counted() -> None:
    time_of_work, wall = WorkTime(), time.perf_counter()
    with time_of_work.working():
        work(0.5)
    passed, taken = time.perf_counter() - wall, time_of_work.taken_s()
    assert passed > 0.75, "the other process had the core half of the time"
    assert 0.5 <= taken < 0.65


def test_what_it_waits_for_is_counted() -> None:
    time_of_work = WorkTime()
    with time_of_work.working():
        time.sleep(0.3)
    assert time_of_work.taken_s() >= 0.29
    time.sleep(0.3)  # nothing to do
    assert time_of_work.taken_s() < 0.1, "what was told is told once"


def test_work_between_pieces_is_the_processs() -> None:
    time_of_work = WorkTime()
    work(0.2)
    assert 0.2 <= time_of_work.taken_s() < 0.3
