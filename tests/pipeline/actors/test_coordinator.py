"""The coordinator as a plain object: processes that start and die, and runs without progress."""

from typing import Any

import pytest

from ace_ray.pipeline.actors.coordinator import (
    MAX_STARTS,
    MAX_STARTS_WITHOUT_PROGRESS,
    Coordinator,
    StartReply,
)
from ace_ray.pipeline.health.heartbeat import NAMES, Death, Kind, ProcessInfo
from ace_ray.pipeline.health.isolation import TRIALS, IsolatedRow
from ace_ray.pipeline.monitoring.tally import RowReport
from tests.pipeline.conftest import Clock, judged_row, process


def up(coordinator: Coordinator, process: ProcessInfo, **how: Any) -> StartReply | None:
    start = coordinator.register_start(process, **how)
    coordinator.update_process(process, facts={"worker": process.name})
    return start


def test_engines_are_counted_by_what_they_have_to_do() -> None:
    coordinator, engine = Coordinator([]), process()
    coordinator.register_start(process(2, "another"))
    up(coordinator, engine)
    assert coordinator.read().engines == (1, 1, 0, 0)
    coordinator.note_unless_stopped(engine, RowReport(entered=["a", "b"]))
    coordinator.note_unless_stopped(engine, RowReport(ended=["a"]))
    assert (coordinator.read().engines, coordinator.read().in_flight) == ((1, 0, 0, 1), 1)
    coordinator.note_unless_stopped(
        engine, RowReport(0, ended=["b"], spent=({"generation": 2.0}, 7))
    )
    assert coordinator.read().engines == (1, 0, 1, 0)
    assert coordinator.read().counts_of(0).spent == {engine.name: ({"generation": 2.0}, 7)}
    coordinator.note_loading(engine, 1)  # other weights
    assert coordinator.read().engines == (1, 1, 0, 0)


def test_the_first_fault_of_weights_and_the_last_seconds_of_a_worker_count() -> None:
    coordinator = Coordinator([])
    for broken, seconds in (("NaN", 1.0), ("again", 2.0)):
        coordinator.note_loaded(1, broken=broken)
        coordinator.note_unless_stopped(process(), RowReport(1, spent=({"load": seconds}, 0)))
    counts = coordinator.read().counts_of(1)
    assert (counts.broken, counts.spent) == ("NaN", {"host:1": ({"load": 2.0}, 0)})


@pytest.mark.parametrize("kind", ["engine", "checker"])
def test_three_failed_starts_end_the_run(kind: Kind) -> None:
    coordinator = Coordinator([])
    start = coordinator.register_start(process(99, "another"))
    assert start is not None
    assert not start.retryable, "what fails at the first engine of a run, fails again"
    coordinator.update_process(process(99, "another"), facts={})
    starts = [
        coordinator.register_start(process(pid, "a", kind)) for pid in range(1, MAX_STARTS + 1)
    ]
    retryable = [start is not None and start.retryable for start in starts]
    assert retryable == [True] * (MAX_STARTS - 1) + [False]
    assert coordinator.read().failure == ""
    assert coordinator.register_start(process(MAX_STARTS + 1, "a", kind)) is None
    assert f"was started {MAX_STARTS} times and crashed each time" in coordinator.read().failure
    assert coordinator.read().deaths == [], "none of them had begun to work"


