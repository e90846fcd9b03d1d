"""The coordinator as a plain object: who lives, who died, and when the run makes no progress."""

from __future__ import annotations

from typing import Any

import pytest

from ace_ray.pipeline.actors import coordinator as coordinator_module
from ace_ray.pipeline.actors.coordinator import (
    MAX_STARTS,
    MAX_STARTS_WITHOUT_PROGRESS,
    Coordinator,
    Start,
)
from ace_ray.pipeline.health.isolation import TRIALS, IsolatedRow
from ace_ray.pipeline.health.processes import Kind, ProcessInfo
from ace_ray.pipeline.monitoring import counts as counts_module


class Clock:
    def __init__(self) -> None:
        self.now = 50.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return 1e9 + self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (coordinator_module, counts_module):
        monkeypatch.setattr(module, "time", clock)
    return clock


def process(pid: int = 1, actor: str = "actor", kind: Kind = "engine") -> ProcessInfo:
    return ProcessInfo(kind, actor, "host", "node", pid, 1.0)


def up(coordinator: Coordinator, process: ProcessInfo, **how: Any) -> Start | None:
    begun = coordinator.starting(process, **how)
    coordinator.ready(process, {"worker": process.name})
    return begun


def retryable(coordinator: Coordinator, process: ProcessInfo) -> bool:
    begun = coordinator.starting(process)
    return begun is not None and begun.retryable


def row(status: str = "scored", official: Any = True, strict: Any = False) -> tuple[Any, ...]:
    scores = {} if official is None else {"official": official, "strict": strict}
    return (0, "toy", "en", status, scores, 3, 5)


def test_rows_are_counted_by_what_became_of_them() -> None:
    coordinator = Coordinator([])
    coordinator.rows([row(), row(strict=True), row(official=False)])
    coordinator.rows([row("infra_error", None, None), row("quarantined", None, None)])
    tally = coordinator.read()
    assert tally.done == 5
    assert tally.statuses == {"scored": 3, "infra_error": 1, "quarantined": 1}
    assert tally.accuracies() == {("toy", "en"): {"official": 2 / 3, "strict": 1 / 3}}
    assert (tally.of(0).prompt_tokens, tally.of(0).completion_tokens) == (15, 25)
    assert tally.tokens == 40
    coordinator.stored(0, 3)
    coordinator.stored(0, 2)
    assert coordinator.read().stored == 5


def test_the_first_failure_is_the_cause() -> None:
    coordinator = Coordinator([])
    coordinator.fail("the cause")
    coordinator.fail("what came of it", store=True)
    coordinator.fail("more of it")
    assert coordinator.read().failure == "the cause"
    assert coordinator.read().store_failed


def test_a_start_is_worth_repeating_once_an_engine_has_run() -> None:
    coordinator = Coordinator([])
    assert not retryable(coordinator, process(1, "a")), (
        "the first engine of a run: what fails here, fails"
    )
    coordinator.ready(process(1, "a"), {})
    assert retryable(coordinator, process(2, "b"))


@pytest.mark.parametrize("kind", ["engine", "checker"])
def test_starts_that_fail_in_a_row_end_the_run(kind: Kind) -> None:
    coordinator = Coordinator([])
    up(coordinator, process(99, "another"))
    worth = [retryable(coordinator, process(pid, "a", kind)) for pid in range(1, MAX_STARTS + 1)]
    assert worth == [True] * (MAX_STARTS - 1) + [False]
    assert coordinator.read().failure == ""
    assert not coordinator.starting(process(MAX_STARTS + 1, "a", kind))
    assert f"died {MAX_STARTS} times as it started" in coordinator.read().failure
    assert coordinator.read().deaths == [], "none of them had begun to work"


def test_a_start_that_succeeds_clears_the_count() -> None:
    coordinator = Coordinator([])
    for pid in range(20):
        coordinator.starting(process(2 * pid))
        up(coordinator, process(2 * pid + 1))
        coordinator.rows([row()])
        if pid % 2:
            coordinator.dying(process(2 * pid + 1), "stalled", [])
    assert coordinator.read().failure == ""


