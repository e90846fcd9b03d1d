"""Agent episodes in this process: who speaks when, what each sees, and how an episode ends."""

import ast
import asyncio
import json
from typing import Any

import pytest

from ace_ray.benchmarks.acebench.agent_calls import agent_calls
from ace_ray.benchmarks.acebench.benchmark import ACEBench
from ace_ray.benchmarks.acebench.data.loader import MINI
from ace_ray.errors import EpisodeStalled, PromptTooLong
from ace_ray.types import Entry, ToolAnswer
from tests.benchmarks.play import play
from tests.scripted_model import Request, ScriptedModel, hang, say

PROTOCOLS = pytest.mark.parametrize("protocol", ["official", "fixed"])
WIFI = "[turn_on_wifi()]"
YES = ScriptedModel("yes")


def bench(protocol: str = "fixed", **options: Any) -> ACEBench:
    """Open the mini set; by name it has the protocol "fixed", as a folder "official"."""
    data = "mini" if protocol == "fixed" else str(MINI)
    return ACEBench.from_options({"data": data, "categories": ["agent"], **options})


def entry(benchmark: ACEBench, category: str, number: int = 0) -> Entry:
    key = ("en", f"agent_{category}", f"agent_{category}_{number}")
    return next(e for e in benchmark.entries() if e.key == key)


def ideal_paths(item: Entry) -> list[list[str]]:
    paths = item.gold["mile_stone"]
    return [paths] if isinstance(paths[0], str) else paths


def as_calls(line: str) -> ToolAnswer:
    """Return an ideal step as a tool parser hands it on."""
    calls = agent_calls(line, loop="multi_step", protocol="fixed")
    return say("", *((call.name, call.arguments) for call in calls)) if calls else say(line)


@pytest.mark.parametrize("protocol", ["official", "fixed", "native"])
def test_every_ideal_path_is_right_and_wrong_without_its_last_step(protocol: str) -> None:
    native = protocol == "native"
    benchmark = bench(mode="native") if native else bench(protocol)
    entries = benchmark.entries()
    assert len(entries) == 16
    for item in entries:
        for path in ideal_paths(item):
            lines = [*path, "finish conversation"]
            agent = ScriptedModel(*map(as_calls, lines)) if native else ScriptedModel(*lines)
            episode = play(benchmark, item, agent, YES)
            assert episode.state["ended"] == "finished", item.key
            for rules, verdict in benchmark.check(item, episode).items():
                assert verdict.valid, (item.key, rules, verdict)
                assert native or verdict.metrics["process_accuracy"] == 1.0, (item.key, rules)
            if native:
                offered = [tool["function"]["name"] for tool in agent.requests[-1].tools or ()]
                assert offered == [function["name"] for function in item.data["function"]]
            agent = ScriptedModel(*(path[:-1] or ["hello"]), "finish conversation")
            episode = play(benchmark, item, agent, YES)
            assert not benchmark.check(item, episode)["strict"].valid, item.key


def test_agent_user_and_execution_speak_in_turns() -> None:
    benchmark = bench()
    item = entry(benchmark, "multi_turn")
    agent = ScriptedModel("What may I send?", WIFI, "Done. Anything else?")
    user = ScriptedModel("Text Yara.", "agent: Dinner is at eight.", "finish conversation")
    episode = play(benchmark, item, agent, user)

    speakers = [step["speaker"] for step in episode.state["steps"]]
    assert speakers == ["user", "agent", "user", "agent", "execution", "agent", "user"]
    assert episode.state["ended"] == "finished"
    assert episode.state["process"] == [WIFI]
    # The agent sees the whole conversation, call and result included ...
    assert agent.chats[-1][1]["content"].endswith(
        "user:Text Yara.\nagent:What may I send?\nuser:agent: Dinner is at eight.\n"
        "agent:[turn_on_wifi()]\nexecution:[{'status': True, 'message': 'Wi-Fi is on now.'}]\n"
    )
    assert item.data["question"] not in str(agent.chats)
    # ... the user what is said to it, its own lines, and its instruction.
    roles = [message["role"] for message in user.chats[-1]]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user"]
    assert user.chats[-1][-1]["content"] == "Done. Anything else?"
    assert item.data["question"] in user.chats[0][0]["content"]
    assert "turn_on_wifi" not in str(user.chats)
    assert (episode.model_calls, episode.prompt_tokens) == (3, 30)
    assert episode.state["user"] == {"model": "scripted"}


