"""The context of an episode: what a model is sent, and what is recorded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ace_ray.benchmarks.context import EpisodeContext, RoleModel, as_sent
from ace_ray.types import RAW_CHARS, Completion, Sampling, ToolAnswer, ToolCall, bounded_raw
from tests.scripted_model import ScriptedModel

CALL = ToolCall("find", "{}", "functions.find:0")
THOUGHT = Completion(
    "a", reasoning="why", raw="<think>why</think>a", tools=ToolAnswer("a", (CALL,))
)


def tool(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


@pytest.mark.parametrize(
    ("policy", "shown"), [("none", []), ("tool_steps", [4, 6]), ("all", [1, 4, 6])]
)
def test_reasoning_is_stored_and_replayed_as_the_policy_says(policy: str, shown: list[int]) -> None:
    model = ScriptedModel(THOUGHT)
    context = EpisodeContext(RoleModel(model, Sampling()), replay_reasoning=policy)

    async def episode() -> None:
        for role in ("user", "", "user", "system", "", "tool", "", "tool", ""):
            if role:
                context.say(role, "x")
            else:
                await context.ask(tools=[])

    asyncio.run(episode())
    stored = context.episode.messages[1]
    assert stored["reasoning"] == "why"
    assert stored["raw"] == "<think>why</think>a"
    assert stored["tool_calls"][0]["id"] == "functions.find:0"
    last = model.chats[-1]
    assert [at for at, message in enumerate(last) if "reasoning" in message] == shown
    assert not any("raw" in message or "text" in message for message in last)
    sent = as_sent([{"role": "assistant", "content": "a", "reasoning": "r", "raw": "ra"}])
    assert sent == [{"role": "assistant", "content": "a"}]


def test_tools_are_stored_once_with_the_answer_that_they_came_for() -> None:
    context = EpisodeContext(RoleModel(ScriptedModel(THOUGHT), Sampling()))

    async def episode() -> None:
        context.say("user", "go")
        await context.ask()
        assert context.episode.tools is None
        for offered in (["a"], ["a"], ["a", "b"], ["b"]):
            await context.ask(tools=[tool(name) for name in offered])

    asyncio.run(episode())
    assert context.episode.tools == [
        {**tool("a"), "since_answer": 2},
        {**tool("b"), "since_answer": 4},
    ]
    single = EpisodeContext(RoleModel(ScriptedModel(THOUGHT), Sampling()))
    asyncio.run(single.answer([{"role": "user", "content": "go"}], [tool("a")]))
    assert single.episode.tools == [tool("a")]


def test_the_raw_answer_is_bounded() -> None:
    assert bounded_raw("a", "a") == ""
    assert bounded_raw("x" * RAW_CHARS + "end", "end").endswith("end")
    assert len(bounded_raw("x" * RAW_CHARS + "end", "end")) == RAW_CHARS