@pytest.mark.parametrize("last_word", [True, False], ids=["dying", "killed"])
@pytest.mark.parametrize("kind", ["engine", "checker"])
def test_a_death_is_counted_once(kind: Kind, last_word: bool) -> None:
    coordinator = Coordinator([])
    up(coordinator, process(1, kind=kind))
    coordinator.enter(process(1, kind=kind), ["a", "b"])
    if last_word:
        coordinator.dying(process(1, kind=kind), "no answer for 9 s", None)
    coordinator.starting(process(2, kind=kind))
    coordinator.ready(process(2, kind=kind), {})
    tally = coordinator.read()
    why = "no answer for 9 s" if last_word else "its process was killed"
    assert tally.deaths == ([f"host:1: {why}"] if kind == "engine" else [])
    assert tally.other_deaths == ({} if kind == "engine" else {kind: 1})
    assert {s.deaths for s in tally.isolated[kind].values()} == {1}
    assert coordinator.isolated(kind, ["a", "b", "c"]).keys() == {"a", "b"}
    other: Kind = "checker" if kind == "engine" else "engine"
    assert coordinator.isolated(other, ["a", "b"]) == {}


def test_two_threads_of_a_process_may_both_have_the_last_word() -> None:
    """The heartbeat notices a stall while the engine reports its own death."""
    coordinator = Coordinator([])
    up(coordinator, process(1))
    coordinator.enter(process(1), ["a"])
    coordinator.dying(process(1), "no answer for 9 s", ["a"])
    coordinator.dying(process(1), "the engine is dead", ["a"])
    assert len(coordinator.read().deaths) == 1
    assert coordinator.isolated("engine", ["a"])["a"].deaths == 1


def test_a_last_word_that_comes_late_is_not_the_successors() -> None:
    coordinator = Coordinator([])
    up(coordinator, process(1))
    coordinator.enter(process(1), ["a", "b"])
    up(coordinator, process(2))
    coordinator.dying(process(1), "no answer for 9 s", ["a", "b"])
    tally = coordinator.read()
    assert len(tally.deaths) == 1
    assert process(2) in tally.silent, "it lives"


def test_rows_that_were_left_are_not_isolated() -> None:
    coordinator = Coordinator([])
    up(coordinator, process(1))
    coordinator.enter(process(1), ["a", "b"])
    coordinator.leave(process(1), ["a"])
    coordinator.starting(process(2))
    assert coordinator.isolated("engine", ["a", "b"]).keys() == {"b"}


def test_isolated_rows_of_an_earlier_pass_are_known() -> None:
    earlier: dict[Kind, dict[str, IsolatedRow]] = {
        "engine": {"a": IsolatedRow(1, 4)},
        "checker": {"b": IsolatedRow(2, 0, end="quarantined")},
    }
    coordinator = Coordinator([], earlier)
    assert coordinator.isolated("engine", ["a", "b"]) == {"a": IsolatedRow(1, 4)}
    assert coordinator.isolated("checker", ["a", "b"])["b"].end == "quarantined"
    assert Coordinator([], coordinator.read().isolated).isolated("engine", ["a"]) == {
        "a": IsolatedRow(1, 4)
    }


def test_who_was_not_heard_of_is_silent(clock: Clock) -> None:
    coordinator = Coordinator([])
    up(coordinator, process(1, "a"))
    coordinator.starting(process(2, "b"))
    clock.now += 10
    assert coordinator.read().silent == {process(1, "a"): 10.0}, "who is starting need not beat"
    coordinator.beat(process(1, "a"))
    clock.now += 1
    assert coordinator.read().silent == {process(1, "a"): 1.0}
    coordinator.ready(process(2, "b"), {})
    clock.now += 2
    assert coordinator.read().silent == {process(1, "a"): 3.0, process(2, "b"): 2.0}


def test_the_beat_of_a_dead_process_is_not_its_successors(clock: Clock) -> None:
    coordinator = Coordinator([])
    up(coordinator, process(1))
    up(coordinator, process(2))
    clock.now += 10
    coordinator.beat(process(1))
    assert coordinator.read().silent == {process(2): 10.0}
    coordinator.beat(process(3, "never seen"))


