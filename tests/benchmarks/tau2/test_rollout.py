"""The messages of each side, and the ends of an episode."""

from __future__ import annotations

from typing import Any

import pytest

from ace_ray.benchmarks.tau2.benchmark import Tau2
from ace_ray.benchmarks.tau2.rollout import FIRST_ANSWERS
from ace_ray.errors import EpisodeStalled, PromptTooLong
from ace_ray.types import Episode, Sampling
from tests.benchmarks.tau2.scripted import entry_of, made, play
from tests.scripted_model import ScriptedModel, say

pytestmark = pytest.mark.usefixtures("package")
BYE = "Thanks. ###STOP###"
AIRPORTS = "list_all_airports"


@pytest.fixture(scope="module")
def airline(package: object) -> Tau2:
    return made(domains=["airline"])


@pytest.fixture(scope="module")
def solo(package: object) -> Tau2:
    return made(domains=["telecom_solo"])


def played(
    benchmark: Tau2, agent: ScriptedModel, user: ScriptedModel | None = None
) -> dict[str, Any]:
    """Play the first entry, and return its state."""
    found: dict[str, Any] = play(benchmark, benchmark.dataset()[0], agent, user).state
    return found


def roles(messages: Any) -> list[str]:
    return [message["role"] for message in messages]


def samplings(model: ScriptedModel) -> list[Sampling]:
    return [request.sampling for request in model.asked]


def test_each_side_sees_its_own_calls_and_the_others_texts() -> None:
    telecom = made(domains=["telecom"])
    agent = ScriptedModel(("get_customer_by_id", {"customer_id": "C1001"}), "Restart it.", "Bye.")
    user = ScriptedModel("It is broken.", ("check_status_bar", {}), "I did.", BYE)
    episode = play(telecom, telecom.dataset()[0], agent, user)
    assert episode.state["ended"] == "user_stop"
    greeting = "Hi! How can I help you today?"
    assert roles(agent.chats[-1]) == [
        *("system", "assistant", "user", "assistant", "tool", "assistant", "user")
    ]
    texts = [message["content"] for message in agent.chats[-1]]
    assert (texts[1], texts[2], texts[-1]) == (greeting, "It is broken.", "I did.")
    told = [(m["role"], m["content"]) for m in user.chats[-1][1:]]
    assert told[0] == ("user", greeting)
    assert ("user", "Restart it.") in told
    assert [role for role, _ in told].count("tool") == 1
    assert not any("C1001" in str(content) for _, content in told)
    assert "check_status_bar" in {t["function"]["name"] for t in user.asked[0].tools or ()}
    assert "check_status_bar" not in {t["function"]["name"] for t in agent.asked[0].tools or ()}
    assert {sampling.stop for sampling in samplings(agent) + samplings(user)} == {()}
    # The transcript has both sides.
    steps = Tau2.transcript(episode.messages, episode.state)
    assert [step.role for step in steps] == [
        *("system", "assistant", "user", "assistant", "assistant", "user", "user"),
        *("assistant", "user"),
    ]
    assert steps[3].calls[0].observation is not None
    assert steps[5].calls[0].name == "check_status_bar"
    assert str(steps[5].calls[0].observation).startswith("Status Bar")
    assert Tau2.transcript(episode.messages, {"trajectory": [1, {"role": 2}]})


def test_the_first_messages_are_the_prompt(airline: Tau2, solo: Tau2) -> None:
    for benchmark in (airline, solo):
        entry, agent = benchmark.dataset()[0], ScriptedModel(("done", {}), BYE)
        play(benchmark, entry, agent, ScriptedModel("Hi", BYE))
        opening = benchmark.prompt(entry)
        assert agent.chats[0][: len(opening)] == opening
        assert agent.asked[0].tools == benchmark.tools(entry)
    # A chat that begins with the user.
    benchmark = made(domains=["airline", "telecom_solo"], opening="user")
    agent = ScriptedModel("Yes?")
    play(benchmark, entry_of(benchmark, "airline"), agent, ScriptedModel("Hi", BYE))
    assert roles(agent.chats[0]) == ["system", "user"]
    entry, agent = entry_of(benchmark, "telecom_solo"), ScriptedModel(("done", {}))
    play(benchmark, entry, agent)
    assert agent.chats[0][1] == {"role": "user", "content": entry.data["ticket"]}


