"""Episodes of tau2 with scripted models."""

import asyncio
from typing import Any

from ace_ray.benchmarks.context import EpisodeContext, RoleModel
from ace_ray.benchmarks.tau2.benchmark import Tau2
from ace_ray.sandbox.protocol import LocalSession
from ace_ray.types import Entry, Episode, Sampling
from tests.scripted_model import ScriptedModel


def build(**options: Any) -> Tau2:
    return Tau2.from_options({"data": "installed", **options})


def entry_of(benchmark: Tau2, category: str, entry_id: str = "") -> Entry:
    """Return the entry with this id, or the first of a category."""
    entries = (entry for entry in benchmark.dataset() if entry.category == category)
    return next(entry for entry in entries if entry_id in ("", entry.id))


def play(
    benchmark: Tau2, entry: Entry, agent: ScriptedModel, user: ScriptedModel | None = None
) -> Episode:
    """Play an episode of the entry without Ray."""
    sampling = Sampling(max_tokens=50)
    roles = {} if user is None else {"user": RoleModel(user, sampling, {"model": "user"})}

    async def opened() -> LocalSession:
        return LocalSession(benchmark.scenario(entry))

    context = EpisodeContext(RoleModel(agent, sampling), roles, open_sandbox=opened)
    return asyncio.run(benchmark.run(entry, context))