def test_draining(clock: Clock) -> None:
    coordinator = Coordinator([])
    up(coordinator, process())
    assert coordinator.beat(process()) is None
    coordinator.drain(20.0)
    assert coordinator.beat(process()) == 20.0
    clock.now += 15
    assert coordinator.beat(process()) == 5.0
    clock.now += 15
    assert coordinator.beat(process()) == 0.0
    coordinator.drain(0.0)
    assert coordinator.beat(process()) == 0.0, "no time left is not the same as no hurry"


def test_runs_share_a_coordinator() -> None:
    coordinator = Coordinator([])
    coordinator.rows([row(), (1, *row()[1:]), (1, *row()[1:])])
    coordinator.stored(1, 2)
    coordinator.broken(2, "NaN")
    coordinator.broken(2, "again")
    coordinator.spent(1, "host:1", {"load": 1.0})
    coordinator.spent(1, "host:1", {"load": 2.0})
    tally = coordinator.read()
    assert {run: counts.done for run, counts in tally.runs.items()} == {0: 1, 1: 2, 2: 0}
    assert (tally.done, tally.stored, tally.of(0).stored, tally.of(1).stored) == (3, 2, 0, 2)
    assert tally.of(2).broken == "NaN"
    assert tally.of(1).spent == {"host:1": {"load": 2.0}}


def test_an_engine_starts_on_what_it_wants_else_on_what_the_others_hold() -> None:
    coordinator = Coordinator([])
    assert coordinator.starting(process(1, "a"), 3) == Start(retryable=False, run=3)
    coordinator.ready(process(1, "a"), {})
    coordinator.loading(process(1, "a"), 5)
    begun = up(coordinator, process(2, "b"), first=3)
    assert begun == Start(retryable=True, run=5)
    coordinator.loading(process(2, "b"), 6)
    coordinator.dying(process(2, "b"), "these weights need an engine of their own", [])
    coordinator.loading(process(1, "a"), 4)
    begun = up(coordinator, process(3, "b"), first=3)
    assert begun == Start(retryable=True, run=6, replaces=True, starts_since_progress=1)


def test_a_swap_that_failed_is_the_last() -> None:
    coordinator = Coordinator([])
    assert coordinator.unswappable() == ""
    assert coordinator.unswappable("the probe") == "the probe"
    assert coordinator.unswappable("later") == coordinator.unswappable() == "the probe"
    coordinator = Coordinator([])
    assert (
        coordinator.unswappable("too close", run=2) == coordinator.unswappable(run=2) == "too close"
    )
    assert coordinator.unswappable() == coordinator.unswappable(run=3) == ""


def test_a_writer_that_dies_again_and_again_and_stores_nothing(clock: Clock) -> None:
    coordinator = Coordinator([])
    for pid in range(MAX_STARTS):
        assert coordinator.starting(process(pid, kind="writer")) is not None
        coordinator.ready(process(pid, kind="writer"), {})
    assert coordinator.starting(process(99, kind="writer")) is None
    assert "the writer died 3 times and stored nothing" in coordinator.read().failure
    assert coordinator.read().store_failed


def test_a_writer_that_stores_between_its_deaths_goes_on(clock: Clock) -> None:
    coordinator = Coordinator([])
    for pid in range(3 * MAX_STARTS):
        assert coordinator.starting(process(pid, kind="writer")) is not None
        coordinator.ready(process(pid, kind="writer"), {})
        coordinator.stored(0, 1)
    assert not coordinator.read().failure


