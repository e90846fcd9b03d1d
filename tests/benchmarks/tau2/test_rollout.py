"""Who says what to whom, and what ends an episode."""

from __future__ import annotations

from typing import Any

import pytest

from ace_ray.benchmarks.tau2.benchmark import Tau2
from ace_ray.benchmarks.tau2.rollout import FIRST_ANSWERS
from ace_ray.errors import EpisodeStalled, PromptTooLong
from ace_ray.types import Sampling
from tests.benchmarks.tau2.scripted import entry_of, made, play, verdicts
from tests.scripted_model import ScriptedModel, say

pytestmark = pytest.mark.usefixtures("package")
BYE = "Thanks. ###STOP###"
LOOK = ("get_user_details", {"user_id": "mia_li_3668"})


def samplings(model: ScriptedModel) -> list[Sampling]:
    return [request.sampling for request in model.asked]


@pytest.fixture(scope="module")
def airline(package: object) -> Tau2:
    return made(domains=["airline"])


@pytest.fixture(scope="module")
def telecom(package: object) -> Tau2:
    return made(domains=["telecom"])


@pytest.fixture(scope="module")
def solo(package: object) -> Tau2:
    return made(domains=["telecom_solo"])


def test_each_side_sees_what_it_may(telecom: Tau2) -> None:
    agent = ScriptedModel(
        ("get_customer_by_id", {"customer_id": "C1001"}), "Please restart it.", "Bye."
    )
    user = ScriptedModel("It is broken.", ("check_status_bar", {}), "I did.", BYE)
    episode = play(telecom, entry_of(telecom, "telecom"), agent, user)
    assert episode.state["ended"] == "user_stop"
    greeting = "Hi! How can I help you today?"
    roles = [(m["role"], m["content"]) for m in agent.chats[-1][1:]]
    assert roles[:2] == [("assistant", greeting), ("user", "It is broken.")]
    assert [role for role, _ in roles] == [
        *("assistant", "user", "assistant", "tool", "assistant", "user")
    ]
    assert roles[-1] == ("user", "I did.")
    told = [(m["role"], m["content"]) for m in user.chats[-1][1:]]
    assert told[0] == ("user", greeting)
    assert ("user", "Please restart it.") in told
    assert [role for role, _ in told].count("tool") == 1
    assert not any("C1001" in str(content) for _, content in told)
    assert {tool["function"]["name"] for tool in user.asked[0].tools or ()} > {"check_status_bar"}
    assert "check_status_bar" not in {t["function"]["name"] for t in agent.asked[0].tools or ()}


def test_what_is_sent_first_is_the_prompt(airline: Tau2, solo: Tau2) -> None:
    for benchmark, name in ((airline, "airline"), (solo, "telecom_solo")):
        entry, agent = entry_of(benchmark, name), ScriptedModel(("done", {}), BYE)
        play(benchmark, entry, agent, ScriptedModel("Hi", BYE))
        opening = benchmark.prompt(entry)
        assert agent.chats[0][: len(opening)] == opening
        assert agent.asked[0].tools == benchmark.tools(entry)


def test_prompt_mode_sends_its_prompt(package: object) -> None:
    benchmark = made(domains=["airline"], mode="prompt")
    entry = entry_of(benchmark, "airline")
    call = '<tool_call>\n{"name": "list_all_airports", "arguments": {}}\n</tool_call>'
    agent = ScriptedModel(f"Let me look. {call}", "There are many.")
    episode = play(benchmark, entry, agent, ScriptedModel("Which airports?", BYE))
    assert agent.chats[0][:2] == benchmark.prompt(entry)
    assert benchmark.tools(entry) is None
    assert [request.tools for request in agent.asked] == [None, None]
    assert '"list_all_airports"' in agent.chats[0][0]["content"]
    asked = agent.chats[1]
    assert asked[-2]["content"].startswith("Let me look.")
    assert asked[-1]["role"] == "user"
    assert asked[-1]["content"].startswith('<tool_result name="list_all_airports">')
    turn = episode.state["trajectory"][2]
    assert turn["content"] == "Let me look."
    assert turn["tool_calls"][0]["name"] == "list_all_airports"


