"""Episodes: the messages of each side, their ends, and verdicts by both rule sets."""

import json
from dataclasses import replace
from typing import Any

import pytest

from ace_ray.benchmarks.tau2 import verdicts
from ace_ray.benchmarks.tau2.benchmark import Tau2
from ace_ray.benchmarks.tau2.rollout import FIRST_ANSWERS
from ace_ray.benchmarks.tau2.tasks import call_messages, gold_episode, silent_episode
from ace_ray.errors import EpisodeStalled, PromptTooLong
from ace_ray.types import Episode, Sampling
from tests.benchmarks.play import play
from tests.benchmarks.tau2.scripted import build, entry_of
from tests.scripted_model import ScriptedModel, say

pytestmark = pytest.mark.usefixtures("package")
BYE = "Thanks. ###STOP###"
AIRPORTS = "list_all_airports"


@pytest.fixture(scope="module")
def airline(package: object) -> Tau2:
    return build(domains=["airline"])


@pytest.fixture(scope="module")
def solo(package: object) -> Tau2:
    return build(domains=["telecom_solo"])


def played(
    benchmark: Tau2, agent: ScriptedModel, user: ScriptedModel | None = None
) -> dict[str, Any]:
    """Play the first entry, and return its state."""
    state: dict[str, Any] = play(benchmark, benchmark.dataset()[0], agent, user).state
    return state


def roles(messages: Any) -> list[str]:
    return [message["role"] for message in messages]


def samplings(model: ScriptedModel) -> list[Sampling]:
    return [request.sampling for request in model.requests]


def test_each_side_sees_its_own_calls_and_the_others_texts() -> None:
    telecom = build(domains=["telecom"])
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
    messages = [(m["role"], m["content"]) for m in user.chats[-1][1:]]
    assert messages[:2] == [("user", greeting), ("assistant", "It is broken.")]
    assert ("user", "Restart it.") in messages
    assert not any("C1001" in str(content) for _, content in messages)
    names = [{t["function"]["name"] for t in m.requests[0].tools or ()} for m in (agent, user)]
    assert ["check_status_bar" in tool_names for tool_names in names] == [False, True]
    assert {sampling.stop for sampling in samplings(agent) + samplings(user)} == {()}
    # The transcript has both sides.
    steps = Tau2.transcript(episode.messages, episode.state)
    turns = [role for role in roles(episode.state["trajectory"]) if role != "tool"]
    assert [step.role for step in steps] == ["system", *turns]
    assert str(steps[5].calls[0].observation).startswith("Status Bar")


def test_the_first_messages_are_the_prompt(airline: Tau2, solo: Tau2) -> None:
    for benchmark in (airline, solo):
        entry, agent = benchmark.dataset()[0], ScriptedModel(("done", {}), BYE)
        play(benchmark, entry, agent, ScriptedModel("Hi", BYE))
        opening = benchmark.prompt(entry)
        assert agent.chats[0][: len(opening)] == opening
        assert agent.requests[0].tools == benchmark.tools(entry)
    # A chat that begins with the user.
    benchmark = build(domains=["airline", "telecom_solo"], opening="user")
    agent = ScriptedModel("Yes?")
    play(benchmark, entry_of(benchmark, "airline"), agent, ScriptedModel("Hi", BYE))
    assert roles(agent.chats[0]) == ["system", "user"]
    entry, agent = entry_of(benchmark, "telecom_solo"), ScriptedModel(("done", {}))
    play(benchmark, entry, agent)
    assert agent.chats[0][1] == {"role": "user", "content": entry.data["ticket"]}


