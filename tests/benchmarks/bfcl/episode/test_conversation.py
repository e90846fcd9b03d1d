"""Multi-turn conversations: what a model sees, what is stored, and how they end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ace_ray.benchmarks.bfcl.benchmark import BFCL
from ace_ray.benchmarks.bfcl.data.loader import load
from ace_ray.benchmarks.bfcl.episode.conversation import EpisodeSettings, rollout
from ace_ray.benchmarks.bfcl.prompts import own
from ace_ray.benchmarks.bfcl.tools.environment import initial_state_of, open_environment
from ace_ray.benchmarks.context import EpisodeContext, RoleModel
from ace_ray.errors import EpisodeStalled, PromptTooLong
from ace_ray.sandbox.protocol import LocalSession
from ace_ray.types import Entry, Episode, Sampling
from tests.benchmarks.bfcl.synthetic_bfcl import COPY, DOCS, SOURCES
from tests.scripted_model import Reply, ScriptedModel, hang, say

BASE, MISS_FUNC = (load(COPY, [f"multi_turn_{name}"])[0] for name in ("base", "miss_func"))


class Session(LocalSession):
    closed = 0

    async def close(self) -> None:
        Session.closed += 1


def played(
    entry: Entry,
    model: ScriptedModel,
    *,
    seconds: float | None = None,
    works: Any = None,
    **options: Any,
) -> Episode:
    async def opened() -> LocalSession:
        return Session(open_environment(SOURCES, initial_state_of(entry, DOCS)))

    async def run() -> Episode:
        deadline = None if seconds is None else asyncio.get_running_loop().time() + seconds
        role = RoleModel(model, Sampling())
        context = EpisodeContext(role, open_sandbox=opened, deadline=deadline, works=works)
        return await rollout(entry, context, EpisodeSettings(own(), DOCS, **options))

    return asyncio.run(run())


def test_prompted_model_sees_functions_calls_and_results() -> None:
    text = "[close_day(), total(customer='x')]"
    model = ScriptedModel(text, "fine", "bye")
    episode = played(BASE, model)
    first, second, third = model.chats
    assert first == own().messages(BASE.data["question"][0], DOCS["Bakery"])
    ((results,), _) = episode.state["results"]
    told = [
        {"role": "tool", "name": call, "content": result}
        for call, result in zip(["close_day()", "total(customer='x')"], results, strict=True)
    ]
    assert second == [*first, {"role": "assistant", "content": text}, *told]
    assert third == [*second, {"role": "assistant", "content": "fine"}, *BASE.data["question"][1]]
    assert [request.tools for request in model.asked] == [None, None, None]
    assert episode.messages == [*third, {"role": "assistant", "content": "bye"}]
    assert episode.state["turns"] == [[text, "fine"], ["bye"]]
    assert (episode.model_calls, episode.prompt_tokens) == (3, 30)
    before, after = BFCL.sandbox_states(episode.state) or ({}, {})
    assert before["Bakery"]["orders"] == BASE.data["initial_config"]["Bakery"]["orders"]
    assert (before["Bakery"]["open"], after["Bakery"]["open"]) == (True, False)
    for state in (None, 3, {"before": {}}, {"before": [], "end": {}}):
        assert BFCL.sandbox_states(state) is None


def test_results_may_be_told_by_the_user() -> None:
    model = ScriptedModel("[close_day()]", "fine")
    episode = played(BASE, model, results="user")
    result = episode.state["results"][0][0][0]
    told = repr([{"role": "tool", "name": "close_day()", "content": result}])
    assert model.chats[1][-1] == {"role": "user", "content": told}


def test_model_with_tools_sees_numbered_calls_and_their_results() -> None:
    calls = [("get_price", {"item": "roll"}), ("total", {"customer": "x"})]
    model = ScriptedModel(say("", *calls), "fine", ("close_day", {}), ("close_day", "no json"))
    episode = played(BASE, model, native=True)
    assert model.chats[0] == BASE.data["question"][0]
    assert model.asked[0].tools == own().tools(DOCS["Bakery"])
    assistant, one, two = model.chats[1][-3:]
    assert assistant["tool_calls"] == [
        {"id": f"call0000{n}", "type": "function", "function": {"name": name, "arguments": given}}
        for n, (name, given) in enumerate(calls)
    ]
    assert [one["content"], two["content"]] == episode.state["results"][0][0]
    assert [one["tool_call_id"], two["tool_call_id"]] == ["call00000", "call00001"]
    assert (one["role"], one["name"]) == ("tool", "get_price")
    assert model.chats[3][-2]["tool_calls"][0]["id"] == "call00002"
    # Arguments that are no JSON are no call: the turn is over.
    assert episode.state["turns"][1][1]["calls"] == [["close_day", "no json"]]
    assert len(episode.state["results"][1]) == 1


@pytest.mark.parametrize("native", [False, True])
def test_held_out_functions_come_in_their_turn(native: bool) -> None:
    ((turn, (name,)),) = MISS_FUNC.data["missed_function"].items()
    model = ScriptedModel("?")
    played(MISS_FUNC, model, native=native)
    held = next(doc for doc in DOCS["Bakery"] if doc["name"] == name)
    text = own().more_functions(None if native else [held])
    assert model.chats[int(turn)][-1] == {"role": "user", "content": text}
    if not native:
        assert f'"{name}"' not in model.chats[0][0]["content"]
        return
    before, after = (model.asked[number].tools or () for number in (0, int(turn)))
    assert name not in [tool["function"]["name"] for tool in before]
    assert after == [*before, *own().tools([held], hints=0)]
    assert own().tools([held], hints=0) != own().tools([held])


def test_step_limit_ends_the_conversation() -> None:
    episode = played(BASE, ScriptedModel("[get_price(item='roll')]"))
    assert episode.model_calls == len(episode.state["results"][0]) == 21
    assert episode.state["ended"] == "steps"
    assert episode.messages[-1]["role"] == "tool"


def test_full_context_ends_the_conversation() -> None:
    episode = played(BASE, ScriptedModel("[close_day()]", PromptTooLong("full")))
    assert episode.state["ended"] == "context"
    assert episode.state["end"]["Bakery"]["open"] is False, "its state is stored, too"
    with pytest.raises(PromptTooLong):
        played(BASE, ScriptedModel(PromptTooLong("full")))


async def works() -> bool:
    return True


async def stalled() -> bool:
    return False


def test_deadline_ends_the_conversation_if_the_engine_works() -> None:
    model = ScriptedModel("[get_price(item='roll')]", hang)
    assert played(BASE, model, seconds=0.2, works=works).state["ended"] == "deadline"
    cases: list[tuple[list[Reply], float, Any, str]] = [
        (["fine", hang], 0.2, stalled, "engine"),
        ([hang], 0.2, works, "candidate"),
        (["ok"], -1, None, ""),
    ]
    for replies, seconds, check, what in cases:
        with pytest.raises(EpisodeStalled, match=what):
            played(BASE, ScriptedModel(*replies), seconds=seconds, works=check)


def test_answer_without_a_call_ends_a_turn() -> None:
    episode = played(BASE, ScriptedModel("Sure: [close_day()]", "[]"))
    assert episode.state["turns"] == [["Sure: [close_day()]"], ["[]"]]
    assert episode.state["results"] == [[], []]


def test_session_is_closed_when_the_model_fails() -> None:
    before = Session.closed
    with pytest.raises(RuntimeError):
        played(BASE, ScriptedModel(RuntimeError("x")))
    assert Session.closed == before + 1