@pytest.mark.parametrize("rest", ["", ', "arguments": null', ', "parameters": {}'])
def test_a_call_in_prompt_mode_may_lack_its_arguments(package: object, rest: str) -> None:
    benchmark = made(domains=["airline"], mode="prompt")
    agent = ScriptedModel(
        f'<tool_call>\n{{"name": "list_all_airports"{rest}}}\n</tool_call>', "Many."
    )
    episode = play(benchmark, entry_of(benchmark, "airline"), agent, ScriptedModel("Which?", BYE))
    (call,) = episode.state["trajectory"][2]["tool_calls"]
    assert (call["name"], call["arguments"]) == ("list_all_airports", "{}")


def test_a_user_that_stops_at_once(airline: Tau2) -> None:
    agent = ScriptedModel("never asked")
    episode = play(airline, entry_of(airline, "airline"), agent, ScriptedModel(BYE))
    assert episode.state["ended"] == "user_stop"
    assert agent.asked == []


def test_a_user_that_never_stops(package: object) -> None:
    benchmark = made(domains=["airline"], max_steps=7)
    entry = entry_of(benchmark, "airline")
    episode = play(benchmark, entry, ScriptedModel("Yes?"), ScriptedModel("Hm."))
    assert (episode.state["ended"], episode.state["steps"]) == ("max_steps", 7)
    verdict = verdicts(benchmark, entry, episode)["official"]
    assert (verdict.valid, verdict.error_type) == (False, "max_steps")


def test_a_stop_in_the_last_step_is_overwritten(package: object) -> None:
    benchmark = made(domains=["airline"], max_steps=1)
    entry = next(one for one in benchmark.dataset() if not (one.gold or {}).get("actions"))
    episode = play(benchmark, entry, ScriptedModel("Yes?"), ScriptedModel(BYE))
    assert episode.state["ended"] == "max_steps"
    assert episode.state["stopped"]
    found = verdicts(benchmark, entry, episode)
    assert not found["official"].valid
    assert found["strict"].error_type != "max_steps"


def test_limits_wait_for_a_pending_call(package: object) -> None:
    benchmark = made(domains=["airline"], max_steps=2)
    agent = ScriptedModel(LOOK)
    episode = play(benchmark, entry_of(benchmark, "airline"), agent, ScriptedModel("Hi"))
    assert (episode.state["ended"], episode.state["steps"]) == ("max_steps", 3)
    assert episode.state["trajectory"][-1]["role"] == "tool"


def test_too_many_errors(package: object) -> None:
    benchmark = made(domains=["airline"], max_errors=3)
    agent = ScriptedModel(say("", *[("no_such_tool", {})] * 2), ("no_such_tool", {}), "unreached")
    episode = play(benchmark, entry_of(benchmark, "airline"), agent, ScriptedModel("Hi"))
    assert (episode.state["ended"], episode.state["errors"]) == ("too_many_errors", 3)
    result = episode.state["trajectory"][3]
    assert result["content"] == "Error: Tool 'no_such_tool' not found."
    assert result["error"]


def test_two_calls_and_a_text_in_one_message(airline: Tau2) -> None:
    entry = entry_of(airline, "airline")
    agent = ScriptedModel(say("One moment, 42.", LOOK, ("list_all_airports", {})), "Done.")
    user = ScriptedModel("Hi", BYE)
    episode = play(airline, entry, agent, user)
    roles = [message["role"] for message in episode.state["trajectory"]]
    assert roles == ["assistant", "user", "assistant", "tool", "tool", "assistant", "user"]
    ids = [call["id"] for call in episode.state["trajectory"][2]["tool_calls"]]
    assert ids == [message["id"] for message in episode.state["trajectory"][3:5]]
    assert len(set(ids)) == 2
    assert not any("One moment" in str(m["content"]) for chat in user.chats for m in chat)


