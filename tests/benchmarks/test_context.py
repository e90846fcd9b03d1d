from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ace_ray.benchmarks.context import EpisodeContext, RoleModel, as_sent
from ace_ray.types import RAW_CHARS, Completion, Sampling, ToolAnswer, ToolCall, bounded_raw


class Thinker:
    """Answers with a thought and a call, and keeps what it was sent."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    async def chat(self, messages: Any, sampling: Any, tools: Any = None) -> Completion:
        self.sent.append([dict(message) for message in messages])
        call = ToolCall("find", "{}", "functions.find:0")
        return Completion(
            "a", reasoning="why", raw="<think>why</think>a", tools=ToolAnswer("a", (call,))
        )


@pytest.mark.parametrize(
    ("policy", "shown"), [("none", []), ("tool_steps", [4, 6]), ("all", [1, 4, 6])]
)
def test_reasoning_is_stored_and_replayed_as_the_policy_says(policy: str, shown: list[int]) -> None:
    model = Thinker()
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
    last = model.sent[-1]
    assert [at for at, message in enumerate(last) if "reasoning" in message] == shown
    assert not any("raw" in message or "text" in message for message in last)


def test_tools_are_stored_once_with_the_answer_that_they_came_for() -> None:
    def tool(name: str) -> dict[str, Any]:
        return {"type": "function", "function": {"name": name}}

    context = EpisodeContext(RoleModel(Thinker(), Sampling()))
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
    single = EpisodeContext(RoleModel(Thinker(), Sampling()))
    asyncio.run(single.answer([{"role": "user", "content": "go"}], [tool("a")]))
    assert single.episode.tools == [tool("a")]


def test_a_role_is_offered_tools_and_draws_as_it_is_told() -> None:
    asked: list[Any] = []

    class Caller(Thinker):
        async def chat(self, messages: Any, sampling: Any, tools: Any = None) -> Completion:
            asked.append((sampling, tools))
            return await super().chat(messages, sampling, tools)

    own, tools = Sampling(seed=3), [{"type": "function", "function": {"name": "find"}}]
    context = EpisodeContext(
        RoleModel(Thinker(), Sampling()), roles={"user": RoleModel(Caller(), own)}
    )
    messages = [{"role": "user", "content": "go"}]

    async def episode() -> Completion:
        await context.ask_role("user", messages)
        return await context.ask_role(
            "user", messages, {"type": "object"}, tools=tools, sampling=Sampling(seed=4)
        )

    answer = asyncio.run(episode())
    assert asked[0] == (own, None)
    assert asked[1] == (Sampling(seed=4).following({"type": "object"}), tools)
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