class TestFruitlessStarts:
    """Engines that start, work or not, and end, while no row gets further."""

    @pytest.mark.parametrize("kind", ["engine", "checker"])
    @pytest.mark.parametrize("ends", ["killed", "itself"])
    def test_end_the_run(self, ends: str, kind: Kind) -> None:
        coordinator = Coordinator([])
        for pid in range(MAX_STARTS_WITHOUT_PROGRESS):
            begun = up(coordinator, process(pid, kind=kind))
            assert begun is not None
            assert begun.starts_since_progress == pid
            coordinator.rows([])  # a block of rows that were given up
            if ends != "killed":
                coordinator.leave(process(pid, kind=kind), ["a"])
                coordinator.dying(process(pid, kind=kind), "the reason", [])
        assert not coordinator.read().no_progress
        assert coordinator.starting(process(99, kind=kind)) is None
        assert coordinator.read().no_progress
        starts = f"{MAX_STARTS_WITHOUT_PROGRESS} {kind}s started one after another"
        assert coordinator.read().failure.startswith(f"{starts} and no row got further")
        assert ("the reason" in coordinator.read().failure) == (ends != "killed")

    def test_are_none_when_a_row_comes_to_its_end(self) -> None:
        """Its block may wait for many others that kill."""
        coordinator = Coordinator([])
        for pid in range(5 * MAX_STARTS_WITHOUT_PROGRESS):
            up(coordinator, process(pid))
            row_id = f"row{pid // (TRIALS + 1)}"
            coordinator.enter(process(pid), [row_id])
            coordinator.dying(process(pid), "it died", [row_id])
        assert not coordinator.read().no_progress

    @pytest.mark.parametrize("how", ["judged", "stored"])
    def test_are_none_when_a_row_gets_further(self, how: str) -> None:
        coordinator = Coordinator([])
        for pid in range(5 * MAX_STARTS_WITHOUT_PROGRESS):
            assert up(coordinator, process(pid)) is not None
            if pid % MAX_STARTS_WITHOUT_PROGRESS == MAX_STARTS_WITHOUT_PROGRESS - 1:
                coordinator.rows([row()]) if how == "judged" else coordinator.stored(0, 1)
        assert not coordinator.read().failure

    def test_of_one_worker_are_not_those_of_another(self) -> None:
        """A large cluster is preempted as a whole."""
        coordinator = Coordinator([])
        for pid in range(MAX_STARTS_WITHOUT_PROGRESS):
            for actor in range(64):
                assert up(coordinator, process(100 * pid + actor, f"actor{actor}")) is not None
        assert not coordinator.read().failure


class TestCauses:
    """A cause from outside is no row's."""

    def deaths_alone(self, coordinator: Coordinator) -> tuple[int, int]:
        isolated_row = coordinator.isolated("engine", ["a"])["a"]
        return isolated_row.trials, isolated_row.deaths_alone

    def with_isolated_rows(self) -> Coordinator:
        coordinator = Coordinator([])
        up(coordinator, process(1))
        coordinator.enter(process(1), ["a"])
        coordinator.dying(process(1), "it died", ["a"])
        up(coordinator, process(2))
        coordinator.enter(process(2), ["a"])
        return coordinator

    def test_a_process_says_so_itself(self) -> None:
        coordinator = self.with_isolated_rows()
        coordinator.dying(process(2), "the engine core was ended by SIGTERM", ["a"], True)
        assert self.deaths_alone(coordinator) == (0, 1)

    @pytest.mark.parametrize("outside", [True, False])
    def test_its_successor_has_found_out(self, outside: bool) -> None:
        coordinator = self.with_isolated_rows()
        assert coordinator.predecessor(process(3)) == process(2)
        coordinator.starting(process(3), gone=("its node is gone", outside))
        assert self.deaths_alone(coordinator) == (0 if outside else 1, 1)
        assert coordinator.read().deaths[-1] == "host:2: its node is gone"

    @pytest.mark.parametrize("outside", [True, False])
    def test_the_driver_knows_whom_it_kills(self, outside: bool) -> None:
        coordinator = self.with_isolated_rows()
        coordinator.killing(process(2), "it did not react and was killed", outside)
        coordinator.starting(process(3), gone=("its process was killed", True))
        assert self.deaths_alone(coordinator) == (0 if outside else 1, 1)
        assert coordinator.read().deaths[-1] == "host:2: it did not react and was killed"

    def test_one_that_said_why_has_no_successor_to_ask(self) -> None:
        coordinator = self.with_isolated_rows()
        coordinator.dying(process(2), "it died", ["a"])
        assert coordinator.predecessor(process(3)) is None


