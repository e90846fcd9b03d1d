"""Run a benchmark's service in a Ray actor. A service keeps the state that all episodes share."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import RayActorError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ace_ray.benchmarks.base import Benchmark
from ace_ray.errors import RowError, UserError
from ace_ray.pipeline.actors.coordinator import fetch_shared
from ace_ray.pipeline.actors.verdicts import log_traceback

# Timeout of a call including its retries, during which the actor may restart.
LOST_S = 120.0
# Maximum number of requests in one call of the actor.
BATCH_REQUESTS = 256

# Method and arguments.
Call = tuple[str, tuple[Any, ...]]


class ServiceLost(RowError):
    """Raised if a benchmark's service refuses a request or does not answer. The row is retried."""


class ServiceActor:
    """Runs the service of ``benchmark`` as a Ray actor. ``coordinator``: the coordinator's name."""

    def __init__(self, coordinator: str, benchmark: str) -> None:
        _, benchmarks = fetch_shared(ray.get_actor(coordinator))
        service = benchmarks[benchmark].service()
        assert service is not None  # an actor exists only for a benchmark with a service
        self._service = service

    def open(self) -> UserError | None:
        """Open the service. Return the error if the service cannot be opened, else None."""
        try:
            self._service.open()
        except UserError as error:
            return error
        return None

    def answer(self, calls: Sequence[Call]) -> list[tuple[Any, str]]:
        """Return (answer, "") for each call, or (None, reason) for a call that fails."""
        return [self._call(method, arguments) for method, arguments in calls]

    def _call(self, method: str, arguments: tuple[Any, ...]) -> tuple[Any, str]:
        try:
            return self._service.call(method, *arguments), ""
        except RowError as error:
            return None, str(error)
        except Exception as error:  # noqa: BLE001 - the other requests of this call go on
            log_traceback()
            return None, f"{type(error).__name__}: {error}"


class ServiceClient:
    """Client through which the episodes of one process use a service actor. Requests that arrive
    during a call are sent together in the next call, since a call costs Ray a millisecond."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor
        self._waiting: deque[tuple[Call, asyncio.Future[Any]]] = deque()
        self._sender: asyncio.Task[None] | None = None

    async def __call__(self, method: str, *arguments: Any) -> Any:
        """Return the answer of the service. A request is retried if the actor dies, so the service
        may execute it twice.

        Raises `RowError` if the service refuses the request or does not answer."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append(((method, arguments), future))
        if self._sender is None:
            self._sender = asyncio.ensure_future(self._send())
        return await future

    async def _send(self) -> None:
        try:
            while self._waiting:
                size = min(BATCH_REQUESTS, len(self._waiting))
                batch = [self._waiting.popleft() for _ in range(size)]
                batch = [(call, future) for call, future in batch if not future.done()]
                try:
                    answers = await self._call_actor([call for call, _ in batch])
                except Exception as error:  # noqa: BLE001 - raised in the rows that wait
                    answers = [(None, f"{type(error).__name__}: {error}")] * len(batch)
                for (_, future), (answer, refusal) in zip(batch, answers, strict=True):
                    if refusal and not future.done():
                        future.set_exception(ServiceLost(refusal))
                    elif not future.done():  # else the request was cancelled
                        future.set_result(answer)
        finally:
            self._sender = None

    async def _call_actor(self, calls: list[Call]) -> list[tuple[Any, str]]:
        pause_s = 0.2
        try:
            async with asyncio.timeout(LOST_S):
                while True:
                    # A call is repeated only if the actor died; a slow service still works on it.
                    with suppress(RayActorError):
                        answers: list[tuple[Any, str]] = await self._actor.answer.remote(calls)
                        return answers
                    await asyncio.sleep(pause_s)
                    pause_s = min(5.0, 2 * pause_s)
        except TimeoutError as error:
            raise TimeoutError(f"no answer within {LOST_S:g} s") from error


def start_services(coordinator: str, benchmarks: Mapping[str, Benchmark]) -> dict[str, Any]:
    """Start an actor on this node for each benchmark that has a service, which may use a local
    folder. Return the handles by benchmark. The actors' names begin with ``coordinator``, the name
    of the coordinator. Raises `UserError` if a service cannot be opened."""
    strategy = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    actor = ray.remote(num_cpus=0, max_restarts=-1, scheduling_strategy=strategy)(ServiceActor)
    started = {
        name: actor.options(name=f"{coordinator}-{name}").remote(coordinator, name)
        for name, benchmark in benchmarks.items()
        if benchmark.service() is not None
    }
    opened = [service.open.remote() for service in started.values()]
    for refusal in ray.get(opened, timeout=LOST_S):
        if refusal is not None:
            raise refusal
    return started