@pytest.mark.parametrize("says_why", [True, False], ids=["dying", "killed"])
@pytest.mark.parametrize("kind", ["engine", "checker"])
def test_death_is_counted_once_and_isolates_rows_at_work(kind: Kind, says_why: bool) -> None:
    coordinator = Coordinator([])
    dead = process(1, kind=kind)
    up(coordinator, dead)
    coordinator.note_unless_stopped(dead, RowReport(entered=["a", "b", "ended"]))
    coordinator.note_unless_stopped(dead, RowReport(ended=["ended"]))
    if says_why:
        # Two threads of a process may report the same death.
        coordinator.update_process(dead, death=Death("no answer for 9 s", log=["last line"]))
        coordinator.update_process(dead, death=Death("the engine is dead", rows=["a"]))
    up(coordinator, process(2, kind=kind))
    coordinator.update_process(dead, death=Death("a message that comes late", rows=["a", "b"]))
    tally = coordinator.read()
    assert process(2, kind=kind) in tally.silent, "the successor lives"
    why = "no answer for 9 s" if says_why else "its process was killed"
    assert tally.deaths == ([f"host:1: {why}"] if kind == "engine" else [])
    line, stored = f"host:1: {why}", ["last line"] if says_why and kind == "engine" else ()
    assert [coordinator.pop_death_log(line) for _ in range(2)] == [stored, ()]
    assert {isolated.deaths for isolated in tally.isolated[kind].values()} == {1}
    assert coordinator.isolated(kind, ["a", "b", "c", "ended"]).keys() == {"a", "b"}
    second_kind: Kind = "checker" if kind == "engine" else "engine"
    assert coordinator.isolated(second_kind, ["a", "b"]) == {}


def test_heartbeat_returns_the_time_left(clock: Clock) -> None:
    coordinator, first, second = Coordinator([]), process(), process(2, "other")
    up(coordinator, first)
    up(coordinator, second)
    assert coordinator.update_process(first) is None
    coordinator.drain(30.0, "actor")
    clock.time_s += 10
    assert (coordinator.update_process(first), coordinator.update_process(second)) == (20.0, None)
    coordinator.drain(5.0)
    assert (coordinator.update_process(first), coordinator.update_process(second)) == (5.0, 5.0)
    clock.time_s += 60
    assert coordinator.update_process(first) == 0.0, "no time left differs from no limit"


@pytest.mark.parametrize("stores", [True, False])
def test_three_writer_deaths_without_a_stored_row_end_the_run(stores: bool) -> None:
    coordinator = Coordinator([])
    starts = []
    for pid in range(MAX_STARTS + 1):
        starts.append(up(coordinator, process(pid, kind="writer")))
        if stores:
            coordinator.note_unless_stopped(process(kind="writer"), RowReport(0, stored=1))
    assert [start is not None for start in starts] == [True] * MAX_STARTS + [stores]
    tally = coordinator.read()
    assert tally.failure == ("" if stores else "the writer crashed 3 times without storing a row")
    assert tally.store_failed is not stores


class TestStartsWithoutProgress:
    @pytest.mark.parametrize("kind", ["engine", "role", "checker"])
    @pytest.mark.parametrize("says_why", [True, False])
    def test_ten_of_one_worker_end_the_run(self, says_why: bool, kind: Kind) -> None:
        coordinator = Coordinator([])
        for pid in range(MAX_STARTS_WITHOUT_PROGRESS):
            start = up(coordinator, process(pid, kind=kind))
            assert start is not None
            assert start.starts_since_progress == pid
            up(coordinator, process(100 + pid, "another"))
            coordinator.note_unless_stopped(
                process(), RowReport()
            )  # a block whose rows were all given up
            if says_why:
                coordinator.note_unless_stopped(process(pid, kind=kind), RowReport(ended=["a"]))
                coordinator.update_process(
                    process(pid, kind=kind), death=Death("the reason", rows=[])
                )
        assert not coordinator.read().no_progress
        assert coordinator.register_start(process(99, kind=kind)) is None
        assert coordinator.read().no_progress
        starts = f"{MAX_STARTS_WITHOUT_PROGRESS} {NAMES[kind]}s started one after another"
        assert coordinator.read().failure.startswith(f"{starts}, but no row made progress")
        assert not says_why or "the reason" in coordinator.read().failure

    @pytest.mark.parametrize("how", ["judged", "stored", "ended"])
    def test_are_counted_anew_when_a_row_gets_further(self, how: str) -> None:
        coordinator = Coordinator([])
        for pid in range(3 * MAX_STARTS_WITHOUT_PROGRESS):
            assert up(coordinator, process(pid)) is not None
            if how == "ended":
                row_id = f"row{pid // (TRIALS + 1)}"
                coordinator.note_unless_stopped(process(pid), RowReport(entered=[row_id]))
                coordinator.update_process(process(pid), death=Death("it died", rows=[row_id]))
            elif pid % MAX_STARTS_WITHOUT_PROGRESS == MAX_STARTS_WITHOUT_PROGRESS - 1:
                progress = {"judged": [judged_row()]} if how == "judged" else {"stored": 1}
                coordinator.note_unless_stopped(process(pid), RowReport(0, **progress))
        assert not coordinator.read().no_progress
        assert not coordinator.read().failure


