"""Multi-turn conversations as they are played: what a model sees, what is stored, the endings."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from ace_ray.benchmarks.bfcl.benchmark import BFCL
from ace_ray.benchmarks.bfcl.check.conversations import check_multi_turn
from ace_ray.benchmarks.bfcl.data.loader import load
from ace_ray.benchmarks.bfcl.decode.calls import Answer
from ace_ray.benchmarks.bfcl.episode.conversation import MAX_STEPS, EpisodeSettings, rollout
from ace_ray.benchmarks.bfcl.prompts import own
from ace_ray.benchmarks.bfcl.tools.environment import initial_state_of, open_environment
from ace_ray.benchmarks.context import EpisodeContext, RoleModel
from ace_ray.errors import EpisodeStalled, PromptTooLong
from ace_ray.sandbox.protocol import LocalSession
from ace_ray.types import Entry, Episode, Sampling
from tests.benchmarks.bfcl.mini_set import COPY, DOCS, SOURCES
from tests.scripted_model import ScriptedModel, hang, say


def entry_of(category: str, number: int = 0) -> Entry:
    return load(COPY, [category])[number]


def context_for(entry: Entry, model: ScriptedModel, **more: Any) -> EpisodeContext:
    async def opened() -> LocalSession:
        return LocalSession(open_environment(SOURCES, initial_state_of(entry, DOCS)))

    return EpisodeContext(RoleModel(model, Sampling()), open_sandbox=opened, **more)


def played(
    entry: Entry, model: ScriptedModel, *, seconds: float | None = None, **options: Any
) -> Episode:
    async def run() -> Episode:
        deadline = None if seconds is None else asyncio.get_running_loop().time() + seconds
        works = options.pop("works", None)
        context = context_for(entry, model, deadline=deadline, works=works)
        return await rollout(entry, context, EpisodeSettings(own(), DOCS, **options))

    return asyncio.run(run())


def checked(entry: Entry, episode: Episode) -> bool:
    state = json.loads(json.dumps(episode.state))
    turns = [[Answer.stored(one) for one in turn] for turn in state["turns"]]
    return check_multi_turn(entry, turns, state["ended"], SOURCES, DOCS)["official"].valid


def key(entry: Entry) -> list[str]:
    """Answers that follow the key, each turn ending with a sentence."""
    return [
        said for turn in entry.gold for said in ([f"[{', '.join(turn)}]", "ok"] if turn else ["?"])
    ]


@pytest.mark.parametrize("category", ["multi_turn_base", "multi_turn_miss_func"])
def test_the_key_played_is_valid(category: str) -> None:
    for entry in load(COPY, [category]):
        if any("('" in call for turn in entry.gold for call in turn):
            continue  # arguments without a name, which no model's answer may have
        episode = played(entry, ScriptedModel(*key(entry)))
        assert episode.state["ended"] == ""
        assert checked(entry, episode)


def test_what_a_prompt_model_sees() -> None:
    entry = entry_of("multi_turn_base")
    model = ScriptedModel("[get_price(item='roll'), total(customer='x')]", "fine", "bye")
    episode = played(entry, model)
    first, second, third = model.chats
    functions = [doc for name in entry.data["involved_classes"] for doc in DOCS[name]]
    assert first == own().messages(entry.data["question"][0], functions)
    calls = ["get_price(item='roll')", "total(customer='x')"]
    answer = {"role": "assistant", "content": "[get_price(item='roll'), total(customer='x')]"}
    told = [
        {"role": "tool", "name": call, "content": result}
        for call, result in zip(calls, episode.state["results"][0][0], strict=True)
    ]
    assert second == [*first, answer, *told]
    assert third == [*second, {"role": "assistant", "content": "fine"}, *entry.data["question"][1]]
    assert [request.tools for request in model.asked] == [None, None, None]
    assert episode.messages == [*third, {"role": "assistant", "content": "bye"}]
    assert episode.state["turns"] == [[answer["content"], "fine"], ["bye"]]
    assert (episode.model_calls, episode.prompt_tokens) == (3, 30)


def test_results_told_by_the_user() -> None:
    entry = entry_of("multi_turn_base")
    model = ScriptedModel("[close_day()]", "fine")
    episode = played(entry, model, results="user")
    result = episode.state["results"][0][0][0]
    told = repr([{"role": "tool", "name": "close_day()", "content": result}])
    assert model.chats[1][-1] == {"role": "user", "content": told}


def test_functions_held_out_are_written_down_in_their_turn() -> None:
    entry = entry_of("multi_turn_miss_func")
    (turn, (name, *_)), *_ = entry.data["missed_function"].items()
    model = ScriptedModel("ok")
    played(entry, model)
    doc = next(doc for doc in DOCS["Bakery"] if doc["name"] == name)
    assert f'"{name}"' not in model.chats[0][0]["content"]
    given = model.chats[int(turn)][-1]
    assert given == {"role": "user", "content": own().more_functions([doc])}
    assert name in given["content"]


def test_the_sandbox_before_and_after_is_stored() -> None:
    entry = entry_of("multi_turn_base")
    config = entry.data["initial_config"]["Bakery"]
    assert config["open"]
    episode = played(entry, ScriptedModel("[close_day()]", "fine", "bye"))
    states = BFCL.sandbox_states(json.loads(json.dumps(episode.state)))
    assert states is not None
    before, after = (one["Bakery"] for one in states)
    assert before["orders"] == config["orders"]
    assert (before["open"], after["open"]) == (True, False)
    cut = played(entry, ScriptedModel("[close_day()]", PromptTooLong("x")))
    assert cut.state["ended"] == "context"
    assert cut.state["end"]["Bakery"]["open"] is False, "of a conversation that was cut, too"


@pytest.mark.parametrize(
    "state", [None, [], 3, {}, {"turns": []}, {"before": {}}, {"before": [], "end": {}}]
)
def test_a_row_without_states_has_none(state: Any) -> None:
    assert BFCL.sandbox_states(state) is None


class TestNative:
    def test_what_a_model_with_tools_sees(self) -> None:
        entry = entry_of("multi_turn_base")
        model = ScriptedModel(
            say("", ("get_price", {"item": "roll"}), ("total", {"customer": "x"})),
            "fine",
            ("close_day", {}),
            ("close_day", "no json"),
        )
        episode = played(entry, model, native=True)
        assert model.chats[0] == entry.data["question"][0]
        assert model.asked[0].tools == own().tools(DOCS["Bakery"])
        assistant, one, two = model.chats[1][-3:]
        assert assistant["tool_calls"] == [
            {
                "id": "call00000",
                "type": "function",
                "function": {"name": "get_price", "arguments": {"item": "roll"}},
            },
            {
                "id": "call00001",
                "type": "function",
                "function": {"name": "total", "arguments": {"customer": "x"}},
            },
        ]
        texts = episode.state["results"][0][0]
        assert [one["content"], two["content"]] == texts
        assert [one["tool_call_id"], two["tool_call_id"]] == ["call00000", "call00001"]
        assert (one["role"], one["name"]) == ("tool", "get_price")
        third = model.chats[3][-2]["tool_calls"][0]
        assert third["id"] == "call00002"
        # Arguments that are no JSON are no call: the turn is over.
        assert episode.state["turns"][1][1]["calls"] == [["close_day", "no json"]]
        assert len(episode.state["results"][1]) == 1

    def test_functions_held_out_join_the_tools(self) -> None:
        entry = entry_of("multi_turn_miss_func")
        (turn, (name, *_)), *_ = entry.data["missed_function"].items()
        model = ScriptedModel("?")
        played(entry, model, native=True)
        offered = [request.tools or () for request in model.asked]
        names = [[tool["function"]["name"] for tool in tools] for tools in offered]
        assert name not in names[0]
        assert names[int(turn)] == [*names[0], name]
        held = next(doc for doc in DOCS["Bakery"] if doc["name"] == name)
        assert offered[int(turn)][-1:] == own().tools([held], hints=0)
        assert own().tools([held], hints=0) != own().tools([held])
        assert model.chats[int(turn)][-1]["content"] == own().more_functions(None)


class TestEndings:
    def test_the_step_limit_ends_the_conversation(self) -> None:
        entry = entry_of("multi_turn_base")
        model = ScriptedModel("[get_price(item='roll')]")
        episode = played(entry, model)
        assert MAX_STEPS == 21
        assert episode.model_calls == 21
        assert len(episode.state["results"][0]) == 21
        assert episode.state["ended"] == "steps"
        assert episode.messages[-1]["role"] == "tool"

    def test_a_context_that_is_full(self) -> None:
        entry = entry_of("multi_turn_base")
        model = ScriptedModel("[get_price(item='roll')]", PromptTooLong("full"))
        episode = played(entry, model)
        assert episode.state["ended"] == "context"
        assert not checked(entry, episode)
        with pytest.raises(PromptTooLong):
            played(entry, ScriptedModel(PromptTooLong("full")))

    def test_a_deadline(self) -> None:
        async def works() -> bool:
            return True

        async def stalled() -> bool:
            return False

        entry = entry_of("multi_turn_base")
        model = ScriptedModel("[get_price(item='roll')]", hang)
        episode = played(entry, model, seconds=0.2, works=works)
        assert episode.state["ended"] == "deadline"
        with pytest.raises(EpisodeStalled, match="engine"):
            played(entry, ScriptedModel("fine", hang), seconds=0.2, works=stalled)
        with pytest.raises(EpisodeStalled, match="candidate"):
            played(entry, ScriptedModel(hang), seconds=0.2, works=works)
        with pytest.raises(EpisodeStalled):
            played(entry, ScriptedModel("ok"), seconds=-1)

    def test_what_is_no_call_ends_a_turn(self) -> None:
        entry = entry_of("multi_turn_base")
        model = ScriptedModel("Sure: [close_day()]", "[]")
        episode = played(entry, model)
        assert episode.state["turns"] == [["Sure: [close_day()]"], ["[]"]]
        assert episode.state["results"] == [[], []]


def test_the_session_is_closed_whatever_happens() -> None:
    closed: list[bool] = []
    entry = entry_of("multi_turn_base")

    class Session(LocalSession):
        async def close(self) -> None:
            closed.append(True)

    async def opened() -> LocalSession:
        return Session(open_environment(SOURCES, initial_state_of(entry, DOCS)))

    model = ScriptedModel(RuntimeError("x"))
    context = EpisodeContext(RoleModel(model, Sampling()), open_sandbox=opened)
    with pytest.raises(RuntimeError):
        asyncio.run(rollout(entry, context, EpisodeSettings(own(), DOCS)))
    assert closed == [True]