def test_official_splits_an_error_into_characters_and_records_no_state() -> None:
    benchmark = bench("official")
    item = entry(benchmark, "multi_turn")
    agent = ScriptedModel("[delete_message(id=1)]", "hm")
    user = ScriptedModel("go", "finish conversation")
    episode = play(benchmark, item, agent, user)
    assert "execution:['T', 'h', 'e', ' ', 'c', 'a', 'l', 'l'" in agent.chats[1][1]["content"]
    assert episode.state["after"] == []
    assert episode.state["end"] == episode.state["before"]
    assert benchmark.check(item, episode)["official"].error_type == "wrong number of class"
    # The simulator's own lines are system messages.
    assert [message["role"] for message in user.chats[1]] == ["system", "user", "system", "user"]


@PROTOCOLS
def test_multi_step_agent_and_its_own_calls(protocol: str) -> None:
    benchmark = bench(protocol)
    agent = ScriptedModel(WIFI, "What next?", "finish conversation")
    episode = play(benchmark, entry(benchmark, "multi_step"), agent)
    assert (WIFI in agent.chats[-1][1]["content"]) is (protocol == "fixed")
    assert "execution result:Nobody answers here" in agent.chats[-1][1]["content"]
    # Messages without a call are milestones too; the last message is not.
    assert episode.state["process"] == [WIFI, "What next?"]
    assert (episode.state["ended"], episode.state["user"]) == ("finished", None)
    # Upstream looks for the phrase from the fourth message on.
    agent = ScriptedModel("finish conversation")
    play(benchmark, entry(benchmark, "multi_step"), agent)
    assert len(agent.chats) == (2 if protocol == "official" else 1)


@PROTOCOLS
def test_models_that_never_finish_are_stopped_and_scored(protocol: str) -> None:
    benchmark = bench(protocol, max_messages=9)
    for category in ("multi_turn", "multi_step"):
        item, agent = entry(benchmark, category), ScriptedModel(WIFI)
        episode = play(benchmark, item, agent, YES)
        assert episode.state["ended"] == "max_messages"
        assert (len(agent.chats), len(episode.state["process"])) == (5, 4)
        assert benchmark.check(item, episode)["strict"].metrics["end_to_end"] == 0
    item = entry(benchmark, "multi_turn")
    episode = play(benchmark, item, ScriptedModel("And then?"), ScriptedModel("Well."))
    # The opening line does not count.
    assert len(episode.state["steps"]) == 10
    error = "wrong number of class" if protocol == "official" else "class attributes wrong"
    assert benchmark.check(item, episode)["official"].error_type == error


def test_a_deadline_or_a_full_context_keeps_the_work_done() -> None:
    benchmark = bench()
    item = entry(benchmark, "multi_step")

    async def slowly(_: Request) -> str:
        await asyncio.sleep(0.05)
        return WIFI

    episode = play(benchmark, item, ScriptedModel(slowly), seconds=0.2)
    assert episode.state["ended"] == "deadline"
    assert {"BaseApi": {"wifi": True, "logged_in": True}} in episode.state["end"]
    episode = play(benchmark, item, ScriptedModel(WIFI, PromptTooLong("full")))
    assert (episode.state["ended"], episode.model_calls) == ("context", 1)


SLOW = "no answer before the episode's deadline"