@pytest.mark.parametrize("outside", [True, False])
@pytest.mark.parametrize("killed", [True, False], ids=["by the driver", "by another"])
def test_death_with_a_cause_outside_is_no_failed_trial(killed: bool, outside: bool) -> None:
    coordinator = Coordinator([])
    for pid in (1, 2):  # the isolated row runs alone in process 2
        up(coordinator, process(pid))
        coordinator.note_unless_stopped(process(pid), RowReport(entered=["a"]))
        if pid == 1:
            coordinator.update_process(process(1), death=Death("it died", rows=["a"]))
            assert coordinator.process("actor") is None, "it said why"
    assert coordinator.process("actor") == process(2)
    if killed:  # the driver knows what it kills
        coordinator.update_process(process(2), death=Death("it did not respond", outside))
    coordinator.register_start(process(3), gone=Death("its node is gone", outside is not killed))
    isolated_row = coordinator.isolated("engine", ["a"])["a"]
    assert (isolated_row.trials, isolated_row.deaths_alone) == (0 if outside else 1, 1)
    why = "it did not respond" if killed else "its node is gone"
    assert coordinator.read().deaths[-1] == f"host:2: {why}"


@pytest.mark.parametrize("node", [True, False])
def test_rows_of_a_lost_node_are_not_isolated(node: bool) -> None:
    coordinator, engine = Coordinator([]), process()
    up(coordinator, engine)
    coordinator.note_unless_stopped(engine, RowReport(entered=["a", "b"]))
    for _ in range(2):
        coordinator.note_removal("actor", Death("its node is gone", outside=True), node=node)
        coordinator.update_process(engine)
        coordinator.update_process(engine, death=Death("a message that comes late", rows=["a"]))
    tally = coordinator.read()
    assert tally.isolated["engine"].keys() == (set() if node else {"a", "b"})
    assert (tally.deaths, tally.silent) == ([f"{engine.name}: its node is gone"], {})


def test_row_that_a_dead_checker_has_noted_is_isolated_alone() -> None:
    coordinator, checker = Coordinator([]), process(kind="checker")
    up(coordinator, checker)
    coordinator.register_start(process(2, kind="checker"), gone=Death("killed", rows=["new"]))
    assert coordinator.isolated("checker", ["judged", "new"]) == {"new": IsolatedRow(1, 1, True)}


def test_a_reason_not_to_swap_applies_to_one_run_or_to_all() -> None:
    coordinator = Coordinator([])
    assert coordinator.swap_obstacle("same weights", run=1) == "same weights"
    assert [coordinator.swap_obstacle(run=run) for run in (1, 2)] == ["same weights", ""]
    assert coordinator.swap_obstacle("the probe failed") == "the probe failed"
    assert coordinator.swap_obstacle("later", run=2) == "the probe failed"


def test_an_engine_starts_with_the_weights_that_the_last_engine_loaded() -> None:
    coordinator = Coordinator([])
    assert coordinator.register_start(process()) == StartReply(retryable=False, run=None)
    coordinator.note_loading(process(), 3)
    assert coordinator.register_start(process(2, "another")) == StartReply(retryable=False, run=3)