@pytest.mark.parametrize("turn", ["", "  \n"])
def test_empty_answers_are_asked_for_again(airline: Tau2, turn: str) -> None:
    agent = ScriptedModel(turn, turn, "Here.", "unreached")
    episode = play(airline, entry_of(airline, "airline"), agent, ScriptedModel("Hi", BYE))
    assert episode.state["ended"] == "user_stop"
    assert len({sampling.seed for sampling in samplings(agent)[:3]}) == 3
    assert [m["content"] for m in agent.chats[2]] == [m["content"] for m in agent.chats[0]]
    assert episode.model_calls == 3


def test_nothing_but_empty_answers(airline: Tau2) -> None:
    entry = entry_of(airline, "airline")
    agent = ScriptedModel("")
    assert play(airline, entry, agent, ScriptedModel("Hi")).state["ended"] == "agent_error"
    assert len(agent.asked) == FIRST_ANSWERS
    user = ScriptedModel("")
    episode = play(airline, entry, ScriptedModel("x"), user)
    assert episode.state["ended"] == "user_error"
    assert verdicts(airline, entry, episode)["official"].error_type == "user_error"


@pytest.mark.parametrize(
    "arguments", ["{not json", "[1]", '"x"', "[" * 100_000, '{"a": ' + "[" * 101 + "]" * 101 + "}"]
)
def test_arguments_that_are_no_object(airline: Tau2, arguments: str) -> None:
    agent = ScriptedModel(("get_user_details", arguments))
    episode = play(airline, entry_of(airline, "airline"), agent, ScriptedModel("Hi"))
    assert episode.state["ended"] == "agent_error"


def test_solo_ends_with_done(solo: Tau2) -> None:
    entry = entry_of(solo, "telecom_solo")
    agent = ScriptedModel(("check_status_bar", {}), say("", ("toggle_data", {}), ("done", {})))
    episode = play(solo, entry, agent)
    assert episode.state["ended"] == "agent_stop"
    assert episode.state["trajectory"][-1] == {"role": "assistant", "content": "###STOP###"}
    names = [t["function"]["name"] for t in agent.asked[0].tools or ()]
    assert names[-1] == "done"
    assert {"toggle_data", "refuel_data"} <= set(names)
    # The call beside it is dropped.
    assert not any("toggle_data" in str(m) for m in episode.state["trajectory"])
    assert agent.chats[0] == solo.prompt(entry)
    assert len(agent.chats[0]) == 1


def test_solo_without_a_call_has_failed(solo: Tau2) -> None:
    entry = entry_of(solo, "telecom_solo")
    turns: list[Any] = ["I would restart it.", "###STOP###", say("###STOP###", ("toggle_data", {}))]
    for turn in (*turns, ("done", "[]")):
        episode = play(solo, entry, ScriptedModel(turn))
        assert episode.state["ended"] == "agent_error"
        assert not episode.state["stopped"]
        assert not verdicts(solo, entry, episode)["official"].valid


def test_results_that_a_model_makes_up_end_its_answer_in_the_text_protocol(package: object) -> None:
    """A model goes on after its call, and is cut within the next one."""
    benchmark = made(domains=["telecom_solo"], mode="prompt")
    call = '<tool_call>\n{"name": "check_status_bar", "arguments": {}}\n</tool_call>'
    made_up = '\n\n<tool_result>\n{"a": 1}\n</tool_result>\n\n<tool_call>\n{"name": "do'
    last = '<tool_call>{"name": "done", "arguments": {}}</tool_call>'
    agent = ScriptedModel(call + made_up, last)
    episode = play(benchmark, entry_of(benchmark, "telecom_solo"), agent)
    assert episode.state["ended"] == "agent_stop"
    assert [m["role"] for m in episode.state["trajectory"]] == ["assistant", "tool", "assistant"]
    assert {sampling.stop for sampling in samplings(agent)} == {("<tool_result",)}


def test_only_the_text_protocol_and_sides_with_tools_are_told_where_to_end(
    telecom: Tau2, package: object
) -> None:
    agent, user = ScriptedModel("Hello?"), ScriptedModel("Hi", BYE)
    play(telecom, entry_of(telecom, "telecom"), agent, user)
    assert {s.stop for s in samplings(agent) + samplings(user)} == {()}
    airline = made(domains=["airline"], mode="prompt")
    agent, user = ScriptedModel("Hello?"), ScriptedModel("Hi", BYE)
    play(airline, entry_of(airline, "airline"), agent, user)
    assert {s.stop for s in samplings(agent)} == {("<tool_result",)}
    assert {s.stop for s in samplings(user)} == {()}


