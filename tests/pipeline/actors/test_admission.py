"""Which rows an engine works on together, and in which order they are admitted."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

from ace_ray.pipeline.actors.admission import AdmissionControl, Group
from ace_ray.pipeline.actors.kv_budget import KVBudget
from ace_ray.pipeline.health.isolation import OPEN
from ace_ray.types import Completion, EngineFigures
from tests.limits import until


class Rows:
    """Blocks of rows that ask for places in an engine, in an event loop of their own."""

    def __init__(self, max_rows: int = 1000, **how: Any) -> None:
        self.admission = AdmissionControl(max_rows, **how)
        self._loop = asyncio.new_event_loop()
        self._inside: list[str] = []
        self._groups: dict[str, Group] = {}
        self._ends = defaultdict[str, asyncio.Event](asyncio.Event)
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def inside(self) -> list[str]:
        """Names of the blocks that have places, when no task can go on."""
        for _ in range(10):
            self._loop.run_until_complete(asyncio.sleep(0))
        return self._inside

    def ask(
        self, name: str, isolation: int = OPEN, run: int = 0, rows: int = 1, **how: Any
    ) -> None:
        work = self._work(name, (run, isolation), rows, **how)
        self._tasks[name] = self._loop.create_task(work)

    async def _work(self, name: str, partition: tuple[int, int], rows: int, **how: Any) -> None:
        async with self.admission.admission(partition, rows, **how) as self._groups[name]:
            self._inside.append(name)
            try:
                await self._ends[name].wait()
            finally:
                self._inside.remove(name)

    def row_ends(self, name: str) -> None:
        self._loop.call_soon(self.admission.free_place, self._groups[name])

    def end(self, *names: str) -> None:
        for name in names:
            self._ends[name].set()

    def cancel(self, name: str) -> None:
        self._tasks[name].cancel()

    def all_arrived(self) -> None:
        self._loop.call_soon(self.admission.note_arrival)

    def __enter__(self) -> Rows:
        return self

    def __exit__(self, failure: object, *_: object) -> None:
        """Let all rows end. Then no place is taken."""
        if failure is not None:
            return
        self.end(*self._tasks)
        for isolation in (7, OPEN, 8):
            self.ask(f"afterwards {isolation}", isolation)
            self.end(f"afterwards {isolation}")
        work = asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._loop.run_until_complete(asyncio.wait_for(work, 5))
        self._loop.close()


def test_isolated_groups_work_alone_and_before_open_rows() -> None:
    with Rows() as rows:
        rows.ask("inside")
        rows.ask("five", 5)
        rows.ask("three", 3)
        rows.ask("open")
        rows.ask("four", 4)
        rows.ask("three again", 3)
        assert rows.inside == ["inside"]
        rows.end("inside")
        assert rows.inside == ["five"]
        rows.end("five")
        assert rows.inside == ["three", "three again"]
        rows.end("three")
        assert rows.inside == ["three again"]
        rows.end("three again")
        assert rows.inside == ["four"]
        rows.end("four")
        assert rows.inside == ["open"]


def test_rows_enter_in_their_order_while_there_is_room() -> None:
    with Rows(9) as rows:
        for name in "abc":
            rows.ask(name, rows=4)
        rows.ask("small")
        assert rows.inside == ["a", "b"]
        rows.end("a")
        assert rows.inside == ["b", "c", "small"]


def test_a_block_with_more_rows_than_places_works_alone() -> None:
    with Rows(9) as rows:
        rows.ask("first")
        rows.ask("huge", rows=99)
        rows.ask("last")
        assert rows.inside == ["first"]
        rows.end("first")
        assert rows.inside == ["huge"]
        rows.end("huge")
        assert rows.inside == ["last"]


def test_each_row_gives_its_place_back_when_it_ends() -> None:
    with Rows(3) as rows:
        rows.ask("three", rows=3)
        rows.ask("two", rows=2)
        assert rows.inside == ["three"]
        rows.row_ends("three")
        assert rows.inside == ["three"]
        rows.row_ends("three")
        assert rows.inside == ["three", "two"]


def test_cancelled_rows_leave_no_place_and_do_not_wait() -> None:
    with Rows() as rows:
        rows.ask("inside")
        rows.ask("goes", 1)
        rows.ask("stays", 2)
        assert rows.inside == ["inside"]
        rows.cancel("goes")
        assert rows.inside == ["inside"]
        rows.cancel("inside")
        assert rows.inside == ["stays"]


def test_rows_of_the_loaded_run_go_first_and_those_still_to_arrive_are_awaited() -> None:
    with Rows(run=2, arriving=True) as rows:
        rows.ask("earlier run", run=1)
        rows.ask("later run", run=3)
        assert rows.inside == []
        rows.ask("loaded run", run=2)
        assert rows.inside == ["loaded run"]
        rows.end("loaded run")
        assert rows.inside == []
        rows.all_arrived()
        assert rows.inside == ["earlier run"]
        rows.end("earlier run")
        assert rows.inside == ["later run"]


def test_a_row_that_crashed_an_engine_alone_waits_until_another_row_has_ended() -> None:
    with Rows(run=0, arriving=True) as rows:
        rows.ask("tried", 5, tried=1)
        assert rows.inside == []
        rows.ask("open")
        assert rows.inside == ["open"]
        rows.ask("isolated", 6)
        rows.row_ends("open")
        rows.end("open")
        assert rows.inside == ["tried"]
        rows.end("tried")
        assert rows.inside == ["isolated"]


def test_after_four_starts_without_progress_open_rows_go_first() -> None:
    with Rows(run=0, arriving=True, starts_since_progress=4) as rows:
        rows.ask("isolated", 5)
        rows.ask("also isolated", 6)
        rows.ask("open")
        assert rows.inside == ["open"]
        rows.row_ends("open")
        rows.end("open")
        assert rows.inside == ["isolated"]


def test_after_seven_starts_without_progress_the_most_tried_row_goes_first() -> None:
    with Rows(run=0, arriving=True, starts_since_progress=7) as rows:
        rows.ask("once", 5, tried=1)
        rows.ask("twice", 6, tried=2)
        rows.ask("new", 7)
        rows.ask("open")
        assert rows.inside == [], "more may arrive"
        rows.all_arrived()
        assert rows.inside == ["twice"]


def test_episodes_wait_until_their_contexts_fit() -> None:
    room = KVBudget(23_000)  # an episode needs 0.85 * (4,000 + 8,000) at first
    with Rows(room=room) as rows:
        for name in "abcd":
            rows.ask(name, episodes=True)
        rows.ask("single call")
        assert rows.inside == ["a", "b", "single call"]
        # Most of the first prompts is shared, so that contexts are shorter.
        contexts = [room.open(), room.open()]
        for context in contexts:
            figures = EngineFigures(2_000, 0.1, 0.1)
            context.add("", Completion("", prompt_tokens=4_000, engine=figures))
        until(lambda: rows.inside == ["a", "b", "single call", "c"])
        contexts[0].add("", Completion("", prompt_tokens=9_000))
        rows.ask("e", episodes=True)
        assert "e" not in rows.inside
        rows.end("a")
        assert "d" in rows.inside
