"""The order in which an API call is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ace_ray.benchmarks.stabletoolbench.apis.answers import BAD_ARGUMENTS, Answered
from ace_ray.benchmarks.stabletoolbench.apis.cache import CacheClient
from ace_ray.benchmarks.stabletoolbench.apis.simulator import Simulator
from ace_ray.benchmarks.stabletoolbench.apis.stub import stub_answer
from ace_ray.benchmarks.stabletoolbench.apis.values import Unusable, arguments_of, canonical_key
from ace_ray.benchmarks.stabletoolbench.tools import Api
from ace_ray.errors import UserError
from ace_ray.mistakes import check_names

BACKENDS = ("cache", "real", "simulator", "stub")
NO_ANSWER = "The API server has no answer to this request."


class Real(Protocol):
    async def answer(self, api: Api, arguments: Any) -> Answered: ...


def check_backends(backends: Sequence[str], where: str) -> tuple[str, ...]:
    """``backends`` as they are asked: the cache, the real API, then a simulator or the stub.

    Raises `UserError`: an unknown name, one that is named twice or out of that order, or none.
    """
    names = tuple(backends)
    check_names(names, BACKENDS, what="backend", where=where)
    fix = f"write some of {', '.join(BACKENDS)}, in this order"
    if not names:
        raise UserError("no backend", where=where, fix=fix)
    places = [BACKENDS.index(name) for name in names]
    if places != sorted(set(places)):
        raise UserError(f"{', '.join(names)} is not in order", where=where, fix=fix)
    if {"simulator", "stub"} <= set(names):
        raise UserError(
            "the stub answers every call that a simulator would be asked to make up again",
            where=where,
            fix="name simulator or stub",
        )
    return names


class ApiCaller:
    """Answers API calls for all episodes of one process.

    Args:
        cache, real, simulator: whom to ask, in this order; None for those that are not.
        stub_seed: the stub's seed; None: no stub.

    Two identical calls at the same time are answered once.
    """

    def __init__(
        self,
        *,
        cache: CacheClient | None = None,
        real: Real | None = None,
        simulator: Simulator | None = None,
        stub_seed: int | None = None,
    ) -> None:
        self._cache, self._real, self._simulator = cache, real, simulator
        self._stub_seed = stub_seed
        self._flying: dict[tuple[str, str, str, str], _Flight] = {}

    async def call(self, api: Api, arguments: Mapping[str, Any] | str) -> Answered:
        """Return the answer to one call; ``arguments`` is an object or a JSON text.

        Every outcome is an `Answered`, except that a simulator's own failure (`RowError`,
        `EngineDead`) is raised: it says nothing about the agent.
        """
        try:
            given = arguments_of(arguments)
        except Unusable:
            return Answered(BAD_ARGUMENTS, "", "none", failure="arguments")
        key = (api.std_category, api.std_tool, api.std_api, canonical_key(given))
        flight = self._flying.get(key)
        if flight is None:
            flight = self._flying[key] = _Flight(asyncio.ensure_future(self._ask(api, given)))
        try:
            return await flight.join()
        finally:
            # Before a cancelled flight has ended: who comes now must not join it.
            if flight.over and self._flying.get(key) is flight:
                del self._flying[key]

    async def _ask(self, api: Api, arguments: Any) -> Answered:
        cache = self._cache
        if cache and (recorded := await cache.get(api, arguments)) is not None:
            return recorded
        answered = Answered(NO_ANSWER, "", "none", failure="no_backend")
        if self._real:
            answered = await self._real.answer(api, arguments)
        if answered.failure and self._simulator:
            shown = await cache.examples(api) if cache and self._simulator.takes_examples else []
            answered = await self._simulator.answer(api, arguments, shown)
        if answered.failure and self._stub_seed is not None:
            return stub_answer(api, arguments, self._stub_seed)
        if cache and answered.failure in ("", "simulator"):
            return await cache.put(api, arguments, answered)
        return answered


class _Flight:
    """One call under way and those who wait for it; it ends when the last of them gives up."""

    def __init__(self, task: asyncio.Future[Answered]) -> None:
        self.task, self._waiting = task, 0
        self.over = False

    async def join(self) -> Answered:
        self._waiting += 1
        try:
            return await asyncio.shield(self.task)
        finally:
            self._waiting -= 1
            self.over = self.task.done() or not self._waiting
            if not self._waiting:
                self.task.cancel()
