"""Actors that host the engines of roles: the models that a run serves besides the candidate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import ray
from ray.util import metrics as ray_metrics

from ace_ray.cluster.resources import ROLE_ENGINE_CPUS, gpus_per_worker
from ace_ray.config.roles import ServedRole
from ace_ray.config.schema import RunConfig
from ace_ray.errors import EngineDead, EngineNotStarted, RowError, RunFailed
from ace_ray.models.engine_args import cluster_engine_args
from ace_ray.models.families import FormatChoice
from ace_ray.models.sources import ModelRef, materialize
from ace_ray.pipeline.actors.weights import MonitoredEngine
from ace_ray.pipeline.actors.worker_config import guard_start
from ace_ray.pipeline.health.heartbeat import Heartbeat, die, this_process
from ace_ray.pipeline.monitoring.timing import Clock
from ace_ray.pipeline.roles import RoleBindings, RoleEngineFailed, shared_engines
from ace_ray.types import Completion, Messages, Sampling, Tools
from ace_ray.util.subprocesses import start_watchdog

# Maximum number of requests in one actor. vLLM queues them.
MAX_REQUESTS = 10_000


class RoleEngine:
    """Ray actor that hosts one engine of a role's model.

    If the engine or the process fails, Ray restarts the actor and repeats its requests."""

    def __init__(
        self,
        name: str,
        role: ServedRole,
        model: ModelRef,
        engine: Mapping[str, Any],
        coordinator: Any,
        stall_timeout_s: float,
    ) -> None:
        from ace_ray.models.vllm_engine import VLLMEngine

        self._coordinator, self._process = coordinator, this_process("role")
        self._engine: MonitoredEngine | None = None
        # An exception is only reported: Ray would show the user a traceback.
        with suppress(Exception), guard_start(coordinator, self._process, f"the engine of {name}"):
            start_watchdog()
            choice = FormatChoice(
                engine.get("reasoning_parser") or role.model.reasoning_parser,
                role.model.tool_parser,
                template_kwargs=role.model.chat_template_kwargs,
            )
            metrics = model.name, ray_metrics
            loaded = VLLMEngine(materialize(model), engine, choice, metrics=metrics)
            monitored = MonitoredEngine(loaded, stall_timeout_s / 4, Clock())
            ray.get(coordinator.update_process.remote(self._process, facts={}))
            Heartbeat(
                coordinator,
                self._process,
                stall_timeout_s=stall_timeout_s,
                busy_since=monitored.busy_since,
            )
            self._engine = monitored

    async def is_ready(self) -> bool:
        """Return whether the engine has started."""
        return self._engine is not None

    async def chat(
        self, messages: Messages, sampling: Sampling, tools: Tools = None
    ) -> Completion | RowError:
        """Return the answer, or the error with which the engine refuses the request."""
        if self._engine is None:
            return RoleEngineFailed("the engine of a role crashed and could not be restarted")
        try:
            return await self._engine.chat(messages, sampling, tools)
        except EngineDead as error:
            die(self._coordinator, self._process, str(error))
        except RowError as error:
            return error  # Ray would raise an exception of another class


@contextmanager
def role_engines(
    bindings: RoleBindings, name: str, config: RunConfig, *, on_gpu: bool
) -> Iterator[dict[tuple[str, str], tuple[Any, ...]]]:
    """Start the engines of all roles, and end them when the context ends. Roles with the same
    model and settings share engines.

    ``name``: name of the coordinator's actor. Yield the actors by (benchmark, role name). Raises
    `RunFailed` if an engine is not ready within ``start_timeout_s``, and `EngineNotStarted` if an
    engine fails to start and has reported the cause to the coordinator."""
    coordinator = ray.get_actor(name)
    served: dict[tuple[str, str], tuple[str, ...]] = {}
    actors: list[Any] = []
    try:
        for role, group in shared_engines(bindings):
            names, first = next(iter(group.items()))
            seeded = any(binding.sampling.temperature > 0 for binding in group.values())
            args = cluster_engine_args(role.engine, on_gpu=on_gpu, seeded=seeded)
            options = {
                "num_cpus": ROLE_ENGINE_CPUS,
                "num_gpus": gpus_per_worker(args) if on_gpu else 0,
                "max_restarts": -1,
                "max_task_retries": -1,
                "max_concurrency": MAX_REQUESTS,
            }
            settings = (
                ".".join(names),
                role,
                first.model,
                args,
                coordinator,
                config.engine_stall_timeout_s,
            )
            labels = [f"{name}-role-{len(actors) + i}" for i in range(role.replicas)]
            actors += [
                ray.remote(RoleEngine).options(name=label, **options).remote(*settings)
                for label in labels
            ]
            served |= dict.fromkeys(group, tuple(labels))
        try:
            ready = [actor.is_ready.remote() for actor in actors]
            if not all(ray.get(ready, timeout=config.start_timeout_s)):
                raise EngineNotStarted("the engine of a role failed to start")
        except ray.exceptions.GetTimeoutError as error:
            limit_s = config.start_timeout_s
            line = f"an engine of a role did not start within {limit_s:g} s (start_timeout_s)"
            raise RunFailed(line, resumable=True) from error
        # Only the handles in this frame keep the actors alive: the job has handles by name.
        yield {names: tuple(map(ray.get_actor, labels)) for names, labels in served.items()}
    finally:
        for actor in actors:
            ray.kill(actor)
