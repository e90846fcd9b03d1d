"""Whose second was it, and what is a run said to have cost?"""

from __future__ import annotations

from typing import Any

import pytest

from ace_ray.cluster.resources import Resources
from ace_ray.pipeline.monitoring.counts import Tally
from ace_ray.pipeline.monitoring.timing import STATES, Clock, timing

SPENT: dict[str, float] = {state: 0.0 for state in STATES}
SPENT |= {"generation": 10.0, "load": 2.0}


class Now:
    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def now() -> Now:
    return Now()


@pytest.fixture
def clock(now: Now) -> Clock:
    return Clock(now)


def spent(clock: Clock) -> dict[str, float]:
    """What is not zero."""
    read = clock.read()
    assert tuple(read) == STATES
    return {state: seconds for state, seconds in read.items() if seconds}


def test_without_rows_it_is_idle(clock: Clock, now: Now) -> None:
    assert spent(clock) == {}
    now.at += 3
    assert spent(clock) == {"idle": 3}


def test_loading_and_warming_up(clock: Clock, now: Now) -> None:
    clock.preparing("load")
    now.at += 5
    clock.preparing("warm_up")
    now.at += 2
    clock.preparing(None)
    now.at += 1
    assert spent(clock) == {"load": 5, "warm_up": 2, "idle": 1}


def test_a_row_waits_for_tools_unless_the_engine_owes_it_an_answer(clock: Clock, now: Now) -> None:
    with clock.busy("row"):
        now.at += 1
        with clock.busy("call"):
            now.at += 10
        now.at += 2
        with clock.busy("call"):
            now.at += 20
    now.at += 4
    assert spent(clock) == {"generation": 30, "tool": 3, "idle": 4}


def test_what_fails_is_over(clock: Clock, now: Now) -> None:
    def work() -> None:
        with clock.busy("row"):
            now.at += 1
            with clock.busy("call"):
                now.at += 2
                raise RuntimeError

    with pytest.raises(RuntimeError):
        work()
    now.at += 4
    assert spent(clock) == {"generation": 2, "tool": 1, "idle": 4}


def test_each_run_has_its_own_count(clock: Clock, now: Now) -> None:
    with clock.busy("row"):
        now.at += 2
        assert spent(clock) == {"tool": 2}
        assert spent(clock) == {"tool": 2}
        clock.restart()
        assert spent(clock) == {}
        now.at += 3
    assert spent(clock) == {"tool": 3}


def test_every_second_is_counted_once(clock: Clock, now: Now) -> None:
    began = now.at
    clock.preparing("load")
    now.at += 0.25
    clock.preparing(None)
    with clock.busy("row"):
        now.at += 0.5
        with clock.busy("call"):
            now.at += 1.125
            clock.read()
            now.at += 1
    now.at += 2
    assert sum(clock.read().values()) == pytest.approx(now.at - began)


@pytest.mark.parametrize(
    ("resources", "device", "devices", "generation"),
    [
        (Resources(2, 1.0, 4, 1), "gpu", 8, 80),
        # A judge on 4 GPUs beside them is held as long as they are.
        (Resources(2, 1.0, 4, 1, server_cpus=2.0, server_gpus=4), "gpu", 12, 120),
        (Resources(2, 1.0, 1, 1, server_gpus=1), "gpu", 3, 30),
        (Resources(2, 1.5, 0, 1), "cpu", 3, 30),
        # An endpoint is no device of ours; a judge that is served beside it is.
        (Resources(2, 0.25, 0, 1, endpoint=True), "endpoint", 0, 0),
        (Resources(2, 0.25, 0, 1, server_gpus=4, endpoint=True), "endpoint", 4, 40),
        (Resources(2, 1.5, 0, 1, server_cpus=2.0), "cpu", 5, 50),
    ],
)
def test_what_is_served_beside_the_engines_counts(
    resources: Resources, device: str, devices: float, generation: float
) -> None:
    tally = Tally()
    tally.of(0).spent = {"a": {**SPENT}, "b": {**SPENT}}
    found = timing([tally], 0, began=0, planned=0, reached={}, resources=resources, earlier={})
    assert (found["device"], found["devices"]) == (device, devices)
    assert found["device_s"]["generation"] == pytest.approx(generation)
    assert found["device_s"]["load"] == pytest.approx(generation / 5)
    more = timing([tally], 0, began=0, planned=0, reached={}, resources=resources, earlier=found)
    assert more["device_s"]["generation"] == pytest.approx(2 * generation)


def test_the_first_row_by_phase() -> None:
    tally, reached = Tally(), {"ray": 13.0, "actors": 13.5}
    tally.begun_at = 15.0
    counts = tally.of(0)
    counts.ready_at, counts.first_row_at = 40.0, 42.25
    asked: dict[str, Any] = {"began": 10.0, "planned": 12.0, "earlier": {}}
    asked["resources"] = Resources(1, 1.0, 0, 1)
    found = timing([tally], 0, reached=reached, **asked)
    phases = {"plan": 2, "ray": 1, "actors": 0.5, "worker": 1.5, "engine": 25, "row": 2.25}
    assert found["until_first_row_s"] == phases
    assert sum(phases.values()) == found["first_row_s"]
    # Ray was there before: it started beside the plan of another run of the lane.
    early = timing([tally], 0, reached={**reached, "ray": 11.0}, **asked)
    assert early["until_first_row_s"] == {}
    counts.first_row_at = None
    assert timing([tally], 0, reached=reached, **asked)["until_first_row_s"] == {}
