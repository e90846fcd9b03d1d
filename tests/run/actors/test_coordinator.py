"""The board as a plain object: who lives, who died, and when the run is hopeless."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from ace_ray.run.actors import coordinator as board_module
from ace_ray.run.actors.coordinator import FRUITLESS, MAX_STARTS, Board, Start, Who
from ace_ray.run.health.isolation import KINDS, TRIALS, Kind, Suspect


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
    monkeypatch.setattr(board_module, "time", clock)
    return clock


def who(pid: int = 1, actor: str = "actor", kind: Kind = "engine") -> Who:
    return Who(kind, actor, "host", "node", pid, 1.0)


def up(board: Board, process: Who, **how: Any) -> Start | None:
    begun = board.starting(process, **how)
    board.ready(process, {"worker": process.name})
    return begun


def hopeful(board: Board, process: Who) -> bool:
    begun = board.starting(process)
    return begun is not None and begun.hopeful


def row(status: str = "scored", official: Any = True, strict: Any = False) -> tuple[Any, ...]:
    return (0, "toy", "en", "c", status, official, strict, 3, 5)


def test_a_board_begins_empty() -> None:
    tally = Board([]).read()
    assert (tally.done, tally.deaths, tally.other_deaths, tally.failure) == (0, [], {}, "")
    assert (tally.workers, tally.silent, tally.suspects) == ([], {}, {kind: {} for kind in KINDS})


def test_it_hands_out_what_it_was_given() -> None:
    entries = ["a reference"]
    assert Board(entries).shared() == entries


def test_a_tally_travels() -> None:
    board = Board([])
    up(board, who())
    board.enter(who(), ["a"])
    board.dying(who(), "why", None)
    copy = pickle.loads(pickle.dumps(board.read()))
    assert copy.deaths == board.read().deaths
    assert copy.suspects == board.read().suspects


def test_rows_are_counted_by_what_became_of_them() -> None:
    board = Board([])
    board.rows([row(), row(strict=True), row(official=False)])
    board.rows([row("infra_error", None, None), row("quarantined", None, None)])
    tally = board.read()
    assert tally.done == 5
    assert tally.statuses == {"scored": 3, "infra_error": 1, "quarantined": 1}
    assert tally.groups == {("toy", "en", "c"): [3, 2, 1]}
    assert (tally.of(0).prompt_tokens, tally.of(0).completion_tokens) == (15, 25)
    assert tally.tokens == 40
    board.stored(0, 3)
    board.stored(0, 2)
    assert board.read().stored == 5


def test_the_first_failure_is_the_cause() -> None:
    board = Board([])
    board.fail("the cause")
    board.fail("what came of it", store=True)
    board.fail("more of it")
    assert board.read().failure == "the cause"
    assert board.read().store_failed


def test_a_notice_can_be_taken_down() -> None:
    board = Board([])
    board.notice("waiting")
    assert board.read().notice == "waiting"
    board.notice("")
    assert board.read().notice == ""


def test_only_engines_are_workers() -> None:
    board = Board([])
    up(board, who())
    up(board, who(2, "other", "checker"))
    assert board.read().workers == [{"worker": "host:1"}]


def test_a_start_is_worth_repeating_once_an_engine_has_run() -> None:
    board = Board([])
    assert not hopeful(board, who(1, "a")), "the first engine of a run: what fails here, fails"
    board.ready(who(1, "a"), {})
    assert hopeful(board, who(2, "b"))


@pytest.mark.parametrize("kind", ["engine", "checker"])
def test_starts_that_fail_in_a_row_end_the_run(kind: Kind) -> None:
    board = Board([])
    up(board, who(99, "another"))
    worth = [hopeful(board, who(pid, "a", kind)) for pid in range(1, MAX_STARTS + 1)]
    assert worth == [True] * (MAX_STARTS - 1) + [False]
    assert board.read().failure == ""
    assert not board.starting(who(MAX_STARTS + 1, "a", kind))
    assert f"died {MAX_STARTS} times as it started" in board.read().failure
    assert board.read().deaths == [], "none of them had begun to work"


def test_starts_of_one_actor_are_not_those_of_another() -> None:
    board = Board([])
    for pid in range(MAX_STARTS):
        board.starting(who(pid, "a"))
        board.starting(who(100 + pid, "b"))
    assert board.read().failure == ""


def test_a_start_that_succeeds_clears_the_count() -> None:
    board = Board([])
    for pid in range(20):
        board.starting(who(2 * pid))
        up(board, who(2 * pid + 1))
        board.rows([row()])
        if pid % 2:
            board.dying(who(2 * pid + 1), "stalled", [])
    assert board.read().failure == ""


@pytest.mark.parametrize("last_word", [True, False], ids=["dying", "killed"])
@pytest.mark.parametrize("kind", ["engine", "checker"])
def test_a_death_is_counted_once(kind: Kind, last_word: bool) -> None:
    board = Board([])
    up(board, who(1, kind=kind))
    board.enter(who(1, kind=kind), ["a", "b"])
    if last_word:
        board.dying(who(1, kind=kind), "no answer for 9 s", None)
    board.starting(who(2, kind=kind))
    board.ready(who(2, kind=kind), {})
    tally = board.read()
    why = "no answer for 9 s" if last_word else "its process was killed"
    assert tally.deaths == ([f"host:1: {why}"] if kind == "engine" else [])
    assert tally.other_deaths == ({} if kind == "engine" else {kind: 1})
    assert {s.deaths for s in tally.suspects[kind].values()} == {1}
    assert board.suspects(kind, ["a", "b", "c"]).keys() == {"a", "b"}
    other: Kind = "checker" if kind == "engine" else "engine"
    assert board.suspects(other, ["a", "b"]) == {}


def test_a_death_while_starting_is_none() -> None:
    board = Board([])
    up(board, who(1))
    board.starting(who(2))
    board.starting(who(3))
    assert board.read().deaths == ["host:1: its process was killed"]


def test_two_threads_of_a_process_may_both_have_the_last_word() -> None:
    """The lifeline notices a stall while the engine reports its own death."""
    board = Board([])
    up(board, who(1))
    board.enter(who(1), ["a"])
    board.dying(who(1), "no answer for 9 s", ["a"])
    board.dying(who(1), "the engine is dead", ["a"])
    assert len(board.read().deaths) == 1
    assert board.suspects("engine", ["a"])["a"].deaths == 1


def test_a_last_word_that_comes_late_is_not_the_successors() -> None:
    board = Board([])
    up(board, who(1))
    board.enter(who(1), ["a", "b"])
    up(board, who(2))
    board.dying(who(1), "no answer for 9 s", ["a", "b"])
    tally = board.read()
    assert len(tally.deaths) == 1
    assert who(2) in tally.silent, "it lives"


def test_rows_that_were_left_are_no_suspects() -> None:
    board = Board([])
    up(board, who(1))
    board.enter(who(1), ["a", "b"])
    board.leave(who(1), ["a"])
    board.starting(who(2))
    assert board.suspects("engine", ["a", "b"]).keys() == {"b"}


def test_suspects_of_an_earlier_pass_are_known() -> None:
    earlier = {"engine": {"a": Suspect(1, 4)}, "checker": {"b": Suspect(2, 0, end="quarantined")}}
    board = Board([], earlier)
    assert board.suspects("engine", ["a", "b"]) == {"a": Suspect(1, 4)}
    assert board.suspects("checker", ["a", "b"])["b"].end == "quarantined"
    assert Board([], board.read().suspects).suspects("engine", ["a"]) == {"a": Suspect(1, 4)}


def test_who_was_not_heard_of_is_silent(clock: Clock) -> None:
    board = Board([])
    up(board, who(1, "a"))
    board.starting(who(2, "b"))
    clock.now += 10
    assert board.read().silent == {who(1, "a"): 10.0}, "who is starting need not beat"
    board.beat(who(1, "a"))
    clock.now += 1
    assert board.read().silent == {who(1, "a"): 1.0}
    board.ready(who(2, "b"), {})
    clock.now += 2
    assert board.read().silent == {who(1, "a"): 3.0, who(2, "b"): 2.0}


def test_the_beat_of_a_dead_process_is_not_its_successors(clock: Clock) -> None:
    board = Board([])
    up(board, who(1))
    up(board, who(2))
    clock.now += 10
    board.beat(who(1))
    assert board.read().silent == {who(2): 10.0}
    board.beat(who(3, "never seen"))


def test_the_dying_are_not_silent(clock: Clock) -> None:
    board = Board([])
    up(board, who(1))
    board.dying(who(1), "stalled", [])
    clock.now += 100
    assert board.read().silent == {}


def test_draining(clock: Clock) -> None:
    board = Board([])
    up(board, who())
    assert board.beat(who()) is None
    board.drain(20.0)
    assert board.beat(who()) == 20.0
    clock.now += 15
    assert board.beat(who()) == 5.0
    clock.now += 15
    assert board.beat(who()) == 0.0
    board.drain(0.0)
    assert board.beat(who()) == 0.0, "no time left is not the same as no hurry"


def test_when_what_came_first(clock: Clock) -> None:
    board = Board([])
    up(board, who(1, "a"))
    board.loaded(0, {"how": "fresh"})
    clock.now += 1
    up(board, who(2, "b"))
    board.loaded(0, {"how": "fresh"})
    board.rows([row()])
    clock.now += 1
    board.rows([row()])
    clock.now += 1
    board.stored(0, 2)
    tally = board.read()
    assert tally.first_ready_at == 1e9 + 50
    share = tally.of(0)
    assert (share.ready_at, share.first_row_at, share.last_row_at) == (1e9 + 50, 1e9 + 51, 1e9 + 52)
    assert (tally.last_row_at, share.last_stored_at) == (1e9 + 52, 1e9 + 53)
    assert [load["how"] for load in share.loads] == ["fresh", "fresh"]


def test_runs_share_a_board() -> None:
    board = Board([])
    board.rows([row(), (1, *row()[1:]), (1, *row()[1:])])
    board.stored(1, 2)
    board.broken(2, "NaN")
    board.broken(2, "again")
    board.spent(1, "host:1", {"load": 1.0})
    board.spent(1, "host:1", {"load": 2.0})
    tally = board.read()
    assert {run: share.done for run, share in tally.runs.items()} == {0: 1, 1: 2, 2: 0}
    assert (tally.done, tally.stored, tally.of(0).stored, tally.of(1).stored) == (3, 2, 0, 2)
    assert tally.of(2).broken == "NaN"
    assert tally.of(1).spent == {"host:1": {"load": 2.0}}


def test_an_engine_starts_on_what_it_wants_else_on_what_the_others_hold() -> None:
    board = Board([])
    assert board.starting(who(1, "a"), 3) == Start(hopeful=False, run=3)
    board.ready(who(1, "a"), {})
    board.loading(who(1, "a"), 5)
    begun = up(board, who(2, "b"), first=3)
    assert begun == Start(hopeful=True, run=5)
    board.loading(who(2, "b"), 6)
    board.dying(who(2, "b"), "these weights need an engine of their own", [])
    board.loading(who(1, "a"), 4)
    begun = up(board, who(3, "b"), first=3)
    assert begun == Start(hopeful=True, run=6, replaces=True, fruitless=1)


def test_a_swap_that_failed_is_the_last() -> None:
    board = Board([])
    assert board.unswappable() == ""
    assert board.unswappable("the probe") == "the probe"
    assert board.unswappable("later") == board.unswappable() == "the probe"
    board = Board([])
    assert board.unswappable("too close", run=2) == board.unswappable(run=2) == "too close"
    assert board.unswappable() == board.unswappable(run=3) == ""


def test_a_writer_that_dies_again_and_again_and_stores_nothing(clock: Clock) -> None:
    board = Board([])
    for pid in range(MAX_STARTS):
        assert board.starting(who(pid, kind="writer")) is not None
        board.ready(who(pid, kind="writer"), {})
    assert board.starting(who(99, kind="writer")) is None
    assert "the writer died 3 times and stored nothing" in board.read().failure
    assert board.read().store_failed


def test_a_writer_that_stores_between_its_deaths_goes_on(clock: Clock) -> None:
    board = Board([])
    for pid in range(3 * MAX_STARTS):
        assert board.starting(who(pid, kind="writer")) is not None
        board.ready(who(pid, kind="writer"), {})
        board.stored(0, 1)
    assert not board.read().failure


class TestFruitlessStarts:
    """Engines that start, work or not, and end, while no row gets further."""

    @pytest.mark.parametrize("kind", ["engine", "checker"])
    @pytest.mark.parametrize("ends", ["killed", "itself"])
    def test_end_the_run(self, ends: str, kind: Kind) -> None:
        board = Board([])
        for pid in range(FRUITLESS):
            begun = up(board, who(pid, kind=kind))
            assert begun is not None
            assert begun.fruitless == pid
            board.rows([])  # a block of rows that were given up
            if ends != "killed":
                board.leave(who(pid, kind=kind), ["a"])
                board.dying(who(pid, kind=kind), "the reason", [])
        assert not board.read().hopeless
        assert board.starting(who(99, kind=kind)) is None
        assert board.read().hopeless
        assert board.read().failure.startswith(
            f"{FRUITLESS} {kind}s started one after another and no row got further"
        )
        assert ("the reason" in board.read().failure) == (ends != "killed")

    def test_are_none_when_a_row_comes_to_its_end(self) -> None:
        """Its block may wait for many others that kill."""
        board = Board([])
        for pid in range(5 * FRUITLESS):
            up(board, who(pid))
            row_id = f"row{pid // (TRIALS + 1)}"
            board.enter(who(pid), [row_id])
            board.dying(who(pid), "it died", [row_id])
        assert not board.read().hopeless

    @pytest.mark.parametrize("how", ["judged", "stored"])
    def test_are_none_when_a_row_gets_further(self, how: str) -> None:
        board = Board([])
        for pid in range(5 * FRUITLESS):
            assert up(board, who(pid)) is not None
            if pid % FRUITLESS == FRUITLESS - 1:
                board.rows([row()]) if how == "judged" else board.stored(0, 1)
        assert not board.read().failure

    def test_of_one_worker_are_not_those_of_another(self) -> None:
        """A large cluster is preempted as a whole."""
        board = Board([])
        for pid in range(FRUITLESS):
            for actor in range(64):
                assert up(board, who(100 * pid + actor, f"actor{actor}")) is not None
        assert not board.read().failure


class TestCauses:
    """A cause from outside is no row's."""

    def deaths_alone(self, board: Board) -> tuple[int, int]:
        suspect = board.suspects("engine", ["a"])["a"]
        return suspect.trials, suspect.deaths_alone

    def suspected(self) -> Board:
        board = Board([])
        up(board, who(1))
        board.enter(who(1), ["a"])
        board.dying(who(1), "it died", ["a"])
        up(board, who(2))
        board.enter(who(2), ["a"])
        return board

    def test_a_process_says_so_itself(self) -> None:
        board = self.suspected()
        board.dying(who(2), "the engine core was ended by SIGTERM", ["a"], True)
        assert self.deaths_alone(board) == (0, 1)

    @pytest.mark.parametrize("outside", [True, False])
    def test_its_successor_has_found_out(self, outside: bool) -> None:
        board = self.suspected()
        assert board.predecessor(who(3)) == who(2)
        board.starting(who(3), gone=("its node is gone", outside))
        assert self.deaths_alone(board) == (0 if outside else 1, 1)
        assert board.read().deaths[-1] == "host:2: its node is gone"

    @pytest.mark.parametrize("outside", [True, False])
    def test_the_driver_knows_whom_it_kills(self, outside: bool) -> None:
        board = self.suspected()
        board.killing(who(2), "it did not react and was killed", outside)
        board.starting(who(3), gone=("its process was killed", True))
        assert self.deaths_alone(board) == (0 if outside else 1, 1)
        assert board.read().deaths[-1] == "host:2: it did not react and was killed"

    def test_one_that_said_why_has_no_successor_to_ask(self) -> None:
        board = self.suspected()
        board.dying(who(2), "it died", ["a"])
        assert board.predecessor(who(3)) is None


def test_rows_that_have_ended_are_under_way_until_a_checker_has_them() -> None:
    board = Board([])
    up(board, who(1, "a"))
    up(board, who(2, "b"))
    board.leave(who(1, "a"), ["x", "y"])
    board.leave(who(2, "b"), ["z"])
    assert (board.underway(who(1, "a")), board.underway(who(2, "b"))) == (2, 1)
    board.suspects("engine", ["x"])
    assert board.underway(who(1, "a")) == 2
    board.suspects("checker", ["x", "z"])
    assert (board.underway(who(1, "a")), board.underway(who(2, "b"))) == (1, 0)
    board.dying(who(1, "a"), "it died", [])
    assert board.underway(who(1, "a")) == 0
