"""Play episodes of benchmarks in this process, with scripted models."""

import asyncio
import time
from typing import Any

from ace_ray.benchmarks.context import EpisodeContext, RoleModel
from ace_ray.sandbox.protocol import LocalSession
from ace_ray.types import Entry, Episode, Sampling


def context_of(
    benchmark: Any,
    entry: Entry,
    agent: Any,
    user: Any = None,
    *,
    seconds: float | None = None,
    **more: Any,
) -> EpisodeContext:
    """Make the context of an episode, which may have a deadline."""

    async def open_sandbox() -> LocalSession:
        return LocalSession(benchmark.scenario(entry))

    deadline = None
    if seconds is not None:
        benchmark.scenario(entry)  # processes of tools start before the deadline counts
        deadline = time.monotonic() + seconds
    roles = {} if user is None else {"user": RoleModel(user, Sampling(), {"model": "scripted"})}
    return EpisodeContext(
        RoleModel(agent, Sampling()), roles, open_sandbox=open_sandbox, deadline=deadline, **more
    )


def play(benchmark: Any, entry: Entry, *models: Any, **more: Any) -> Episode:
    """Play an episode of an agent, and of a user where the benchmark has one."""
    episode: Episode = asyncio.run(
        benchmark.run(entry, context_of(benchmark, entry, *models, **more))
    )
    return episode


async def stalled() -> bool:
    """Say that an engine does not answer a health check."""
    return False