def test_prompt_mode_has_tools_and_calls_in_the_text() -> None:
    benchmark = build(domains=["airline"], mode="prompt")
    entry = benchmark.dataset()[0]
    call = f'<tool_call>\n{{"name": "{AIRPORTS}"}}\n</tool_call>'
    # A model goes on after its call, invents a result, and is cut within the next call.
    made_up = '\n\n<tool_result>\n{"a": 1}\n</tool_result>\n\n<tool_call>\n{"name": "do'
    agent, user = ScriptedModel(f"Let me look. {call}{made_up}", "Many."), ScriptedModel("Hi", BYE)
    turns = play(benchmark, entry, agent, user).state["trajectory"]
    assert agent.chats[0][:2] == benchmark.prompt(entry)
    assert benchmark.tools(entry) is None
    assert [request.tools for request in agent.requests] == [None, None]
    assert agent.chats[1][-1]["content"].startswith(f'<tool_result name="{AIRPORTS}">')
    assert roles(turns) == ["assistant", "user", "assistant", "tool", "assistant", "user"]
    assert turns[2]["content"] == "Let me look."
    # Only sides with tools have a stop text.
    assert {sampling.stop for sampling in samplings(agent)} == {("<tool_result",)}
    assert {sampling.stop for sampling in samplings(user)} == {()}


def test_an_episode_ends_at_its_limits(airline: Tau2) -> None:
    agent = ScriptedModel("never asked")
    assert played(airline, agent, ScriptedModel(BYE))["ended"] == "user_stop"
    assert agent.requests == []
    benchmark = build(domains=["airline"], max_steps=7)
    state = played(benchmark, ScriptedModel("Yes?"), ScriptedModel("Hm."))
    assert (state["ended"], state["steps"]) == ("max_steps", 7)
    # A stop in the last step counts strictly.
    benchmark = build(domains=["airline"], max_steps=1)
    entry = next(task for task in benchmark.dataset() if not (task.gold or {}).get("actions"))
    episode = play(benchmark, entry, ScriptedModel("Yes?"), ScriptedModel(BYE))
    assert (episode.state["ended"], episode.state["stopped"]) == ("max_steps", True)
    error_types = {rules: v.error_type for rules, v in benchmark.verdicts(entry, episode).items()}
    assert (error_types["official"], error_types["strict"] == "max_steps") == ("max_steps", False)
    # A limit waits for a pending call.
    benchmark = build(domains=["airline"], max_steps=2)
    state = played(benchmark, ScriptedModel((AIRPORTS, {})), ScriptedModel("Hi"))
    assert (state["ended"], state["steps"]) == ("max_steps", 3)
    benchmark = build(domains=["airline"], max_errors=3)
    agent = ScriptedModel(say("", *[("no_such_tool", {})] * 2), ("no_such_tool", {}), "unreached")
    state = played(benchmark, agent, ScriptedModel("Hi"))
    assert (state["ended"], state["errors"]) == ("too_many_errors", 3)


def test_calls_of_a_message_are_run_and_their_changes_stored(airline: Tau2) -> None:
    look = ("get_user_details", {"user_id": "mia_li_3668"})
    agent = ScriptedModel(say("One moment, 42.", look, (AIRPORTS, {})), "Done.")
    user = ScriptedModel("Hi", BYE)
    turns = played(airline, agent, user)["trajectory"]
    assert roles(turns) == ["assistant", "user", "assistant", "tool", "tool", "assistant", "user"]
    ids = [call["id"] for call in turns[2]["tool_calls"]]
    assert ids == [message["id"] for message in turns[3:5]]
    assert not any("One moment" in str(m["content"]) for chat in user.chats for m in chat)
    # Changed records are stored.
    agent = ScriptedModel(("cancel_reservation", {"reservation_id": "EHGLP3"}), "Cancelled.")
    states = Tau2.sandbox_states(played(airline, agent, ScriptedModel("Cancel it", BYE)))
    assert states is not None
    before, end = (state["assistant"]["reservations"]["EHGLP3"]["status"] for state in states)
    assert (before, end) == (None, "cancelled")


def test_empty_and_unreadable_answers(airline: Tau2) -> None:
    agent = ScriptedModel("", "  \n", "Here.", "unreached")
    episode = play(airline, airline.dataset()[0], agent, ScriptedModel("Hi", BYE))
    assert (episode.state["ended"], episode.model_calls) == ("user_stop", 3)
    assert len({sampling.seed for sampling in samplings(agent)}) == 3
    silent = ScriptedModel("")
    assert played(airline, silent, ScriptedModel("Hi"))["ended"] == "agent_error"
    assert len(silent.requests) == FIRST_ANSWERS
    assert played(airline, ScriptedModel("x"), ScriptedModel(""))["ended"] == "user_error"
    # Arguments that are not an object end the episode, as does a full context.
    for arguments in ("{not json", "[1]", '{"a": ' + "[" * 101 + "]" * 101 + "}"):
        agent = ScriptedModel(("get_user_details", arguments))
        assert played(airline, agent, ScriptedModel("Hi"))["ended"] == "agent_error"
    full = PromptTooLong("9,000 tokens")
    assert played(airline, ScriptedModel("Yes?", full), ScriptedModel("Hi"))["ended"] == "context"
    with pytest.raises(PromptTooLong):
        played(airline, ScriptedModel(full), ScriptedModel("Hi"))
    with pytest.raises(EpisodeStalled):
        played(airline, ScriptedModel("x"), ScriptedModel(EpisodeStalled("late")))