@pytest.mark.parametrize(
    ("category", "agent", "user", "error", "message"),
    [
        ("multi_step", [PromptTooLong("full")], [], PromptTooLong, "full"),
        ("multi_turn", ["What?"], ["Hi", PromptTooLong("full")], PromptTooLong, "simulator: full"),
        ("multi_turn", ["What?"], [hang], EpisodeStalled, SLOW),
        ("multi_turn", [hang], ["What?"], EpisodeStalled, SLOW),
    ],
    ids=["long task", "full simulator", "silent simulator", "silent agent"],
)
def test_failures_of_others_are_no_wrong_answer(category, agent, user, error, message) -> None:
    benchmark = bench()
    models = ScriptedModel(*agent), ScriptedModel(*user)
    seconds = 0.2 if message == SLOW else None
    with pytest.raises(error, match=message):
        play(benchmark, entry(benchmark, category), *models, seconds=seconds)


def test_native_agents_see_a_chat_with_calls_and_results() -> None:
    benchmark = bench(mode="native")
    item = entry(benchmark, "multi_step")
    calls = say("", ("turn_on_wifi", {}), ("nothing", {"a": 1}))
    broken = say("x", ("turn_on_wifi", "{oops"))
    agent = ScriptedModel(calls, say("What now?"), broken, "finish conversation")
    episode = play(benchmark, item, agent)
    system, task, called, first, second, text, refusal, _, third = agent.chats[-1]
    assert system["role"] == "system"
    assert task == {"role": "user", "content": item.data["question"]}
    assert "turn_on_wifi" not in system["content"]
    assert called["tool_calls"][1]["id"] == "call00001"
    assert called["tool_calls"][1]["function"] == {"name": "nothing", "arguments": {"a": 1}}
    assert first["tool_call_id"] == "call00000"
    assert json.loads(first["content"]) == {"status": True, "message": "Wi-Fi is on now."}
    assert json.loads(second["content"]) == {"error": "there is no tool named 'nothing'"}
    assert episode.state["steps"][1]["errors"] == ["", "unknown_tool"]
    assert episode.state["after"] == episode.state["end"] != episode.state["before"]
    assert (text["content"], refusal["role"]) == ("What now?", "user")
    # Broken arguments are an error that the agent sees.
    assert "not a JSON object" in third["content"]
    assert episode.state["steps"][5]["errors"] == ["bad_arguments"]
    assert episode.state["process"][:2] == ["[turn_on_wifi(), nothing(a=1)]", "What now?"]


def answers_to(batch: str, category: str = "multi_turn", protocol: str = "official") -> Any:
    """Return the answer of execution to a batch of calls."""
    benchmark = bench(protocol)
    item = entry(benchmark, category)
    agent = ScriptedModel(WIFI, batch, "finish conversation")
    steps = play(benchmark, item, agent, YES).state["steps"]
    return [step for step in steps if step["speaker"] == "execution"][1]


@PROTOCOLS
def test_answers_of_an_official_batch_show_its_end(protocol: str) -> None:
    login_call = "login_food_platform(username='Nora', password='pear11')"
    two = "login_food_platform(username='Timo', password='plum22')"
    answers = answers_to(f"[{login_call}, view_logged_in_users(), {two}]", "multi_step", protocol)
    users = answers["observations"][1]["logged_in_users"]
    assert users == (["Nora", "Timo"] if protocol == "official" else ["Nora"])


def test_a_dotted_name_is_looked_up_by_its_last_part() -> None:
    answers = answers_to("[login_device(), foo.bar(), turn_on_wifi()]")
    assert answers["errors"] == ["", "unknown_tool", ""]
    first, repeated, _ = ast.literal_eval(answers["text"])
    assert repeated == first
    calls = "[login_device(), m.turn_on_wifi(), turn_on_wifi()]"
    assert answers_to(calls)["errors"] == ["", "bad_arguments"]
    assert "name 'm' is not defined" in answers_to(calls, "multi_step")["text"]
