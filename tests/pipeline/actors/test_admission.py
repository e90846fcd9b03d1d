"""Who is in an engine together: one group at a time, isolated ones first, and nobody waits for
ever."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ace_ray.pipeline.actors.admission import (
    ISOLATED_LAST,
    MOST_TRIED_FIRST,
    AdmissionControl,
    Group,
)
from ace_ray.pipeline.health.isolation import OPEN


class Visitors:
    """Tasks that ask for admission, and a look at who is inside."""

    def __init__(self, most: int = 1000, **how: Any) -> None:
        self.admission = AdmissionControl(most, **how)
        self.inside: list[str] = []
        self.order: list[str] = []
        self.groups: dict[str, Group] = {}
        self._ends: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def come(self, name: str, group: int = OPEN, rows: int = 1, **how: Any) -> None:
        """Somebody asks for admission and waits, or enters and stays until told to go."""
        self._ends[name] = asyncio.Event()
        self._tasks[name] = asyncio.create_task(self._visit(name, group, rows, **how))
        await settle()

    async def _visit(self, name: str, group: int, rows: int, run: int = 0, tried: int = 0) -> None:
        async with self.admission.entered((run, group), rows, tried=tried) as admitted:
            self.groups[name] = admitted
            self.inside.append(name)
            self.order.append(name)
            try:
                await self._ends[name].wait()
            finally:
                self.inside.remove(name)

    async def row_ends(self, name: str) -> None:
        self.admission.row_ended(self.groups[name])
        await settle()

    async def go(self, *names: str) -> None:
        for name in names:
            self._ends[name].set()
        await settle()

    def cancel(self, name: str) -> None:
        self._tasks[name].cancel()

    async def cancelled(self, *names: str) -> None:
        for name in names:
            self.cancel(name)
        await settle()

    async def end(self) -> None:
        """Everybody leaves, however long the queue; nothing is left of them."""
        for _ in range(len(self._tasks) + 1):
            await self.go(*self._ends)
        ended = await asyncio.wait_for(
            asyncio.gather(*self._tasks.values(), return_exceptions=True), 5
        )
        assert all(r is None or isinstance(r, asyncio.CancelledError) for r in ended)
        for group in (7, OPEN, 8):
            await asyncio.wait_for(pass_through(self.admission, group), 5)


async def pass_through(admission: AdmissionControl, group: int) -> None:
    async with admission.entered((0, group), 1):
        pass


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


Scene = Callable[[Visitors], Coroutine[Any, Any, None]]


def played(scene: Scene, most: int = 1000, **how: Any) -> Visitors:
    async def play() -> Visitors:
        visitors = Visitors(most, **how)
        await scene(visitors)
        await visitors.end()
        return visitors

    return asyncio.run(play())


def test_a_group_has_the_engine_to_itself() -> None:
    async def scene(v: Visitors) -> None:
        await v.come("open")
        await v.come("isolated row", 1)
        await v.come("late")
        assert v.inside == ["open"], "who comes later does not overtake the group that waits"
        await v.go("open")
        assert v.inside == ["isolated row"]
        await v.come("later")
        assert v.inside == ["isolated row"]
        await v.go("isolated row")
        assert v.inside == ["late", "later"]

    played(scene)


def test_isolated_rows_enter_in_the_order_in_which_their_groups_asked_then_all_others() -> None:
    async def scene(v: Visitors) -> None:
        await v.come("inside")
        for group in (5, 3, OPEN, 4):
            await v.come(str(group), group)
        await v.come("3 too", 3)
        await v.go("inside", "5", "3", "3 too", str(OPEN), "4")
        await v.end()
        assert v.order == ["inside", "5", "3", "3 too", "4", "0"]

    played(scene)


def test_isolated_rows_do_not_wait_until_no_other_row_is_left() -> None:
    """There is always another row that nothing is known of, waiting since before they came."""

    async def scene(v: Visitors) -> None:
        for index in range(6):
            await v.come(f"open {index}")
        await v.come("isolated row", 1)
        await v.go("open 0")
        await v.come("open 6")
        assert v.inside == ["open 1"]
        await v.go("open 1")
        assert v.inside == ["isolated row"]
        await v.go("isolated row")
        assert v.inside == ["open 2", "open 3"]

    played(scene, most=2)


def test_no_more_rows_than_there_is_room_for() -> None:
    async def scene(v: Visitors) -> None:
        await v.come("a", rows=4)
        await v.come("b", rows=4)
        await v.come("c", rows=4)
        await v.come("d", rows=1)
        assert v.inside == ["a", "b"], "who comes later does not overtake, however small"
        await v.go("a")
        assert v.inside == ["b", "c", "d"]
        await v.come("huge", rows=99)
        await v.go("b", "c")
        assert v.inside == ["d"]
        await v.go("d")
        assert v.inside == ["huge"], "alone, or it would wait for ever"
        await v.come("e")
        assert v.inside == ["huge"]

    played(scene, most=9)


def test_each_row_leaves_room_as_soon_as_it_ends() -> None:
    """A slow row holds no place but its own."""

    async def scene(v: Visitors) -> None:
        await v.come("three", rows=3)
        await v.come("two", rows=2)
        assert v.inside == ["three"]
        await v.row_ends("three")
        assert v.inside == ["three"], "one place is free, two are needed"
        await v.row_ends("three")
        assert v.inside == ["three", "two"]

    played(scene, most=3)


def test_another_group_waits_until_all_groups_have_left() -> None:
    """What a group does after its last row ended is done before the weights change."""

    async def scene(v: Visitors) -> None:
        await v.come("two", rows=2)
        await v.come("isolated row", 1)
        await v.row_ends("two")
        await v.row_ends("two")
        assert v.inside == ["two"]
        await v.go("two")
        assert v.inside == ["isolated row"]

    played(scene)


def test_a_row_that_ends_after_its_group_has_left_frees_nothing_twice() -> None:
    async def scene(v: Visitors) -> None:
        await v.come("gone", rows=2)
        admitted = v.groups["gone"]
        await v.cancelled("gone")
        v.admission.row_ended(admitted)
        await v.come("a", rows=2)
        await v.come("b")
        assert v.inside == ["a"]

    played(scene, most=2)


def test_an_exception_gives_its_places_back() -> None:
    async def scene(v: Visitors) -> None:
        async def fails() -> None:
            async with v.admission.entered((0, 1), 1):
                raise ValueError("inside")

        with pytest.raises(ValueError, match="inside"):
            await fails()
        await v.come("next", 2)
        assert v.inside == ["next"]

    played(scene)


async def follow(v: Visitors, script: list[Any]) -> None:
    """Each step is a call of a method, or who is inside then."""
    for step in script:
        if isinstance(step, list):
            assert v.inside == step
        elif step == "arrived":
            v.admission.arrived()
            await settle()
        else:
            method, *arguments = step
            options = arguments.pop() if isinstance(arguments[-1], dict) else {}
            await getattr(v, method)(*arguments, **options)


CANCELLED: dict[str, list[Any]] = {
    "inside": [("come", "a", 1), ("come", "b", 2), ("cancelled", "a"), ["b"]],
    "while waiting": [
        *(("come", "inside"), ("come", "goes", 1), ("come", "stays", 2)),
        *(("cancelled", "goes"), ["inside"]),
        *(("go", "inside"), ["stays"]),
    ],
    "who waited for it enters": [
        *(("come", "inside"), ("come", "isolated row", 1), ("cancelled", "isolated row")),
        *(("come", "open"), ["inside", "open"]),
    ],
    "one of a waiting group": [
        *(("come", "inside"), ("come", "a", 1), ("come", "b", 1), ("come", "c", 1)),
        *(("cancelled", "b"), ("go", "inside"), ["a", "c"]),
    ],
}


@pytest.mark.parametrize("case", CANCELLED)
def test_cancelled(case: str) -> None:
    async def scene(v: Visitors) -> None:
        await follow(v, CANCELLED[case])

    played(scene)


@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize("when", ["before", "after"])
def test_cancelled_in_the_step_in_which_it_is_let_in(when: str, others: int) -> None:
    """Its turn has come, its own step has not: it must not stay counted."""

    async def scene(v: Visitors) -> None:
        last = asyncio.Event()

        async def leave_and_cancel() -> None:
            async with v.admission.entered((0, OPEN), 1):
                await last.wait()
                if when == "before":
                    v.cancel("goes")
            if when == "after":
                v.cancel("goes")

        leaving = asyncio.create_task(leave_and_cancel())
        await settle()
        await v.come("goes", 1)
        for index in range(others):
            await v.come(f"peer {index}", 1)
        await v.come("next", 2)
        last.set()
        await settle()
        assert leaving.done()
        assert "goes" not in v.order
        if others:
            assert v.inside == ["peer 0"]
            await v.go("peer 0")
        assert v.inside == ["next"]

    played(scene)


@pytest.mark.parametrize("seed", range(8))
def test_whatever_happens_groups_never_meet_and_all_get_through(seed: int) -> None:
    random_ = random.Random(seed)
    most = random_.choice([1, 3, 1000])
    admission, through = AdmissionControl(most), []
    inside: dict[int, tuple[int, int]] = {}

    async def visit(name: int, group: int) -> None:
        rows = random_.randrange(1, 4)
        for _ in range(random_.randrange(4)):
            await asyncio.sleep(0)
        async with admission.entered((0, group), rows) as admitted:
            inside[name] = group, rows
            assert {other for other, _ in inside.values()} == {group}, "two groups are inside"
            assert len(inside) == 1 or sum(count for _, count in inside.values()) <= most
            try:
                for _ in range(random_.randrange(4)):
                    await asyncio.sleep(0)
                    if random_.random() < 0.5:
                        admission.row_ended(admitted)
                        rows = max(1, rows - 1)
                        inside[name] = group, rows
            finally:
                del inside[name]
        through.append(name)

    async def play() -> None:
        tasks = [asyncio.create_task(visit(i, random_.choice([0, 0, 1, 2, 3]))) for i in range(60)]
        doomed = random_.sample(range(60), 25)
        for index in doomed:
            for _ in range(random_.randrange(3)):
                await asyncio.sleep(0)
            tasks[index].cancel()
        results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10)
        assert not [r for r in results if isinstance(r, AssertionError)]
        spared = set(range(60)) - set(doomed)
        assert spared <= set(through)
        await asyncio.wait_for(pass_through(admission, 99), 5)

    asyncio.run(play())


def test_the_earlier_run_comes_first_and_alone() -> None:
    """Each change of runs changes the engine's weights: late rows of a run go before the next."""

    async def scene() -> None:
        admission, order = AdmissionControl(10), []
        leave = asyncio.Event()

        async def visit(run: int, group: int) -> None:
            async with admission.entered((run, group), 1):
                order.append((run, group))
                await leave.wait()

        tasks = []
        for run, group in [(0, OPEN), (1, OPEN), (0, 5), (2, OPEN), (0, OPEN)]:
            tasks.append(asyncio.create_task(visit(run, group)))
            await settle()
        assert order == [(0, OPEN)]
        leave.set()
        await asyncio.gather(*tasks)
        assert [run for run, _ in order] == [0, 0, 0, 1, 2]

    asyncio.run(scene())