def test_solo_ends_with_done(solo: Tau2) -> None:
    agent = ScriptedModel(("check_status_bar", {}), say("", ("toggle_data", {}), ("done", {})))
    state = played(solo, agent)
    assert state["ended"] == "agent_stop"
    assert state["trajectory"][-1] == {"role": "assistant", "content": "###STOP###"}
    assert [t["function"]["name"] for t in agent.requests[0].tools or ()][-1] == "done"
    # The call beside it is dropped.
    assert not any("toggle_data" in str(m) for m in state["trajectory"])


def test_solo_without_a_call_has_failed(solo: Tau2) -> None:
    turns: list[Any] = ["I would restart it.", "###STOP###", ("done", "[]")]
    for turn in (*turns, say("###STOP###", ("toggle_data", {}))):
        state = played(solo, ScriptedModel(turn))
        assert (state["ended"], state["stopped"]) == ("agent_error", False)
        verdicts = solo.verdicts(solo.dataset()[0], Episode(state=state))
        assert verdicts["official"].error_type == "agent_error"


def test_a_history_is_told_to_both() -> None:
    benchmark = build(domains=["mock"])
    entry = entry_of(benchmark, "mock", "update_task_with_message_history")
    update_call = ("update_task_status", {"task_id": "task_2", "status": "completed"})
    agent = ScriptedModel(update_call, "Done.")
    user = ScriptedModel("Mark it as completed.", BYE)
    episode = play(benchmark, entry, agent, user)
    assert roles(agent.chats[0]) == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert roles(user.chats[0]) == ["system", "assistant", "user"]
    assert benchmark.verdicts(entry, episode)["official"].valid


def turn(role: str, text: str = "", *calls: tuple[str, Any], failed: bool = False) -> list[Any]:
    tool_calls = [{"id": name, "name": name, "arguments": json.dumps(args)} for name, args in calls]
    result = {"role": "tool", "requestor": role, "content": "x", "error": failed}
    message = {"role": role, "content": text, **({"tool_calls": tool_calls} if tool_calls else {})}
    return [message, *({**result, "id": row["id"]} for row in tool_calls)]


def parts(criteria: Any, *turns: list[Any], solo: bool = False) -> tuple[float, float]:
    trajectory = [message for messages in turns for message in messages]
    replay = verdicts.Replay(same_by_hash=True, same_by_value=True)
    official = verdicts.official_verdict(criteria, trajectory, replay)
    strict = verdicts.strict_verdict(criteria, trajectory, replay, solo=solo)
    return float(bool(official.valid)), float(bool(strict.valid))


def action(compare: list[str] | None = None, **arguments: Any) -> dict[str, Any]:
    gold = {"name": "f", "arguments": arguments, "compare_args": compare}
    return {"actions": [gold], "reward_basis": ["ACTION"]}


@pytest.mark.parametrize(
    ("criteria", "arguments", "expected"),
    [
        pytest.param(action(a=1, b=2), {"a": 1, "b": 2}, (1, 1), id="key"),
        # Fewer arguments are compared.
        pytest.param(action(a=1, b=2), {"a": 1}, (1, 0), id="missing argument"),
        pytest.param(action(a=1), {"a": 1, "b": 2}, (0, 0), id="argument too many"),
        pytest.param(action(a=1), {"a": 1.0}, (1, 1), id="float for an integer"),
        pytest.param(action(["a"], a=1, b=2), {"a": 1, "b": 3}, (1, 1), id="not compared"),
        pytest.param(action(["a"], a=1, b=2), {"b": 2}, (0, 0), id="compared and missing"),
        pytest.param(action([], a=1), {"a": 9, "z": 1}, (1, 1), id="nothing compared"),
    ],
)
def test_arguments_of_actions_are_compared(criteria: Any, arguments: Any, expected: Any) -> None:
    assert parts(criteria, turn("assistant", "", ("f", arguments))) == expected


