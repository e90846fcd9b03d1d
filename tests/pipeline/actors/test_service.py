"""Calls of a benchmark's service: repeated if its actor died, but not if it is slow."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorDiedError

from ace_ray.pipeline.actors import service as service_module
from ace_ray.pipeline.actors.service import RunningService, ServiceLost


async def dies() -> Any:
    raise ActorDiedError


async def answers() -> Any:
    return [("yes", "")]


async def hangs() -> Any:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("replies", "answer"),
    [([dies, answers], "yes"), ([hangs, answers], ServiceLost)],
    ids=["actor died", "no answer"],
)
def test_only_a_call_of_a_dead_actor_is_repeated(
    monkeypatch: pytest.MonkeyPatch, replies: list[Callable[[], Awaitable[Any]]], answer: Any
) -> None:
    monkeypatch.setattr(service_module, "LOST_S", 0.5)
    waiting = iter(replies)
    calls = SimpleNamespace(remote=lambda requests: next(waiting)())

    async def ask() -> Any:
        return await RunningService(SimpleNamespace(calls=calls))("get", 1)

    if answer is ServiceLost:
        with pytest.raises(ServiceLost, match=r"no answer within 0.5 s"):
            asyncio.run(ask())
    else:
        assert asyncio.run(ask()) == answer
    assert len(list(waiting)) == (answer is ServiceLost)