AFTER_ANOTHER: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "rows of the run whose weights are there go before all others": (
        {"run": 2, "arriving": True},
        [
            *(("come", "earlier run", {"run": 1}), ("come", "later run", {"run": 3}), []),
            *(("come", "awaited", {"run": 2}), ["awaited"]),
            *(("go", "awaited"), []),  # none has passed
            *("arrived", ["earlier run"]),
            *(("go", "earlier run"), ["later run"]),
        ],
    ),
    "they may not come": (
        {"run": 2, "arriving": True},
        [("come", "other", {"run": 1}), "arrived", ["other"]],
    ),
    "the first process waits for nobody": (
        {"run": 2},
        [("come", "other", {"run": 1}), ["other"]],
    ),
    # Each change of weights takes seconds, or an engine.
    "the run whose weights are there goes on": (
        {"run": 2},
        [
            *(("come", "held", {"run": 2}), ("come", "earlier run", {"run": 1})),
            ("come", "held isolated row", 7, {"run": 2}),
            *(("go", "held"), ["held isolated row"]),
            *(("go", "held isolated row"), ["earlier run"]),
        ],
    ),
    "one that killed alone goes after another has passed": (
        {"run": 0, "arriving": True},
        [
            *(("come", "tried", 5, {"tried": 1}), []),  # others may be on their way
            *(("come", "open"), ["open"]),
            *(("come", "isolated row", 6), ("row_ends", "open"), ("go", "open"), ["tried"]),
            *(("go", "tried"), ["isolated row"]),
        ],
    ),
    "isolated rows that were not tried go before it": (
        {"run": 0},
        [
            *(("come", "inside", 4), ("come", "tried", 5, {"tried": 1}), ("come", "open")),
            *(("come", "isolated row", 6), ("go", "inside"), ["isolated row"]),
        ],
    ),
    "it goes where there is no other": (
        {"run": 0, "arriving": True},
        [("come", "tried", 5, {"tried": 1}), [], "arrived", ["tried"]],
    ),
    "where engines die again and again open rows go first": (
        {"run": 0, "arriving": True, "starts_since_progress": ISOLATED_LAST},
        [
            *(("come", "isolated row", 5), ("come", "other isolated row", 6)),
            *(("come", "open"), ["open"]),
            *(("row_ends", "open"), ("go", "open"), ["isolated row"]),
        ],
    ),
    "and of many killers one comes to its end after the other": (
        {"run": 0, "arriving": True, "starts_since_progress": MOST_TRIED_FIRST},
        [
            *(("come", "once", 5, {"tried": 1}), ("come", "twice", 6, {"tried": 2})),
            *(("come", "new", 7), ("come", "open"), []),  # more may be on their way
            *("arrived", ["twice"]),
        ],
    ),
}


@pytest.mark.parametrize("case", AFTER_ANOTHER)
def test_after_another(case: str) -> None:
    """A process takes the place of one that died, whose blocks come again in any order."""
    how, script = AFTER_ANOTHER[case]

    async def scene(v: Visitors) -> None:
        await follow(v, script)

    played(scene, **how)


def test_once_closed_nobody_waits() -> None:
    async def visit() -> None:
        visitors = Visitors(2)
        await visitors.come("a", rows=2)
        await visitors.come("b", rows=2)
        await visitors.come("c", group=7)
        assert visitors.inside == ["a"]
        visitors.admission.close()
        await settle()
        assert visitors.inside == ["a", "b", "c"]
        await visitors.come("d", rows=2)
        assert visitors.inside == ["a", "b", "c", "d"]
        assert [visitors.groups[name].rows for name in "abcd"] == [2, 0, 0, 0]

    asyncio.run(visit())
