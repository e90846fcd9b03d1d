"""Calls of a service actor travel together, and each gets its own answer."""

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
    """Answers like a Ray actor, one call after another, after it has raised ``fails``."""

    def __init__(self, *fails: Exception) -> None:
        self.calls = self
        self.sizes: list[int] = []
        self._fails, self._actor = list(fails), ServiceActor(Doubler)

    async def remote(self, asked: Sequence[Any]) -> list[tuple[Any, str]]:
        await asyncio.sleep(0.01)
        if self._fails:
            raise self._fails.pop(0)
        self.sizes.append(len(asked))
        return self._actor.calls(asked)


def answers(actor: Actor, *numbers: int) -> list[Any]:
    """Ask for all of ``numbers`` at once, and then for 1, which must work."""

    async def play() -> list[Any]:
        service = RunningService(actor)
        calls = (service("get", number) for number in numbers)
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert await service("get", 1) == 2
        return found

    return asyncio.run(play())


def test_requests_during_a_call_go_together_in_the_next_one() -> None:
    actor, numbers = Actor(), range(14, 14 + module.MOST + 40)
    assert answers(actor, *numbers) == [2 * number for number in numbers]
    assert actor.sizes == [module.MOST, 40, 1]


def test_refusals_and_defects_reach_only_the_request_that_caused_them() -> None:
    one, refused, defect, two = answers(Actor(), 1, 13, 7, 2)
    assert (one, two) == (2, 4)
    assert type(refused) is type(defect) is ServiceLost
    assert (str(refused), str(defect)) == ("not that one", "ValueError: a defect")
    failed = answers(Actor(RuntimeError("the store is full")), 1, 2)
    assert [str(error) for error in failed] == ["RuntimeError: the store is full"] * 2


def test_requests_are_repeated_while_the_actor_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert answers(Actor(RayActorError(), RayActorError()), 1, 2) == [2, 4]
    monkeypatch.setattr(module, "LOST_S", 0.1)
    (lost,) = answers(Actor(RayActorError()), 1)
    assert isinstance(lost, ServiceLost)
    assert "no answer within 0.1 s" in str(lost)