def test_side_and_success_of_an_action_count_strictly() -> None:
    criteria = action(a=1)
    assert parts(criteria, turn("user", "", ("f", {"a": 1}))) == (1, 0)
    assert parts(criteria, turn("user", "", ("f", {"a": 1})), solo=True) == (1, 1)
    assert parts(criteria, turn("assistant", "", ("f", {"a": 1}), failed=True)) == (1, 0)
    assert parts(criteria, turn("assistant", "", ("g", {"a": 1}))) == (0, 0)


def criteria_of(info: str) -> dict[str, Any]:
    return {"communicate_info": [info], "reward_basis": ["COMMUNICATE"]}


@pytest.mark.parametrize(
    ("info", "text", "expected"),
    [
        ("4", "You have 4 bags.", (1, 1)),
        ("4", "It is 14:30.", (1, 0)),  # any 4 will do
        ("1628", "That is $1,628.50", (1, 0)),
        ("1234", "It is 1,2345.", (1, 0)),
        ("12", "Gate a12", (1, 0)),
        ("-5", "It is -5.", (1, 1)),
        ("12", "It is 12%.", (1, 1)),
        ("41.6", "It costs 41.60", (1, 1)),
        ("1,628", "1,628", (0, 1)),  # upstream takes the commas out of the text alone
        ("on  time", "It is on time", (0, 1)),
    ],
    ids=["number", "part of a time", "part of a sum", "part of a number", "part of a word",
         "sign", "percent", "zero", "comma", "spaces"],
)  # fmt: skip
def test_information_is_a_word_or_number_of_its_own(info: str, text: str, expected: Any) -> None:
    assert parts(criteria_of(info), turn("assistant", text)) == expected


def test_information_is_told_to_the_user_by_the_agent() -> None:
    assert parts(criteria_of("42"), turn("assistant", "42", ("f", {}))) == (1, 0), "not heard"
    assert parts(criteria_of("42"), turn("user", "42")) == (0, 0)


@pytest.fixture(scope="module")
def every(package: object) -> Tau2:
    return build(domains=["airline", "retail", "telecom", "telecom_solo", "mock"])


BASIS = {"communicate_info": ["42"], "reward_basis": ["DB", "ENV_ASSERTION", "COMMUNICATE"]}
MAKE = {"name": "create_task", "arguments": {"user_id": "user_1", "title": "x"}}
EVEN = {"db": 1.0, "env_assertion": 1.0, "communicate": 0.0}


@pytest.mark.parametrize(
    ("criteria", "kind", "metrics"),
    [
        pytest.param(BASIS, "not_communicated", {"communicate": 0.0}, id="no calls, no assertions"),
        pytest.param({**BASIS, "actions": []}, "not_communicated", EVEN, id="no change"),
        pytest.param(
            {"actions": [MAKE]}, "db_mismatch", {"db": 0.0, "communicate": 1.0}, id="a change"
        ),
        pytest.param(None, "assertion_failed", {"env_assertion": 0.0}, id="a task of telecom"),
    ],
)
def test_the_metrics_are_the_parts_of_the_reward(every, criteria, kind, metrics) -> None:
    entry = entry_of(every, "mock" if criteria else "telecom")
    entry = replace(entry, gold=criteria or entry.gold)
    for verdict in every.verdicts(entry, silent_episode(entry)).values():
        assert (verdict.error_type, verdict.metrics) == (kind, {**metrics, "inaction": 0.0})


