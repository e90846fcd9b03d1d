"""An API for tests of whoever answers it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ace_ray.benchmarks.context import RoleModel
from ace_ray.benchmarks.stabletoolbench.tools import Api
from ace_ray.types import Completion, Sampling

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


Reply = str | Exception | Callable[[list[dict[str, Any]], Sampling], str]


class Scripted:
    """A model that says what it is told to, one reply after the other, the last for ever."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = replies
        self.asked: list[tuple[list[dict[str, Any]], Sampling]] = []

    async def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        sampling: Sampling,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> Completion:
        chat = [dict(message) for message in messages]
        self.asked.append((chat, sampling))
        reply = self.replies[min(len(self.asked), len(self.replies)) - 1]
        await asyncio.sleep(0)
        if isinstance(reply, Exception):
            raise reply
        return Completion(text=reply if isinstance(reply, str) else reply(chat, sampling))

    def role_model(self, sampling: Sampling | None = None, **identity: Any) -> RoleModel:
        return RoleModel(self, sampling or Sampling(temperature=0.1, seed=42), identity)