def test_prompt_mode_has_tools_and_calls_in_the_text() -> None:
    benchmark = made(domains=["airline"], mode="prompt")
    entry = benchmark.dataset()[0]
    call = f'<tool_call>\n{{"name": "{AIRPORTS}"}}\n</tool_call>'
    # A model goes on after its call, invents a result, and is cut within the next call.
    made_up = '\n\n<tool_result>\n{"a": 1}\n</tool_result>\n\n<tool_call>\n{"name": "do'
    agent, user = ScriptedModel(f"Let me look. {call}{made_up}", "Many."), ScriptedModel("Hi", BYE)
    turns = play(benchmark, entry, agent, user).state["trajectory"]
    assert agent.chats[0][:2] == benchmark.prompt(entry)
    assert benchmark.tools(entry) is None
    assert [request.tools for request in agent.asked] == [None, None]
    assert f'"{AIRPORTS}"' in agent.chats[0][0]["content"]
    assert agent.chats[1][-2]["content"].startswith("Let me look.")
    assert agent.chats[1][-1]["role"] == "user"
    assert agent.chats[1][-1]["content"].startswith(f'<tool_result name="{AIRPORTS}">')
    assert roles(turns) == ["assistant", "user", "assistant", "tool", "assistant", "user"]
    assert turns[2]["content"] == "Let me look."
    (called,) = turns[2]["tool_calls"]
    assert (called["name"], called["arguments"]) == (AIRPORTS, "{}")
    # Only sides with tools are told where to end.
    assert {sampling.stop for sampling in samplings(agent)} == {("<tool_result",)}
    assert {sampling.stop for sampling in samplings(user)} == {()}


def test_a_user_may_stop_at_once(airline: Tau2) -> None:
    agent = ScriptedModel("never asked")
    assert played(airline, agent, ScriptedModel(BYE))["ended"] == "user_stop"
    assert agent.asked == []


def test_an_episode_ends_at_its_limits() -> None:
    benchmark = made(domains=["airline"], max_steps=7)
    state = played(benchmark, ScriptedModel("Yes?"), ScriptedModel("Hm."))
    assert (state["ended"], state["steps"]) == ("max_steps", 7)
    # A limit waits for a pending call.
    benchmark = made(domains=["airline"], max_steps=2)
    state = played(benchmark, ScriptedModel((AIRPORTS, {})), ScriptedModel("Hi"))
    assert (state["ended"], state["steps"]) == ("max_steps", 3)
    assert state["trajectory"][-1]["role"] == "tool"
    benchmark = made(domains=["airline"], max_errors=3)
    agent = ScriptedModel(say("", *[("no_such_tool", {})] * 2), ("no_such_tool", {}), "unreached")
    state = played(benchmark, agent, ScriptedModel("Hi"))
    assert (state["ended"], state["errors"]) == ("too_many_errors", 3)
    result = state["trajectory"][3]
    assert (result["content"], result["error"]) == ("Error: Tool 'no_such_tool' not found.", True)


def test_a_stop_in_the_last_step_counts_strictly() -> None:
    benchmark = made(domains=["airline"], max_steps=1)
    entry = next(one for one in benchmark.dataset() if not (one.gold or {}).get("actions"))
    episode = play(benchmark, entry, ScriptedModel("Yes?"), ScriptedModel(BYE))
    assert (episode.state["ended"], episode.state["stopped"]) == ("max_steps", True)
    found = benchmark.verdicts(entry, episode)
    assert (found["official"].valid, found["official"].error_type) == (False, "max_steps")
    assert found["strict"].error_type != "max_steps"


def test_two_calls_and_a_text_in_one_message(airline: Tau2) -> None:
    look = ("get_user_details", {"user_id": "mia_li_3668"})
    agent = ScriptedModel(say("One moment, 42.", look, (AIRPORTS, {})), "Done.")
    user = ScriptedModel("Hi", BYE)
    turns = played(airline, agent, user)["trajectory"]
    assert roles(turns) == ["assistant", "user", "assistant", "tool", "tool", "assistant", "user"]
    ids = [call["id"] for call in turns[2]["tool_calls"]]
    assert ids == [message["id"] for message in turns[3:5]]
    assert len(set(ids)) == 2
    assert not any("One moment" in str(m["content"]) for chat in user.chats for m in chat)