def test_a_record_that_upstream_does_not_replay_has_no_reward(every: Tau2) -> None:
    entry = entry_of(every, "telecom_solo")
    gold = list(gold_episode(every.scenario(entry), entry).state["trajectory"])
    at = roles(gold).index("tool")
    before, result, after = gold[:at], gold[at], gold[at + 1 :]
    records = {
        "made up": [*before, {**result, "content": "made up"}, *after],
        "another's": [*before, {**result, "id": "other"}, *after],
        "not at once": [*before, {"role": "assistant", "content": "Wait."}, result, *after],
        "a user": [{"role": "user", "content": "Hi"}, *gold],
    }
    for fault, trajectory in records.items():
        state = {"trajectory": trajectory, "ended": "agent_stop", "stopped": True}
        verdict = every.verdicts(entry, Episode(state=state))["official"]
        assert (verdict.valid, verdict.error_type) == (False, "replay_failed"), fault


PASSENGERS = {"reservation_id": "4WQ150", "passengers": [{"first_name": "A", "dob": "1990-01-01"}]}
MISSING = "Error: 1 validation error for Passenger\nlast_name\n  "


@pytest.mark.parametrize(
    ("recorded", "difference"),
    [
        pytest.param(f"{MISSING}Field required\n    See https://x/2.5/v/missing", "", id="link"),
        pytest.param(f"{MISSING}field required (type=value_error.missing)", "", id="wording"),
        pytest.param(MISSING.replace("last", "first"), "r\\nfirst_name", id="field"),
        pytest.param("Error: Number of passengers does not match", "Error: Number", id="error"),
    ],
)
def test_error_of_another_pydantic(airline: Tau2, recorded: str, difference: str) -> None:
    agent = ScriptedModel(("update_reservation_passengers", PASSENGERS), "That failed.")
    entry = next(entry for entry in airline.dataset() if not entry.gold["actions"])
    state = play(airline, entry, agent, ScriptedModel("Change it.", BYE)).state
    result = next(message for message in state["trajectory"] if message["role"] == "tool")
    assert result["content"].startswith(MISSING)
    result["content"] = recorded
    for verdict in airline.verdicts(entry, Episode(state=state)).values():
        assert verdict.error_type == ("replay_failed" if difference else "")
        assert difference in verdict.error


def test_another_end_is_the_error(every: Tau2) -> None:
    entry = entry_of(every, "mock")
    gold = gold_episode(every.scenario(entry), entry)
    assert all(verdict.valid for verdict in every.verdicts(entry, gold).values())
    for how in ("max_steps", "context"):
        cut_state = {**gold.state, "ended": how, "stopped": False}
        for verdict in every.verdicts(entry, Episode(state=cut_state)).values():
            assert (verdict.valid, verdict.error_type) == (False, how)
    states: list[Any] = [None, {}, [], {"ended": "user_stop!"}]
    for state in states:
        outcome = every.verdicts(entry, Episode(state=state))
        assert not any(verdict.valid for verdict in outcome.values())


@pytest.mark.parametrize(
    ("in_gold", "bags", "strict"),
    [
        pytest.param(True, 1.0, True, id="other texts, other hashes"),
        pytest.param(False, 0.0, True, id="set to what it was, as 5.0 in place of 5"),
        pytest.param(False, 1.0, False, id="another amount"),
    ],
)
def test_amounts_count_by_value_strictly(every, in_gold: bool, bags: float, strict: bool) -> None:
    booked, name = {"reservation_id": "EHGLP3"}, "update_reservation_baggages"
    entry = entry_of(every, "airline")
    request = {"requestor": "assistant", "arguments": booked, "last": True}
    details = every.scenario(entry).call("get_reservation_details", request)
    n_bags = int(json.loads(str(details.value))["total_baggages"])
    payment = {**booked, "nonfree_baggages": 0, "payment_id": "gift_card_9562694"}
    bag = {"action_id": "1", "name": name, "arguments": payment | {"total_baggages": n_bags + 1}}
    made_arguments = payment | {"total_baggages": n_bags + bags}
    trajectory = [*call_messages(every.scenario(entry), "assistant", "1", name, made_arguments)]
    assert not trajectory[1]["error"], trajectory[1]
    state = {"trajectory": trajectory, "ended": "user_stop", "stopped": True}
    gold = {"actions": [bag] if in_gold else [], "reward_basis": ["DB"]}
    outcome = every.verdicts(replace(entry, gold=gold), Episode(state=state))
    assert (outcome["official"].valid, outcome["strict"].valid) == (False, strict)
