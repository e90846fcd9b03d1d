"""Sandbox actors: episodes stay apart, survive a crash of their actor, and never hang."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import ray

from ace_ray.errors import SandboxLost
from ace_ray.sandbox import actor as sandbox_actor
from ace_ray.sandbox.actor import SandboxActor, SandboxPool, start_actors
from ace_ray.sandbox.protocol import Observation


class Counter:
    """Count calls by name; ``sleep`` hangs, and ``state`` names the process."""

    def __init__(self, start: int) -> None:
        self.counts: dict[str, int] = {"start": start}

    def call(self, name: str, arguments: Mapping[str, Any]) -> Observation:
        if name == "sleep":
            time.sleep(arguments["seconds"])
        self.counts[name] = self.counts.get(name, 0) + arguments.get("by", 1)
        return Observation(self.counts[name])

    def state(self) -> dict[str, Any]:
        return {**self.counts, "pid": os.getpid()}


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    # Workers cannot import a test module.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture
def actors(cluster: None) -> Iterator[tuple[Any, ...]]:
    actor_list = start_actors(Counter, [os.urandom(4).hex() for _ in range(2)], cpus=0.1)
    yield actor_list
    for actor in actor_list:
        ray.kill(actor)


def counts(state: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in state.items() if name != "pid"}


@pytest.mark.ray
@pytest.mark.nightly
def test_episodes_of_killed_actors_go_on_where_they_were(actors: tuple[Any, ...]) -> None:
    async def play() -> None:
        pool = SandboxPool(actors)
        sessions = [await pool.open(start) for start in range(6)]
        for number, session in enumerate(sessions):
            for by in (1, 10, number):
                await session.call("step", {"by": by})
        before = [await session.state() for session in sessions]
        for pid in {state["pid"] for state in before}:
            os.kill(pid, signal.SIGKILL)
        answers = [await session.call("step", {"by": 1000}) for session in sessions]
        assert [answer.value for answer in answers] == [1011 + n for n in range(6)]
        after = [await session.state() for session in sessions]
        assert [counts(episode) for episode in after] == [
            {"start": n, "step": 1011 + n} for n in range(6)
        ]
        assert not {state["pid"] for state in before} & {state["pid"] for state in after}
        # A call in flight takes effect once.
        call = asyncio.create_task(sessions[0].call("sleep", {"seconds": 1.5}))
        await asyncio.sleep(0.7)
        os.kill(after[0]["pid"], signal.SIGKILL)
        assert (await call).value == 1
        assert counts(await sessions[0].state()) == {"start": 0, "step": 1011, "sleep": 1}

    asyncio.run(play())


@pytest.mark.ray
@pytest.mark.nightly
def test_stuck_actor_is_replaced_and_a_call_that_always_hangs_is_given_up(actors, monkeypatch):
    monkeypatch.setattr(sandbox_actor, "CALL_TIMEOUT_S", 1.0)
    monkeypatch.setattr(sandbox_actor, "MAX_MOVES", 2)

    async def play() -> None:
        pool = SandboxPool(actors)
        session = await pool.open(0)
        with pytest.raises(SandboxLost, match=r"2 times .*no answer within 1 s"):
            await session.call("sleep", {"seconds": 60})
        assert counts(await session.state()) == {"start": 0}
        assert (await session.call("step", {})).value == 1

    monkeypatch.setattr(sandbox_actor, "OPEN_TIMEOUT_S", 60.0)
    asyncio.run(play())


def test_forgotten_episode_is_rebuilt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox_actor, "MAX_EPISODES", 2)
    holder = SandboxActor(Counter)
    for name in ("a", "b"):
        holder.open(name, 0, [])
    assert holder.ask("a", "call", "step", {}) == (Observation(1),)
    holder.open("c", 0, [("step", {"by": 5})])
    assert holder.ask("b", "state") is None
    assert holder.ask("a", "call", "step", {}) == (Observation(2),)
    assert holder.ask("c", "call", "step", {}) == (Observation(6),)
    holder.close("a")
    assert holder.ask("a", "call", "step", {}) is None
