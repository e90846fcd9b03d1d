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


@pytest.mark.parametrize(
    ("policy", "shown"), [("none", []), ("tool_steps", [4, 6]), ("all", [1, 4, 6])]
)
def test_reasoning_is_stored_and_replayed_as_the_policy_says(policy: str, shown: list[int]) -> None:
    model = ScriptedModel(THOUGHT)
    context = EpisodeContext(RoleModel(model, Sampling()), replay_reasoning=policy)

    async def episode() -> None:
        context.say("user", "go")
        await context.ask(tools=[])
        context.say("user", "again")
        context.say("system", "x")
        for _ in range(2):
            await context.ask(tools=[])
            context.say("tool", "found")
        await context.ask(tools=[])

    asyncio.run(episode())
    stored = context.episode.messages[1]
    assert stored["reasoning"] == "why"
    assert stored["raw"] == "<think>why</think>a"
    assert stored["tool_calls"][0]["id"] == "functions.find:0"
    last = model.chats[-1]
    assert [at for at, message in enumerate(last) if "reasoning" in message] == shown
    assert not any("raw" in message or "text" in message for message in last)


def test_tools_are_stored_once_with_the_answer_that_they_came_for() -> None:
    def tool(name: str) -> dict[str, Any]:
        return {"type": "function", "function": {"name": name}}

    context = EpisodeContext(RoleModel(ScriptedModel(THOUGHT), Sampling()))
    assert context.episode.tools is None

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


def test_a_role_is_offered_tools_and_draws_as_it_is_told() -> None:
    model = ScriptedModel(THOUGHT)
    own, tools = Sampling(seed=3), [{"type": "function", "function": {"name": "find"}}]
    context = EpisodeContext(RoleModel(model, Sampling()), roles={"user": RoleModel(model, own)})
    messages = [{"role": "user", "content": "go"}]

    async def episode() -> Completion:
        await context.ask_role("user", messages)
        return await context.ask_role(
            "user", messages, {"type": "object"}, tools=tools, sampling=Sampling(seed=4)
        )

    answer = asyncio.run(episode())
    first, second = model.asked
    assert (first.sampling, first.tools) == (own, None)
    assert (second.sampling, second.tools) == (
        Sampling(seed=4).following({"type": "object"}),
        tools,
    )
    assert answer.tools is not None
    assert [call.name for call in answer.tools.calls] == ["find"]
    assert context.episode.messages == []
    assert context.episode.tools is None


def test_without_tools_the_model_is_sent_what_was_said_alone() -> None:
    sent = as_sent([{"role": "assistant", "content": "a", "reasoning": "r", "raw": "ra"}])
    assert sent == [{"role": "assistant", "content": "a"}]


def test_what_is_stored_of_an_answer_as_written_is_bounded() -> None:
    assert bounded_raw("a", "a") == ""
    assert bounded_raw("x" * RAW_CHARS + "end", "end").endswith("end")
    assert len(bounded_raw("x" * RAW_CHARS + "end", "end")) == RAW_CHARS