def test_rows_that_have_ended_are_under_way_until_a_checker_has_them() -> None:
    coordinator = Coordinator([])
    up(coordinator, process(1, "a"))
    up(coordinator, process(2, "b"))
    coordinator.leave(process(1, "a"), ["x", "y"])
    coordinator.leave(process(2, "b"), ["z"])
    assert (coordinator.underway(process(1, "a")), coordinator.underway(process(2, "b"))) == (2, 1)
    coordinator.isolated("engine", ["x"])
    assert coordinator.underway(process(1, "a")) == 2
    coordinator.isolated("checker", ["x", "z"])
    assert (coordinator.underway(process(1, "a")), coordinator.underway(process(2, "b"))) == (1, 0)
    coordinator.dying(process(1, "a"), "it died", [])
    assert coordinator.underway(process(1, "a")) == 0


def test_a_worker_is_told_when_its_node_goes(clock: Clock) -> None:
    coordinator, here, other = Coordinator([]), process(), process(2, "other")
    up(coordinator, here)
    up(coordinator, other)
    coordinator.leave_node("actor", 30.0)
    clock.now += 10
    assert coordinator.beat(here) == 20.0
    assert coordinator.beat(other) is None
    coordinator.drain(5.0)
    assert (coordinator.beat(here), coordinator.beat(other)) == (5.0, 5.0)
    clock.now += 60
    assert coordinator.beat(here) == 0.0


def test_rows_are_given_back_once() -> None:
    coordinator = Coordinator([])
    coordinator.give_back(["a", "b", "c"])
    assert coordinator.given_back(["b", "x", "c"]) == ["b", "c"]
    assert coordinator.given_back(["a", "b"]) == ["a"]


def test_a_worker_lost_with_its_node_is_no_fault_of_its_rows(clock: Clock) -> None:
    coordinator, here = Coordinator([]), process()
    up(coordinator, here)
    assert coordinator.process("actor") == here
    coordinator.enter(here, ["a", "b"])
    coordinator.lost("actor", "its node is gone", True, node=True)
    tally = coordinator.read()
    assert tally.deaths == [f"{here.name}: its node is gone"]
    assert all(row.released for row in tally.isolated["engine"].values())
    assert not tally.silent
    assert coordinator.process("actor") is None
    # What is still on its way from it.
    coordinator.beat(here)
    coordinator.phase(here, "load")
    coordinator.dying(here, "late", ["a"])
    coordinator.lost("actor", "its node is gone", True, node=True)
    assert len(coordinator.read().deaths) == 1


def test_a_worker_that_was_killed_and_finds_no_place_isolates_its_rows(clock: Clock) -> None:
    coordinator, here = Coordinator([]), process()
    up(coordinator, here)
    coordinator.enter(here, ["a", "b"])
    coordinator.lost("actor", "its process crashed", False, node=False)
    assert not any(row.released for row in coordinator.read().isolated["engine"].values())


def test_a_checker_works_on_the_rows_that_are_not_isolated() -> None:
    earlier: dict[Kind, dict[str, IsolatedRow]] = {"checker": {"apart": IsolatedRow(1, 4)}}
    coordinator, checker = Coordinator([], earlier), process(kind="checker")
    begun = up(coordinator, checker)
    assert begun is not None
    assert begun.isolated
    assert coordinator.checking(checker, ["new", "apart"]).keys() == {"apart"}
    coordinator.dying(checker, "it died", None)
    known = coordinator.isolated("checker", ["new", "apart"])
    assert known["apart"] == IsolatedRow(1, 4), "it was not at work"
    assert known["new"].deaths == 1


def test_rows_that_were_judged_are_not_at_work() -> None:
    coordinator, checker = Coordinator([]), process(kind="checker")
    up(coordinator, checker)
    coordinator.checking(checker, ["a", "b"])
    coordinator.rows([row()], checker, ["a", "b"])
    coordinator.dying(checker, "it died", None)
    assert coordinator.isolated("checker", ["a", "b"]) == {}


def test_no_row_of_a_stopped_run_begins() -> None:
    coordinator = Coordinator([])
    up(coordinator, process())
    coordinator.stop_run(1)
    assert coordinator.enter(process(), ["a"], 0)
    assert not coordinator.enter(process(), ["b"], 1)
    coordinator.dying(process(), "it died", None)
    assert coordinator.isolated("engine", ["a", "b"]).keys() == {"a"}
