"""An API for tests of whoever answers it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ace_ray.benchmarks.context import RoleModel
from ace_ray.benchmarks.stabletoolbench.tools import Api
from ace_ray.types import Sampling
from tests.scripted_model import ScriptedModel

API = Api(
    category="News, Media",
    tool="Clique",
    api="Player Details",
    std_category="News_Media",
    std_tool="clique",
    std_api="player_details",
    name="player_details_for_clique",
    description="shown to the agent",
    parameters={},
    api_description="Details of a player.",
    tool_description="All about sports.",
    required=[{"name": "Player ID", "type": "STRING", "description": "its id", "default": "1"}],
    optional=[{"name": "from", "type": "DATE", "description": "", "default": ""}],
    template={"name": "str", "goals": "int"},
)


def an_api(**changes: Any) -> Api:
    return replace(API, **changes)


def role_of(
    model: ScriptedModel, sampling: Sampling | None = None, /, **identity: Any
) -> RoleModel:
    return RoleModel(model, sampling or Sampling(temperature=0.1, seed=42), identity)
