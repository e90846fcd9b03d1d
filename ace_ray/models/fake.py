"""A model without weights, for tests of the pipeline and its faults; never an evaluation.

Chosen by ``backend: fake``; ``engine`` then holds its script instead of vLLM's arguments.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from ace_ray.config import Section
from ace_ray.errors import EngineDead, PromptTooLong
from ace_ray.models.reasoning import split_think
from ace_ray.records import Completion, Sampling, ToolAnswer, ToolCall


class FakeCall(Section):
    """A tool call of the fake; ``arguments`` is JSON text, right or wrong."""

    name: str
    arguments: str = "{}"


class FakeScript(Section):
    """What the fake answers. Keys of the maps are substrings of the last message."""

    default: str = "[]"
    replies: dict[str, str] = Field(default_factory=dict)
    calls: dict[str, list[FakeCall]] = Field(
        default_factory=dict, description="called beside the reply when tools are offered"
    )
    delay_s: float = 0.0
    max_model_len: int = 1 << 20
    fail: dict[str, str] = Field(default_factory=dict, description="raises RuntimeError(text)")
    hang: list[str] = Field(default_factory=list, description="never answers")
    die: dict[str, str] = Field(
        default_factory=dict,
        description="engine death, once for the named marker file, every time for an empty name",
    )


def count_words(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None
) -> int:
    """The fake's token count."""
    texts = [message["content"] for message in messages] + [*(tools or ())]
    return sum(len(str(text).split()) for text in texts)


class FakeEngine:
    """Answers from its script; token counts are word counts."""

    version = "fake"

    def __init__(self, script: Mapping[str, Any]) -> None:
        self._script = FakeScript.model_validate(dict(script))
        self.max_model_len = self._script.max_model_len

    async def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        sampling: Sampling,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> Completion:
        script, last = self._script, str(messages[-1]["content"])
        words = count_words(messages, tools)
        if words >= script.max_model_len:
            raise PromptTooLong(f"{words} tokens, the context holds {script.max_model_len}")
        for key, marker in script.die.items():
            if key in last and not (marker and os.path.exists(marker)):
                if marker:
                    open(marker, "w").close()
                raise EngineDead("told to die")
        if any(key in last for key in script.hang):
            await asyncio.Event().wait()
        await asyncio.sleep(script.delay_s)
        for key, text in script.fail.items():
            if key in last:
                raise RuntimeError(text)
        text = next((r for k, r in script.replies.items() if k in last), script.default)
        split = split_think(text)
        calls = next((c for k, c in script.calls.items() if k in last), [])
        answer = ToolAnswer(split.answer, tuple(ToolCall(c.name, c.arguments) for c in calls))
        return Completion(
            text=split.answer,
            tools=None if tools is None else answer,
            reasoning=split.reasoning,
            reasoning_truncated=split.truncated,
            prompt_tokens=words,
            completion_tokens=len(text.split()),
            seconds=script.delay_s,
        )
