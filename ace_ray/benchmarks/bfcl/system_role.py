"""For chat templates that refuse system messages: the same chat without any."""

from __future__ import annotations

from typing import Any

from ace_ray.benchmarks.context import Model
from ace_ray.records import Completion, Messages, Sampling, Tools


def without_system(messages: Messages) -> list[dict[str, Any]]:
    """System messages as the user's; what the user then says several times in a row is one message
    (upstream ``convert_system_prompt_into_user_prompt``, ``combine_consecutive_user_prompts``)."""
    found: list[dict[str, Any]] = []
    for message in messages:
        said = {**message, "role": "user"} if message["role"] == "system" else dict(message)
        if said["role"] == "user" and found and found[-1]["role"] == "user":
            found[-1]["content"] += "\n\n" + said["content"]
        else:
            found.append(said)
    return found


class WithoutSystem:
    """A model that is asked `without_system`; what is stored keeps its roles."""

    def __init__(self, model: Model) -> None:
        self._model = model

    async def chat(self, messages: Messages, sampling: Sampling, tools: Tools = None) -> Completion:
        return await self._model.chat(without_system(messages), sampling, tools)