def test_a_first_prompt_that_does_not_fit_says_nothing(airline: Tau2) -> None:
    agent = ScriptedModel(PromptTooLong("9,000 tokens"))
    with pytest.raises(PromptTooLong):
        play(airline, entry_of(airline, "airline"), agent, ScriptedModel("Hi"))


def test_a_context_that_fills_up_ends_the_episode(airline: Tau2) -> None:
    agent = ScriptedModel("Yes?", PromptTooLong("9,000 tokens"))
    episode = play(airline, entry_of(airline, "airline"), agent, ScriptedModel("Hi"))
    assert episode.state["ended"] == "context"


def test_a_user_model_that_fails_is_no_answer_of_the_candidates(airline: Tau2) -> None:
    with pytest.raises(EpisodeStalled):
        play(
            airline,
            entry_of(airline, "airline"),
            ScriptedModel("x"),
            ScriptedModel(EpisodeStalled("late")),
        )


def test_a_chat_that_begins_with_the_user(package: object) -> None:
    benchmark = made(domains=["airline", "telecom_solo"], opening="user")
    agent = ScriptedModel("Yes?")
    play(benchmark, entry_of(benchmark, "airline"), agent, ScriptedModel("Hi", BYE))
    assert [m["role"] for m in agent.chats[0]] == ["system", "user"]
    entry, agent = entry_of(benchmark, "telecom_solo"), ScriptedModel(("done", {}))
    play(benchmark, entry, agent)
    assert agent.chats[0][1] == {"role": "user", "content": entry.data["ticket"]}


def test_a_history_is_told_to_both(package: object) -> None:
    benchmark = made(domains=["mock"])
    entry = entry_of(benchmark, "mock", "update_task_with_message_history")
    agent = ScriptedModel(
        ("update_task_status", {"task_id": "task_2", "status": "completed"}), "Done."
    )
    user = ScriptedModel("Mark it as completed.", BYE)
    episode = play(benchmark, entry, agent, user)
    assert [m["role"] for m in agent.chats[0]] == [
        *("system", "user", "assistant", "tool", "assistant", "user")
    ]
    assert [m["role"] for m in user.chats[0]] == ["system", "assistant", "user"]
    assert verdicts(benchmark, entry, episode)["official"].valid


def test_the_sandbox_before_and_after_is_what_changed(airline: Tau2) -> None:
    entry = entry_of(airline, "airline")
    agent = ScriptedModel(("cancel_reservation", {"reservation_id": "EHGLP3"}), "Cancelled.")
    state = play(airline, entry, agent, ScriptedModel("Cancel it", BYE)).state
    states = Tau2.sandbox_states(state)
    assert states is not None
    before, end = states
    assert set(before["assistant"]["reservations"]) == {"EHGLP3"}
    assert before["assistant"]["reservations"]["EHGLP3"]["status"] is None
    assert end["assistant"]["reservations"]["EHGLP3"]["status"] == "cancelled"


def test_the_transcript_has_both_sides(telecom: Tau2) -> None:
    agent = ScriptedModel(("get_customer_by_id", {"customer_id": "C1001"}), "Restart it.")
    user = ScriptedModel("It is broken.", ("check_status_bar", {}), BYE)
    episode = play(telecom, entry_of(telecom, "telecom"), agent, user)
    steps = Tau2.transcript(episode.messages, episode.state)
    assert [step.role for step in steps] == [
        *("system", "assistant", "user", "assistant", "assistant", "user", "user")
    ]
    assert steps[3].calls[0].observation is not None
    assert steps[5].calls[0].name == "check_status_bar"
    assert str(steps[5].calls[0].observation).startswith("Status Bar")
    assert Tau2.transcript(episode.messages, {"trajectory": [1, {"role": 2}]})
