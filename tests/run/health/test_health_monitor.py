"""What the watch makes of a tally: when it ends a run, and how."""

from __future__ import annotations

from typing import Any

import pytest

from ace_ray.config import RunConfig
from ace_ray.run.actors.coordinator import Tally, Who
from ace_ray.run.health import health_monitor as watch_module
from ace_ray.run.health.health_monitor import Watch
from ace_ray.run.health.interrupts import Interrupts, RunFailed

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
ENGINE = Who("engine", "actor", "host", "node", 7, 1.0)
READY = {"worker": "host:7"}


class Ended(Interrupts):
    """Keeps what the watch ends the run with."""

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
    monkeypatch.setattr(watch_module, "time", clock)
    return clock


def watched(*, proven: bool = False, rows: int = 10, lost: str = "") -> tuple[Watch, Ended]:
    ended = Ended()
    return Watch(None, CONFIG, ended, lambda: lost, list, rows=rows, proven=proven), ended


def tally(**known: Any) -> Tally:
    made = Tally()
    made.of(0).stored = known.pop("stored", 0)
    for name, value in known.items():
        setattr(made, name, value)
    return made


def failure(ended: Ended) -> RunFailed:
    assert isinstance(ended.error, RunFailed)
    return ended.error


def test_a_run_that_works_goes_on(clock: Clock) -> None:
    watch, ended = watched()
    watch.engines_start()
    watch._give_up(tally())
    watch._give_up(tally(workers=[READY], failure="a checker failed", silent={ENGINE: 20.0}))
    assert ended.error is None


def test_servers_may_load_before_the_engines_time_begins(clock: Clock) -> None:
    watch, ended = watched()
    clock.now += 50
    watch._heard = clock.now
    watch._give_up(tally())
    watch.engines_start()
    clock.now += 99
    watch._heard = clock.now
    watch._give_up(tally())
    assert ended.error is None
    clock.now += 2
    watch._give_up(tally())
    assert "no engine has started within start_timeout_s = 100" in str(failure(ended))
    assert failure(ended).resumable


@pytest.mark.parametrize("proven", [False, True])
def test_a_failure_before_any_engine_is_up(clock: Clock, proven: bool) -> None:
    """What an engine says that has never started would be said again."""
    watch, ended = watched(proven=proven)
    watch._give_up(tally(failure="an engine worker could not start"))
    assert (failure(ended).resumable, failure(ended).again) == (proven, proven)


def test_hopeless_engines_end_the_run(clock: Clock) -> None:
    watch, ended = watched(proven=True)
    watch._give_up(tally(workers=[READY], failure="engines die on every row", hopeless=True))
    assert (failure(ended).resumable, failure(ended).again) == (True, False)


def test_a_lost_lease_ends_the_run(clock: Clock) -> None:
    watch, ended = watched(lost="somebody else has it")
    watch._give_up(tally(workers=[READY]))
    assert "somebody else" in str(failure(ended))


def test_a_silent_board_ends_the_pass(clock: Clock) -> None:
    watch, ended = watched()
    clock.now += 61
    watch._give_up(tally(workers=[READY]))
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
    monkeypatch.setattr(watch_module, "_kill", lambda board, who: there)
    watch, ended = watched()
    known = tally(workers=[READY], silent={ENGINE: silent}, stored=stored)
    watch._end_frozen(known)
    watch._give_up(known)
    assert bool(ended.error) == ends
    if ends:
        assert failure(ended).again


def test_a_process_that_does_not_get_ready(clock: Clock) -> None:
    watch, ended = watched()
    watch._give_up(tally(workers=[READY], starting={ENGINE: 101.0}))
    assert "host:7 is gone" in str(failure(ended))
