"""The health monitor ends a run if engines, coordinator or lease are lost."""

import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import ray

from ace_ray.config.schema import RunConfig
from ace_ray.errors import RunFailed
from ace_ray.pipeline.health import monitor as monitor_module
from ace_ray.pipeline.health.heartbeat import Heartbeat, began_at
from ace_ray.pipeline.health.monitor import BUG_ROWS, END_S, HealthMonitor
from ace_ray.pipeline.monitoring.tally import Bug, Tally
from ace_ray.util.signals import Interrupts
from tests.pipeline.conftest import Clock, process

TIMES = {
    "start_timeout_s": 100.0,
    "store_retry_timeout_s": 50.0,
    "engine_stall_timeout_s": 40.0,
    "drain_timeout_s": 7.0,
}
SETTINGS = {"model": {"source": "fake"}, "backend": "fake", "benchmarks": ["acebench"], **TIMES}
READY = {"worker": "host:7", "load_s": 1.0, "start_s": {}}


class Ended(Interrupts):
    """Keeps the error that the health monitor ends the run with."""

    error: BaseException | None = None

    def abort(self, error: BaseException) -> None:
        self.error = self.error or error


class Monitored:
    """A monitor at work, with a coordinator and a clock of the test."""

    def __init__(
        self,
        clock: Clock,
        *,
        lost: str = "",
        had_success: bool = False,
        rows_end_at: float | None = None,
        **settings: Any,
    ) -> None:
        self.clock, self.looks = clock, 0
        self.tally = Tally()
        self.update: tuple[Tally, float] | None = None
        self.drained: list[float] = []
        self.interrupts = Ended()
        config = RunConfig.model_validate({**SETTINGS, **settings})
        coordinator = SimpleNamespace(
            read=SimpleNamespace(remote=self._read),
            drain=SimpleNamespace(remote=self.drained.append),
        )
        self.monitor = HealthMonitor(
            coordinator,
            config,
            self.interrupts,
            lambda: lost,
            rows=10,
            had_success=had_success,
            rows_end_at=rows_end_at,
        )

    def _read(self) -> Tally:
        if self.update is not None:
            (self.tally, seconds), self.update = self.update, None
            self.clock.time_s += seconds
        self.looks += 1
        return self.tally

    def later(self, seconds: float = 0.0, *, stored: int = 0, **changes: Any) -> Any:
        """Return the error, if any, after some looks at ``changes``, ``seconds`` later."""
        tally = Tally()
        tally.counts_of(0).stored = stored
        for name, value in changes.items():
            setattr(tally, name, value)
        self.update = tally, seconds
        looks, until = self.looks + 4, time.monotonic() + 30
        while self.looks < looks and self.interrupts.error is None:
            assert time.monotonic() < until
            time.sleep(0.001)
        return self.interrupts.error


@pytest.fixture
def monitored(monkeypatch: pytest.MonkeyPatch, log_lines: list[str]) -> Iterator[Any]:
    monkeypatch.setattr(monitor_module, "POLL_S", 0.001)
    monkeypatch.setattr(ray, "get", lambda answer, timeout: answer)
    clock, monitors = Clock(), list[Monitored]()
    monkeypatch.setattr(monitor_module, "time", clock)

    def make(**how: Any) -> Monitored:
        run = Monitored(clock, **how)
        monitors.append(run)
        run.monitor.__enter__()
        return run

    yield make
    for run in monitors:
        run.monitor.__exit__()


def test_engines_have_their_own_time_to_start(monitored: Any) -> None:
    """Served models load before."""
    run = monitored()
    assert run.later(500) is None
    run.monitor.start_timer()
    assert run.later(99) is None
    error = run.later(2)
    assert "no engine started within 100 s (start_timeout_s)" in str(error)
    assert (error.resumable, error.again) == (True, False)


BUG = {"bugs": {("toy", "place"): Bug("toy", "place", "Traceback", BUG_ROWS)}}
UP = {"workers": [READY]}
AGAIN = {"had_success": True}
ELASTIC = {"workers": {"max": 4}}
LATE = {"starting": {process(7): 101.0}}
LATE_CHECKER = {"starting": {process(7, kind="checker"): 101.0}}


@pytest.mark.parametrize(
    ("how", "changes", "words", "end"),
    [
        ({}, {"failure": "cannot start"}, "cannot start", (False, False)),
        (AGAIN, {"failure": "cannot start"}, "cannot start", (True, True)),
        (AGAIN, {"failure": "full", "store_failed": True}, "full", (True, False)),
        (AGAIN, UP | {"failure": "stuck", "no_progress": True}, "stuck", (True, False)),
        ({}, UP | BUG, "with the same exception", (False, False)),
        ({}, UP | LATE, "the engine worker host:7 is gone", (True, True)),
        (ELASTIC, UP | LATE_CHECKER, "the checker host:7 is gone", (True, True)),
        ({"lost": "it is taken"}, UP, "it is taken", (True, False)),
    ],
    ids=["first start", "later start", "store", "no progress", "bug", "engine", "checker", "lease"],
)
def test_what_ends_a_run(monitored, how, changes, words, end) -> None:
    error = monitored(**how).later(**changes)
    assert isinstance(error, RunFailed)
    assert words in str(error)
    assert (error.resumable, error.again) == end


