"""Keep the state of episodes in Ray actors, with sessions that survive the crash of an actor.

A scenario is the state of one episode and its tools; an actor has the scenarios of many episodes.
The session on the worker keeps a log of the episode's calls. If the actor crashes or has dropped
the episode, the session opens a new scenario, replays the log and repeats the call in flight. Each
call takes effect exactly once, since the state of the earlier scenario is lost."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

import ray
from ray.exceptions import RayActorError

from ace_ray.errors import SandboxLost
from ace_ray.sandbox.protocol import Observation, RecallScenario, Scenario

# Maximum scenarios of an actor. Scenarios of a crashed worker are never closed, so an actor drops
# the least recently used scenario. If its session is still active, the session replays the log.
MAX_EPISODES = 1024

CALL_TIMEOUT_S = 90.0
# Timeout to open an episode, including the start of a new actor and the replay.
OPEN_TIMEOUT_S = 120.0
# Maximum attempts of one call if actors crash, hang or lose the episode. Then the row fails.
MAX_MOVES = 6

Call = tuple[str, Mapping[str, Any]]


class SandboxActor:
    """Keeps the scenarios of many episodes. ``factory`` creates a scenario from a ``spec``."""

    def __init__(self, factory: Callable[[Any], Scenario]) -> None:
        self._factory = factory
        self._open: OrderedDict[str, Scenario] = OrderedDict()

    def open(self, episode: str, spec: Any, log: Sequence[Call]) -> None:
        """Create a scenario and replay ``log``. Replace any earlier scenario of ``episode``."""
        scenario = self._factory(spec)
        for name, arguments in log:
            scenario.call(name, arguments)
        self._open[episode] = scenario
        self._open.move_to_end(episode)
        while len(self._open) > MAX_EPISODES:
            self._open.popitem(last=False)

    def ask(self, episode: str, method: str, *values: Any) -> tuple[Any] | None:
        """Call a method of the episode's scenario. Return the result in a 1-tuple, or None if this
        actor does not have the episode."""
        scenario = self._open.get(episode)
        if scenario is None:
            return None
        self._open.move_to_end(episode)
        if method == "newest_answers" and not isinstance(scenario, RecallScenario):
            return ([],)
        return (getattr(scenario, method)(*values),)  # named by `PooledSession`, not by a model

    def close(self, episode: str) -> None:
        self._open.pop(episode, None)


class SandboxPool:
    """Opens sessions on a pool of `SandboxActor`s, round-robin."""

    def __init__(self, actors: Sequence[Any]) -> None:
        self._actors = list(actors)
        self._turn = itertools.count(os.getpid())

    async def open(self, spec: Any) -> PooledSession:
        session = PooledSession(self._actors, next(self._turn) % len(self._actors), spec)
        await session.open_scenario()
        return session


class PooledSession:
    """A `Session` on an actor of the pool. After a crash, the session uses another actor."""

    def __init__(self, actors: Sequence[Any], actor_index: int, spec: Any) -> None:
        self._actors, self._actor_index, self._spec = actors, actor_index, spec
        self._episode = uuid4().hex
        self._log: list[Call] = []

    async def open_scenario(self) -> None:
        """Open the scenario and replay the log. Raises `SandboxLost` if no actor answers."""
        clock, pause_s = asyncio.get_running_loop().time, 0.2
        deadline = clock() + OPEN_TIMEOUT_S
        while True:
            try:
                await asyncio.wait_for(
                    self._actor.open.remote(self._episode, self._spec, self._log),
                    deadline - clock(),
                )
                return
            except (RayActorError, TimeoutError) as error:
                failure = type(error).__name__
            self._swap_actor()
            # Calls to a restarting actor fail at once. On a busy node a restart takes many seconds.
            if clock() + pause_s >= deadline:
                line = f"no sandbox actor accepted the episode within {OPEN_TIMEOUT_S:g} s"
                raise SandboxLost(f"{line} ({failure})")
            await asyncio.sleep(pause_s)
            pause_s = min(5.0, 2 * pause_s)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Observation:
        observation: Observation = await self._ask("call", name, arguments)
        self._log.append((name, arguments))
        return observation

    async def newest_answers(self, last: int) -> list[Any]:
        answers: list[Any] = await self._ask("newest_answers", last)
        return answers

    async def state(self) -> Any:
        return await self._ask("state")

    async def close(self) -> None:
        # Not awaited: the result is not needed, and a crashed actor has lost the scenario anyway.
        self._actor.close.remote(self._episode)

    @property
    def _actor(self) -> Any:
        return self._actors[self._actor_index]

    async def _ask(self, method: str, *values: Any) -> Any:
        failure = ""
        for _ in range(MAX_MOVES):
            try:
                answer = await asyncio.wait_for(
                    self._actor.ask.remote(self._episode, method, *values), CALL_TIMEOUT_S
                )
                if answer is not None:
                    return answer[0]
                failure = "the actor was restarted"
            except RayActorError as error:
                failure = type(error).__name__
                self._swap_actor()
            except TimeoutError:
                failure = f"no answer within {CALL_TIMEOUT_S:g} s"
                # The actor may hang, and other episodes wait for it: restart its process.
                ray.kill(self._actor, no_restart=False)
                self._swap_actor()
            await self.open_scenario()
        raise SandboxLost(f"a sandbox call was lost {MAX_MOVES} times ({failure})")

    def _swap_actor(self) -> None:
        self._actor_index = (self._actor_index + 1) % len(self._actors)


def start_actors(
    factory: Callable[[Any], Scenario], names: Sequence[str], *, cpus: float
) -> tuple[Any, ...]:
    """Start sandbox actors with ``cpus`` logical CPUs each. Ray restarts crashed actors."""
    actor = ray.remote(num_cpus=cpus, max_restarts=-1)(SandboxActor)
    return tuple(actor.options(name=name).remote(factory) for name in names)
