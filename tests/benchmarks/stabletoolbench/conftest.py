"""The published queries where they are, and a context for agents."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.context import EpisodeContext, RoleModel
from ace_ray.benchmarks.stabletoolbench.episode.run import AgentRun, run_agent
from ace_ray.benchmarks.stabletoolbench.options import Settings
from ace_ray.benchmarks.stabletoolbench.tools import apis_of
from ace_ray.types import Entry, Sampling
from tests.benchmarks.stabletoolbench.scripted_agent import BREAD, Table

ROOT = Path(__file__).resolve().parents[3]
Played = Callable[..., AgentRun]


@pytest.fixture(scope="session")
def shared_queries() -> Path:
    """All of StableToolBench's queries in the official layout."""
    shared = Path(os.environ.get("ACE_RAY_SHARED") or ROOT.parent / "shared")
    folder = shared / "data" / "stabletoolbench"
    if not (folder / "solvable_queries").is_dir():
        pytest.skip("the published queries are not here; name their parent with ACE_RAY_SHARED")
    return folder


@pytest.fixture
def play() -> Played:
    """Plays an episode: ``play(model, method="CoT@1", ...)``."""

    def run(
        model: Any,
        *,
        entry: Entry = BREAD,
        caller: Any = None,
        deadline_s: float | None = None,
        works: Any = None,
        **settings: Any,
    ) -> AgentRun:
        async def episode() -> AgentRun:
            chosen = Settings(**settings)
            clock = asyncio.get_running_loop().time()
            context = EpisodeContext(
                RoleModel(model, Sampling(seed=5)),
                deadline=None if deadline_s is None else clock + deadline_s,
                works=works,
            )
            apis = apis_of(entry, chosen.texts)
            return await run_agent(entry, context, chosen, apis, caller or Table())

        found = asyncio.run(episode())
        json.dumps(found.as_json(), allow_nan=False)
        return found

    return run
