"""The door to what one process owns: calls travel together, and each gets its own answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from ray.exceptions import RayActorError

from ace_ray.errors import RowError
from ace_ray.pipeline.actors import service as module
from ace_ray.pipeline.actors.service import RunningService, ServiceActor, ServiceLost


class Doubler:
    """A service that doubles numbers, refuses 13, and has a defect at 7."""

    def open(self) -> None: ...

    def call(self, method: str, number: int) -> int:
        if number == 13:
            raise RowError("not that one")
        if number == 7:
            raise ValueError("a defect")
        return 2 * number


class Actor:
    """Answers as a Ray actor does, one call after another."""

    def __init__(self, fails: Sequence[Exception] = ()) -> None:
        self.calls = self
        self.sizes: list[int] = []
        self._fails, self._held = list(fails), ServiceActor(Doubler)

    async def remote(self, asked: Sequence[Any]) -> list[tuple[Any, str]]:
        await asyncio.sleep(0.01)
        if self._fails:
            raise self._fails.pop(0)
        self.sizes.append(len(asked))
        return self._held.calls(asked)


async def all_of(door: RunningService, numbers: Sequence[int]) -> list[Any]:
    return await asyncio.gather(*(door("get", n) for n in numbers), return_exceptions=True)


def test_what_is_asked_meanwhile_travels_together() -> None:
    actor = Actor()

    async def play() -> None:
        door = RunningService(actor)
        assert await all_of(door, range(14, 14 + module.MOST + 40)) == [
            2 * n for n in range(14, 14 + module.MOST + 40)
        ]
        assert await door("get", 1) == 2

    asyncio.run(play())
    assert actor.sizes == [module.MOST, 40, 1]


def test_a_refusal_or_a_defect_is_its_own_rows() -> None:
    found = asyncio.run(all_of(RunningService(Actor()), [1, 13, 7, 2]))
    assert [found[0], found[3]] == [2, 4]
    assert [type(one) for one in found[1:3]] == [ServiceLost, ServiceLost]
    assert [str(one) for one in found[1:3]] == ["not that one", "ValueError: a defect"]


def test_a_process_that_dies_is_asked_again() -> None:
    actor = Actor([RayActorError(), RayActorError()])
    assert asyncio.run(all_of(RunningService(actor), [1, 2])) == [2, 4]


def test_one_that_does_not_come_back_fails_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOST_S", 0.1)
    (found,) = asyncio.run(all_of(RunningService(Actor([RayActorError()] * 9)), [1]))
    assert isinstance(found, ServiceLost)
    assert "no answer within 0.1 s" in str(found)


def test_any_other_failure_leaves_nobody_waiting() -> None:
    async def play() -> None:
        door = RunningService(Actor([RuntimeError("the store is full")]))
        found = await asyncio.wait_for(all_of(door, [1, 2]), 10)
        assert [str(one) for one in found] == ["RuntimeError: the store is full"] * 2
        assert await door("get", 1) == 2

    asyncio.run(play())


def test_who_gives_up_takes_nothing_from_others() -> None:
    async def play() -> None:
        door = RunningService(Actor())
        first, second = (asyncio.ensure_future(door("get", n)) for n in (1, 2))
        await asyncio.sleep(0)
        first.cancel()
        assert await second == 4
        assert await door("get", 3) == 6

    asyncio.run(play())