def test_what_does_not_end_a_run(monitored: Any) -> None:
    failed = {"failure": "a checker failed", "silent": {process(7): 20.0}}
    for how, changes in (({}, failed), (AGAIN, BUG), (ELASTIC, LATE)):
        assert monitored(**how).later(**UP, **changes) is None


def test_silent_coordinator_ends_the_pass(monitored: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run = monitored()
    run.later(**UP)

    def refuse(answer: Any, timeout: float) -> Any:
        raise TimeoutError

    monkeypatch.setattr(ray, "get", refuse)
    error = run.later(61)
    assert "coordinator has not answered" in str(error)
    assert error.again


@pytest.mark.parametrize(
    ("exists", "silent", "stored", "ends"),
    [
        (True, 41.0, 0, False),  # just killed: another one takes its place
        (True, 101.0, 10, True),
        (False, 101.0, 0, False),  # removed, and its last rows are on their way
        (False, 151.0, 0, True),  # dead without a successor
        (False, 9e9, 10, False),  # removed when all was done
    ],
    ids=["killed", "not replaced", "removed", "dead", "done"],
)
def test_frozen_process_is_killed_and_must_be_replaced(
    monitored, monkeypatch, log_lines, exists, silent, stored, ends
) -> None:
    actor = SimpleNamespace(options=lambda **_: SimpleNamespace(remote=lambda *_: exists))
    monkeypatch.setattr(ray, "remote", lambda work: actor)
    run = monitored()
    error = run.later(**UP, silent={process(7): silent}, stored=stored)
    assert bool(error) == ends
    assert not ends or error.again
    assert log_lines == ["engine worker host:7 does not respond and is killed"] * exists


def test_elastic_pass_without_an_engine_ends(monitored: Any) -> None:
    run = monitored(workers={"max": 4}, had_success=True)
    run.monitor.start_timer()
    run.later(90, **UP, silent={process(7): 1.0})
    assert run.later(99, **UP) is None
    error = run.later(2, **UP)
    assert "no engine is left" in str(error)
    assert error.again


def test_request_to_stop_drains_and_then_ends(monitored: Any, log_lines: list[str]) -> None:
    run = monitored()
    run.later(**UP)
    run.interrupts.is_interrupted = True
    assert run.later(**UP) is None
    assert run.drained == [7.0]
    assert "finishing rows in flight (7 s)" in log_lines[-1]
    assert run.later(7.0 + END_S + 1, **UP).resumable
    idle = monitored()
    idle.interrupts.is_interrupted = True
    assert isinstance(idle.later(), KeyboardInterrupt), "nothing is in flight"


def test_time_limit_before_an_engine_is_ready_is_named(monitored, log_lines) -> None:
    late = monitored(rows_end_at=Clock.time_s - 1)
    error = late.later()
    assert isinstance(error, KeyboardInterrupt)
    line = "the time limit was reached before an engine was ready: 10 rows are left"
    assert str(error) == line
    assert log_lines == []
    run = monitored(rows_end_at=Clock.time_s - 1)
    assert run.later(**UP) is None
    assert run.drained == [0.0]
    assert log_lines[-1] == "the time limit is reached: the run stops"


def test_rows_that_do_not_stop_leave_time_for_the_summary(monitored: Any) -> None:
    run = monitored(rows_end_at=Clock.time_s + 80)
    run.interrupts.is_interrupted = True
    assert run.later(85, **UP) is None
    error = run.later(6, **UP)
    assert "stay pending" in str(error)
    assert error.again


def test_heartbeat_goes_on_after_an_exception() -> None:
    beats = threading.Event()

    def busy_since() -> None:
        raise RuntimeError("closed")

    def beat(*_: Any, **__: Any) -> None:
        beats.set()
        threading.Event().wait()  # the thread ends with the tests

    coordinator = SimpleNamespace(update_process=SimpleNamespace(remote=beat))
    Heartbeat(coordinator, process(7), stall_timeout_s=0.04, busy_since=busy_since)
    assert beats.wait(60)


def test_process_is_recognised_after_the_clock_was_set(monkeypatch: pytest.MonkeyPatch) -> None:
    me, created, boot = psutil.Process(), psutil.Process().create_time(), psutil.boot_time()
    before = began_at(me)
    monkeypatch.setattr(psutil, "boot_time", lambda: boot - 3600)
    monkeypatch.setattr(me, "create_time", lambda: created - 3600)
    assert began_at(me) == before
