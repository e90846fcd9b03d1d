"""What all episodes of a run share and one process owns: a benchmark's `Service` in an actor."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import ray
from ray.exceptions import RayActorError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ace_ray.benchmarks.protocol import Benchmark, Service
from ace_ray.errors import RowError, UserError
from ace_ray.run.board import fetch_benchmarks, named_board

CALL_S = 60.0
"""Seconds that one call may take."""
LOST_S = 120.0
"""Seconds until a call is given up whose actor does not come back."""


class ServiceLost(RowError):
    """The service of a benchmark gave no answer; the row is tried again."""


class ServiceActor:
    """Holds one benchmark's service."""

    def __init__(self, board: str, benchmark: str) -> None:
        service = fetch_benchmarks(named_board(board))[benchmark].service()
        assert service is not None  # only benchmarks that have one get an actor
        self._service: Service = service

    def open(self) -> UserError | None:
        """Why it cannot be had now."""
        try:
            self._service.open()
        except UserError as error:
            return error
        return None

    def call(self, method: str, arguments: tuple[Any, ...]) -> tuple[Any, str]:
        """(answer, ""), or (None, why a row cannot go on)."""
        try:
            return self._service.call(method, *arguments), ""
        except RowError as error:
            return None, str(error)


class RunningService:
    """A door to the actor, for episodes."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    async def __call__(self, method: str, *arguments: Any) -> Any:
        """What the service answers; asked again when its process dies, so a call may take effect
        twice.

        Raises `RowError`: the service says so, or is gone.
        """
        clock, pause_s = asyncio.get_running_loop().time, 0.2
        deadline = clock() + LOST_S
        while True:
            try:
                asked = self._actor.call.remote(method, arguments)
                answer, refusal = await asyncio.wait_for(asked, CALL_S)
            except (RayActorError, TimeoutError) as error:
                if clock() + pause_s >= deadline:
                    raise ServiceLost(
                        f"no answer to {method!r} within {LOST_S:g} s ({type(error).__name__})"
                    ) from error
                await asyncio.sleep(pause_s)
                pause_s = min(5.0, 2 * pause_s)
                continue
            if refusal:
                raise ServiceLost(refusal)
            return answer


def start_services(board: str, benchmarks: Mapping[str, Benchmark]) -> dict[str, Any]:
    """An actor for each benchmark that has a service, on this node: it may own a local folder.
    ``board`` is the name of the board. Raises `UserError`: one cannot be had, and none is left."""
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    actor = ray.remote(ServiceActor).options(num_cpus=0, max_restarts=-1, scheduling_strategy=here)
    started = {
        name: actor.remote(board, name)
        for name, benchmark in benchmarks.items()
        if benchmark.service() is not None
    }
    for refusal in ray.get([service.open.remote() for service in started.values()]):
        if refusal is not None:
            for service in started.values():
                ray.kill(service)
            raise refusal
    return started