def test_empty_answers_are_asked_for_again(airline: Tau2) -> None:
    agent = ScriptedModel("", "  \n", "Here.", "unreached")
    episode = play(airline, airline.dataset()[0], agent, ScriptedModel("Hi", BYE))
    assert (episode.state["ended"], episode.model_calls) == ("user_stop", 3)
    assert len({sampling.seed for sampling in samplings(agent)}) == 3
    assert [m["content"] for m in agent.chats[2]] == [m["content"] for m in agent.chats[0]]
    silent = ScriptedModel("")
    assert played(airline, silent, ScriptedModel("Hi"))["ended"] == "agent_error"
    assert len(silent.asked) == FIRST_ANSWERS
    assert played(airline, ScriptedModel("x"), ScriptedModel(""))["ended"] == "user_error"


@pytest.mark.parametrize("arguments", ["{not json", "[1]", '{"a": ' + "[" * 101 + "]" * 101 + "}"])
def test_arguments_that_are_not_an_object_are_an_error(airline: Tau2, arguments: str) -> None:
    agent = ScriptedModel(("get_user_details", arguments))
    assert played(airline, agent, ScriptedModel("Hi"))["ended"] == "agent_error"


def test_solo_ends_with_done(solo: Tau2) -> None:
    agent = ScriptedModel(("check_status_bar", {}), say("", ("toggle_data", {}), ("done", {})))
    state = played(solo, agent)
    assert state["ended"] == "agent_stop"
    assert state["trajectory"][-1] == {"role": "assistant", "content": "###STOP###"}
    names = [t["function"]["name"] for t in agent.asked[0].tools or ()]
    assert names[-1] == "done"
    assert {"toggle_data", "refuel_data"} <= set(names)
    # The call beside it is dropped.
    assert not any("toggle_data" in str(m) for m in state["trajectory"])
    assert len(agent.chats[0]) == 1


def test_solo_without_a_call_has_failed(solo: Tau2) -> None:
    turns: list[Any] = ["I would restart it.", "###STOP###", ("done", "[]")]
    for turn in (*turns, say("###STOP###", ("toggle_data", {}))):
        state = played(solo, ScriptedModel(turn))
        assert (state["ended"], state["stopped"]) == ("agent_error", False)
        verdicts = solo.verdicts(solo.dataset()[0], Episode(state=state))
        assert verdicts["official"].error_type == "agent_error"


def test_a_full_context_or_a_lost_user_model(airline: Tau2) -> None:
    full = PromptTooLong("9,000 tokens")
    with pytest.raises(PromptTooLong):
        played(airline, ScriptedModel(full), ScriptedModel("Hi"))
    assert played(airline, ScriptedModel("Yes?", full), ScriptedModel("Hi"))["ended"] == "context"
    with pytest.raises(EpisodeStalled):
        played(airline, ScriptedModel("x"), ScriptedModel(EpisodeStalled("late")))


def test_a_history_is_told_to_both() -> None:
    benchmark = made(domains=["mock"])
    entry = entry_of(benchmark, "mock", "update_task_with_message_history")
    done = ("update_task_status", {"task_id": "task_2", "status": "completed"})
    agent = ScriptedModel(done, "Done.")
    user = ScriptedModel("Mark it as completed.", BYE)
    episode = play(benchmark, entry, agent, user)
    assert roles(agent.chats[0]) == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert roles(user.chats[0]) == ["system", "assistant", "user"]
    assert benchmark.verdicts(entry, episode)["official"].valid


def test_the_sandbox_before_and_after_is_what_changed(airline: Tau2) -> None:
    agent = ScriptedModel(("cancel_reservation", {"reservation_id": "EHGLP3"}), "Cancelled.")
    states = Tau2.sandbox_states(played(airline, agent, ScriptedModel("Cancel it", BYE)))
    assert states is not None
    before, end = (one["assistant"]["reservations"] for one in states)
    assert set(before) == {"EHGLP3"}
    assert (before["EHGLP3"]["status"], end["EHGLP3"]["status"]) == (None, "cancelled")
