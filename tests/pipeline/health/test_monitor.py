"""What the health monitor makes of a tally: when it ends a run, and how."""

from __future__ import annotations

from typing import Any

import pytest

from ace_ray.config.schema import RunConfig
from ace_ray.errors import RunFailed
from ace_ray.pipeline.health import monitor as monitor_module
from ace_ray.pipeline.health.monitor import HealthMonitor
from ace_ray.pipeline.health.processes import ProcessInfo
from ace_ray.pipeline.health.signals import Interrupts
from ace_ray.pipeline.monitoring.counts import Tally

CONFIG = RunConfig.model_validate(
    {
        "model": {"source": "fake"},
        "backend": "fake",
        "benchmarks": [{"name": "acebench"}],
        "output": "runs",
        "start_timeout_s": 100.0,
        "store_patience_s": 50.0,
        "stall_s": 40.0,
    }
)
ENGINE = ProcessInfo("engine", "actor", "host", "node", 7, 1.0)
READY = {"worker": "host:7"}


class Ended(Interrupts):
    """Keeps what the health monitor ends the run with."""

    def __init__(self) -> None:
        super().__init__()
        self.error: BaseException | None = None

    def abort(self, error: BaseException) -> None:
        self.error = self.error or error


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(monitor_module, "time", clock)
    return clock


def monitored(
    *, had_success: bool = False, rows: int = 10, lost: str = ""
) -> tuple[HealthMonitor, Ended]:
    ended = Ended()
    return HealthMonitor(
        None, CONFIG, ended, lambda: lost, lambda line: None, rows=rows, had_success=had_success
    ), ended


def tally(**known: Any) -> Tally:
    made = Tally()
    made.of(0).stored = known.pop("stored", 0)
    for name, value in known.items():
        setattr(made, name, value)
    return made


def failure(ended: Ended) -> RunFailed:
    assert isinstance(ended.error, RunFailed)
    return ended.error


def test_the_last_look_tells_what_ended_since_the_look_before(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    monitor = HealthMonitor(
        None, CONFIG, Ended(), lambda: "", lines.append, rows=10, had_success=False
    )
    looks = [tally(deaths=["host:7: told to die"]), tally(deaths=["host:7: told to die", "host:8"])]
    monkeypatch.setattr(monitor, "refresh", lambda: looks.pop(0))
    monitor.last_look()
    assert monitor.last_look().deaths[-1] == "host:8"
    assert lines == ["engine worker host:7: told to die", "engine worker host:8"]


def test_a_run_that_works_goes_on(clock: Clock) -> None:
    monitor, ended = monitored()
    monitor.engines_start()
    monitor._give_up(tally())
    monitor._give_up(tally(workers=[READY], failure="a checker failed", silent={ENGINE: 20.0}))
    assert ended.error is None


def test_servers_may_load_before_the_engines_time_begins(clock: Clock) -> None:
    monitor, ended = monitored()
    clock.now += 50
    monitor._answered_at = clock.now
    monitor._give_up(tally())
    monitor.engines_start()
    clock.now += 99
    monitor._answered_at = clock.now
    monitor._give_up(tally())
    assert ended.error is None
    clock.now += 2
    monitor._give_up(tally())
    assert "no engine has started within start_timeout_s = 100" in str(failure(ended))
    assert failure(ended).resumable


@pytest.mark.parametrize("had_success", [False, True])
def test_a_failure_before_any_engine_is_up(clock: Clock, had_success: bool) -> None:
    """What an engine says that has never started would be said again."""
    monitor, ended = monitored(had_success=had_success)
    monitor._give_up(tally(failure="an engine worker could not start"))
    assert (failure(ended).resumable, failure(ended).again) == (had_success, had_success)


def test_engines_without_progress_end_the_run(clock: Clock) -> None:
    monitor, ended = monitored(had_success=True)
    monitor._give_up(tally(workers=[READY], failure="engines die on every row", no_progress=True))
    assert (failure(ended).resumable, failure(ended).again) == (True, False)


def test_a_lost_lease_ends_the_run(clock: Clock) -> None:
    monitor, ended = monitored(lost="somebody else has it")
    monitor._give_up(tally(workers=[READY]))
    assert "somebody else" in str(failure(ended))


def test_a_silent_coordinator_ends_the_pass(clock: Clock) -> None:
    monitor, ended = monitored()
    clock.now += 61
    monitor._give_up(tally(workers=[READY]))
    assert failure(ended).again


@pytest.mark.parametrize(
    ("there", "silent", "stored", "ends"),
    [
        (True, 41.0, 0, False),  # killed just now: another comes in its place
        (True, 101.0, 0, True),
        (True, 101.0, 10, True),
        (False, 101.0, 0, False),  # let go, and its last rows are on their way
        (False, 151.0, 0, True),  # dead, and nothing came in its place
        (False, 9e9, 10, False),  # let go when all was done
    ],
)
def test_a_process_that_is_gone(
    clock: Clock, monkeypatch, there: bool, silent: float, stored: int, ends: bool
) -> None:
    monkeypatch.setattr(monitor_module, "_kill", lambda coordinator, process: there)
    monitor, ended = monitored()
    known = tally(workers=[READY], silent={ENGINE: silent}, stored=stored)
    monitor._end_frozen(known)
    monitor._give_up(known)
    assert bool(ended.error) == ends
    if ends:
        assert failure(ended).again


def test_a_process_that_does_not_get_ready(clock: Clock) -> None:
    monitor, ended = monitored()
    monitor._give_up(tally(workers=[READY], starting={ENGINE: 101.0}))
    assert "host:7 is gone" in str(failure(ended))


ELASTIC = RunConfig.model_validate({**CONFIG.model_dump(), "workers": {"max": 4}})


def elastic() -> tuple[HealthMonitor, Ended]:
    ended = Ended()
    monitor = HealthMonitor(
        None, ELASTIC, ended, lambda: "", lambda line: None, rows=10, had_success=True
    )
    monitor.engines_start()
    return monitor, ended


def later(monitor: HealthMonitor, clock: Clock, seconds: float, **known: Any) -> None:
    clock.now += seconds
    monitor._answered_at = clock.now
    monitor._give_up(tally(workers=[READY], **known))


def test_where_engines_come_and_go_one_that_does_not_start_ends_nothing(clock: Clock) -> None:
    monitor, ended = elastic()
    late = ProcessInfo("engine", "late", "host", "gone", 8, 1.0)
    for _ in range(5):
        later(monitor, clock, 90, silent={ENGINE: 1.0}, starting={late: 500.0})
    assert ended.error is None


def test_where_engines_come_and_go_a_pass_without_any_ends(clock: Clock) -> None:
    monitor, ended = elastic()
    later(monitor, clock, 90, silent={ENGINE: 1.0})
    later(monitor, clock, 99)
    assert ended.error is None
    later(monitor, clock, 2)
    assert "no engine is left" in str(ended.error)
    assert failure(ended).again


def test_where_engines_come_and_go_a_checker_that_is_gone_ends_the_pass(clock: Clock) -> None:
    monitor, ended = elastic()
    checker = ProcessInfo("checker", "c", "host", "node", 9, 1.0)
    later(monitor, clock, 1, silent={ENGINE: 1.0}, starting={checker: 101.0})
    assert "the checker host:9 is gone" in str(ended.error)
