"""Agent episodes in this process: who speaks when, what each sees, and how an episode ends."""

from __future__ import annotations

import ast
import asyncio
import json
from typing import Any

import pytest

from ace_ray.benchmarks.acebench.agent_calls import agent_calls
from ace_ray.benchmarks.acebench.benchmark import ACEBench
from ace_ray.benchmarks.acebench.data.loader import MINI
from ace_ray.benchmarks.acebench.environment.environment import load_app_specs
from ace_ray.benchmarks.context import EpisodeContext, RoleModel, tool_results
from ace_ray.errors import EpisodeStalled, PromptTooLong, RowError
from ace_ray.sandbox.protocol import LocalSession
from ace_ray.types import Entry, Episode, Sampling, ToolAnswer
from tests.benchmarks.scored_row import scored_row
from tests.scripted_model import Request, ScriptedModel, hang, say


def bench(protocol: str = "fixed", **options: Any) -> ACEBench:
    """The mini set has the protocol "fixed", a folder of data "official"."""
    data = "mini" if protocol == "fixed" else str(MINI)
    return ACEBench.from_options({"data": data, "categories": ["agent"], **options})


def entry(benchmark: ACEBench, category: str, number: int, language: str = "en") -> Entry:
    key = (language, f"agent_{category}", f"agent_{category}_{number}")
    return next(e for e in benchmark.entries() if e.key == key)


def play(
    benchmark: ACEBench,
    item: Entry,
    agent: ScriptedModel,
    user: ScriptedModel | None = None,
    seconds: float | None = None,
) -> Episode:
    async def run() -> Episode:
        async def open_sandbox() -> LocalSession:
            return LocalSession(benchmark.scenario(item))

        deadline = None if seconds is None else asyncio.get_running_loop().time() + seconds
        context = EpisodeContext(
            candidate=RoleModel(agent, Sampling()),
            roles={
                "user": RoleModel(user or ScriptedModel("yes"), Sampling(), {"model": "scripted"})
            },
            open_sandbox=open_sandbox,
            deadline=deadline,
        )
        return await benchmark.run(item, context)

    return asyncio.run(run())


def ideal_paths(item: Entry) -> list[list[str]]:
    paths = item.gold["mile_stone"]
    return [paths] if isinstance(paths[0], str) else paths


@pytest.mark.parametrize("choice", ["official", "fixed"])
def test_every_ideal_path_of_the_mini_set_is_right(choice: str) -> None:
    benchmark = bench(protocol=choice)
    entries = benchmark.entries()
    assert len(entries) == 16
    for item in entries:
        for path in ideal_paths(item):
            episode = play(benchmark, item, ScriptedModel(*path, "finish conversation"))
            assert episode.state["ended"] == "finished", item.key
            verdicts = benchmark.check(item, episode)
            for rules, verdict in verdicts.items():
                assert verdict.valid, (item.key, rules, verdict)
                assert verdict.metrics["process_accuracy"] == 1.0, (item.key, rules)


@pytest.mark.parametrize("choice", ["official", "fixed"])
def test_every_ideal_path_without_its_last_step_is_wrong(choice: str) -> None:
    benchmark = bench(protocol=choice)
    for item in benchmark.entries():
        for path in ideal_paths(item):
            lines = path[:-1] or ["hello"]
            episode = play(benchmark, item, ScriptedModel(*lines, "finish conversation"))
            assert not benchmark.check(item, episode)["strict"].valid, item.key


def test_turns_follow_the_protocol() -> None:
    benchmark = bench()
    item = entry(benchmark, "multi_turn", 0)
    agent = ScriptedModel("What may I send?", "[turn_on_wifi()]", "Done. Anything else?")
    user = ScriptedModel("Text Yara.", "agent: Dinner is at eight.", "finish conversation")
    episode = play(benchmark, item, agent, user)

    speakers = [step["speaker"] for step in episode.state["steps"]]
    assert speakers == ["user", "agent", "user", "agent", "execution", "agent", "user"]
    assert episode.state["ended"] == "finished"
    assert episode.state["process"] == ["[turn_on_wifi()]"]
    # The agent sees the whole conversation, call and result included ...
    last = agent.chats[-1][1]["content"]
    assert last.endswith(
        "user:Text Yara.\nagent:What may I send?\nuser:agent: Dinner is at eight.\n"
        "agent:[turn_on_wifi()]\nexecution:[{'status': True, 'message': 'Wi-Fi is on now.'}]\n"
    )
    # ... the user what is said to it, and its own lines.
    assert [message["role"] for message in user.chats[-1]] == [
        "system", "user", "assistant", "user", "assistant", "user",
    ]  # fmt: skip
    assert user.chats[-1][-1]["content"] == "Done. Anything else?"
    assert episode.model_calls == 3
    assert episode.prompt_tokens == 30
    assert episode.state["user"] == {"model": "scripted"}
    assert [m["role"] for m in episode.messages] == [
        "system", "user", "assistant", "user", "assistant", "tool", "assistant", "user",
    ]  # fmt: skip


def test_official_gives_the_simulator_its_lines_as_system_messages() -> None:
    benchmark = bench(protocol="official")
    user = ScriptedModel("Hi", "finish conversation")
    play(benchmark, entry(benchmark, "multi_turn", 0), ScriptedModel("What?", "And?"), user)
    assert [message["role"] for message in user.chats[1]] == ["system", "user", "system", "user"]


def test_official_splits_an_error_into_characters_and_records_no_state() -> None:
    benchmark = bench(protocol="official")
    item = entry(benchmark, "multi_turn", 0)
    agent = ScriptedModel("[delete_message(id=1)]", "hm")
    episode = play(benchmark, item, agent, ScriptedModel("go", "finish conversation"))
    assert "execution:['T', 'h', 'e', ' ', 'c', 'a', 'l', 'l'" in agent.chats[1][1]["content"]
    assert episode.state["after"] == []
    assert episode.state["end"] == episode.state["before"]
    assert benchmark.check(item, episode)["official"].error_type == "wrong number of class"


@pytest.mark.parametrize(
    ("choice", "error"),
    [("official", "wrong number of class"), ("fixed", "class attributes wrong")],
)
def test_an_agent_that_never_calls(choice: str, error: str) -> None:
    benchmark = bench(protocol=choice, max_messages=4)
    item = entry(benchmark, "multi_turn", 0)
    episode = play(benchmark, item, ScriptedModel("What?"), ScriptedModel("Hi"))
    assert benchmark.check(item, episode)["official"].error_type == error


def test_fixed_shows_the_error_and_records_the_state() -> None:
    benchmark = bench(protocol="fixed")
    item = entry(benchmark, "multi_turn", 0)
    agent = ScriptedModel("Sure: [delete_message(id=1), nothing(), turn_on_wifi()]", "hm")
    episode = play(benchmark, item, agent, ScriptedModel("go", "finish conversation"))
    shown = agent.chats[1][1]["content"]
    assert "execution:[{'error': " in shown
    assert "{'status': True, 'message': 'Wi-Fi is on now.'}]" in shown
    assert episode.state["steps"][2]["errors"] == ["bad_arguments", "unknown_tool", ""]
    assert episode.state["after"] == episode.state["end"] != episode.state["before"]


@pytest.mark.parametrize(("choice", "sees"), [("official", False), ("fixed", True)])
def test_multi_step_agent_and_its_own_calls(choice: str, sees: bool) -> None:
    benchmark = bench(protocol=choice)
    item = entry(benchmark, "multi_step", 0)
    agent = ScriptedModel("[turn_on_wifi()]", "What next?", "finish conversation")
    episode = play(benchmark, item, agent)
    assert ("[turn_on_wifi()]" in agent.chats[-1][1]["content"]) is sees
    assert "execution result:Nobody answers here" in agent.chats[-1][1]["content"]
    assert episode.state["ended"] == "finished"
    # A message that is no call is a milestone too; the last words are not.
    assert episode.state["process"] == ["[turn_on_wifi()]", "What next?"]
    assert episode.state["user"] is None


def test_a_first_goodbye_does_not_end_an_official_episode() -> None:
    """Upstream looks for the phrase from the fourth message on."""
    benchmark = bench(protocol="official")
    agent = ScriptedModel("finish conversation")
    episode = play(benchmark, entry(benchmark, "multi_step", 0), agent)
    assert len(agent.chats) == 2
    assert episode.state["process"] == ["finish conversation"]
    assert episode.state["ended"] == "finished"


@pytest.mark.parametrize("category", ["multi_turn", "multi_step"])
def test_model_that_loops_on_one_call_is_stopped_and_scored(category: str) -> None:
    benchmark = bench(max_messages=9)
    item = entry(benchmark, category, 0)
    agent = ScriptedModel("[turn_on_wifi()]")
    episode = play(benchmark, item, agent)
    assert episode.state["ended"] == "max_messages"
    assert len(agent.chats) == 5
    assert len(episode.state["process"]) == 4
    assert benchmark.check(item, episode)["strict"].metrics["end_to_end"] == 0


def test_simulator_that_never_finishes_is_stopped() -> None:
    benchmark = bench(max_messages=6)
    item = entry(benchmark, "multi_turn", 0)
    episode = play(benchmark, item, ScriptedModel("And then?"), ScriptedModel("Well."))
    assert episode.state["ended"] == "max_messages"
    # The opening line does not count.
    assert len(episode.state["steps"]) == 7


def test_deadline_cuts_the_episode_and_keeps_what_was_done() -> None:
    benchmark = bench()
    item = entry(benchmark, "multi_step", 0)

    async def slowly(_: Request) -> str:
        await asyncio.sleep(0.05)
        return "[turn_on_wifi()]"

    episode = play(benchmark, item, ScriptedModel(slowly), seconds=0.2)
    assert episode.state["ended"] == "deadline"
    assert {"BaseApi": {"wifi": True, "logged_in": True}} in episode.state["end"]


@pytest.mark.parametrize("slow", ["user", "agent"])
def test_nobody_is_judged_by_the_silence_of_another(slow: str) -> None:
    """A simulator that hangs, or an engine that has not answered once: no verdict, tried again."""
    benchmark = bench()
    quick, hangs = ScriptedModel("What?"), ScriptedModel(hang)
    agent, user = (quick, hangs) if slow == "user" else (hangs, quick)
    with pytest.raises(EpisodeStalled, match="no answer before the episode's deadline"):
        play(benchmark, entry(benchmark, "multi_turn", 0), agent, user, seconds=0.2)


def test_endings_reach_the_summary() -> None:
    benchmark = bench(max_messages=4)
    item = entry(benchmark, "multi_step", 0)
    rows = []
    for number, line in enumerate(["[turn_on_wifi()]", "finish conversation"]):
        verdicts = benchmark.check(item, play(benchmark, item, ScriptedModel(line)))
        rows.append(scored_row(item.category, str(number), verdicts))
    summary = benchmark.summarize(rows, 0.0)
    assert summary["endings"] == {
        "agent_multi_step": {"finished": 1, "max_messages": 1, "context": 0, "deadline": 0}
    }
    assert summary["further_tables"][0]["lines"] == [["agent_multi_step", "1", "1", "0", "0"]]


def test_full_context_cuts_the_episode() -> None:
    benchmark = bench()
    item = entry(benchmark, "multi_step", 0)
    episode = play(benchmark, item, ScriptedModel("[turn_on_wifi()]", PromptTooLong("full")))
    assert episode.state["ended"] == "context"
    assert episode.model_calls == 1


def test_prompt_that_never_fitted_is_no_episode() -> None:
    benchmark = bench()
    with pytest.raises(PromptTooLong):
        play(benchmark, entry(benchmark, "multi_step", 0), ScriptedModel(PromptTooLong("full")))


def test_full_context_of_the_simulator_is_no_wrong_answer() -> None:
    benchmark = bench()
    item = entry(benchmark, "multi_turn", 0)
    with pytest.raises(PromptTooLong, match="the user simulator: full"):
        play(benchmark, item, ScriptedModel("What?"), ScriptedModel("Hi", PromptTooLong("full")))


def test_native_results_are_readable_in_any_language() -> None:
    message = {"tool_calls": [{"function": {"name": "login"}}]}
    (result,) = tool_results(message, [{"message": "成功"}])
    assert "成功" in result["content"]


def test_simulator_that_is_down_is_no_wrong_answer() -> None:
    benchmark = bench()
    with pytest.raises(RowError, match="down"):
        play(
            benchmark,
            entry(benchmark, "multi_turn", 0),
            ScriptedModel("What?"),
            ScriptedModel("Hi", RowError("down")),
        )


def test_instruction_never_reaches_the_agent_nor_functions_the_user() -> None:
    benchmark = bench()
    item = entry(benchmark, "multi_turn", 0)
    agent, user = ScriptedModel("Hello?"), ScriptedModel("Hi", "finish conversation")
    play(benchmark, item, agent, user)
    assert item.data["question"] not in str(agent.chats)
    assert item.data["question"] in user.chats[0][0]["content"]
    assert "turn_on_wifi" not in str(user.chats)


def native(*lines: str) -> ScriptedModel:
    """Gives ideal steps as tool calls, as a tool parser hands them on; any other line as text."""

    def reply(line: str) -> ToolAnswer:
        calls = agent_calls(line, loop="multi_step", protocol="fixed")
        if calls is None:
            return say(line)
        return say("", *((call.name, call.arguments) for call in calls))

    return ScriptedModel(*map(reply, lines))


def test_ideal_paths_are_right_with_native_tool_calling_too() -> None:
    benchmark = bench(mode="native")
    for item in benchmark.entries():
        for path in ideal_paths(item):
            agent = native(*path, "finish conversation")
            episode = play(benchmark, item, agent)
            for rules, verdict in benchmark.check(item, episode).items():
                assert verdict.valid, (item.key, rules, verdict)
            assert [tool["function"]["name"] for tool in agent.asked[-1].tools or ()] == [
                function["name"] for function in item.data["function"]
            ]


def test_native_agents_see_a_chat_with_calls_and_results() -> None:
    benchmark = bench(mode="native")
    item = entry(benchmark, "multi_step", 0)
    agent = native("[turn_on_wifi(), nothing(a=1)]", "What now?", "finish conversation")
    episode = play(benchmark, item, agent)
    system, task, called, first, second, text, refusal = agent.chats[-1]
    assert [system["role"], task] == [
        "system",
        {"role": "user", "content": item.data["question"]},
    ]
    assert "turn_on_wifi" not in system["content"]
    assert called["tool_calls"][1] == {
        "id": "call00001",
        "type": "function",
        "function": {"name": "nothing", "arguments": {"a": 1}},
    }
    assert (first["role"], first["name"], first["tool_call_id"]) == (
        "tool", "turn_on_wifi", "call00000",
    )  # fmt: skip
    assert json.loads(first["content"]) == {"status": True, "message": "Wi-Fi is on now."}
    assert "error" in json.loads(second["content"])
    assert (text["content"], refusal["role"]) == ("What now?", "user")
    assert episode.state["process"] == ["[turn_on_wifi(), nothing(a=1)]", "What now?"]


def test_native_call_with_broken_arguments_is_an_error_the_agent_sees() -> None:
    benchmark = bench(mode="native")
    item = entry(benchmark, "multi_step", 0)

    agent = ScriptedModel(say("x", ("turn_on_wifi", "{oops")), "finish conversation")
    episode = play(benchmark, item, agent)
    assert episode.state["steps"][1]["errors"] == ["bad_arguments"]
    assert "no JSON object" in agent.chats[-1][-1]["content"]
    assert episode.state["end"] == episode.state["before"]


def food_logins(item: Entry) -> list[str]:
    """Logins of two users of the mini set's food platform."""
    users = load_app_specs(MINI)["multi_turn"][item.language]["FoodPlatform"]["state"]["users"]
    return [
        f"login_food_platform(username={name!r}, password={user['password']!r})"
        for name, user in list(users.items())[:2]
    ]


def answers_to(batch: str, category: str, number: int, **options: Any) -> Any:
    """What execution answers to a batch of calls."""
    benchmark = bench(**options)
    item = entry(benchmark, category, number)
    if "ONE" in batch:
        one, two = food_logins(item)
        batch = batch.replace("ONE", one).replace("TWO", two)
    agent = ScriptedModel("[turn_on_wifi()]", batch, "finish conversation")
    steps = play(benchmark, item, agent).state["steps"]
    return [step for step in steps if step["speaker"] == "execution"][1]


def test_answers_of_an_official_batch_show_its_end() -> None:
    batch = "[ONE, view_logged_in_users(), TWO]"
    official = answers_to(batch, "multi_step", 0, protocol="official")
    assert len(official["observations"][1]["logged_in_users"]) == 2
    fixed = answers_to(batch, "multi_step", 0, protocol="fixed")
    assert len(fixed["observations"][1]["logged_in_users"]) == 1


def test_a_dotted_name_is_looked_up_by_its_last_part() -> None:
    official = {"protocol": "official"}
    unknown = "[login_device(), foo.bar(), turn_on_wifi()]"
    found = answers_to(unknown, "multi_turn", 0, **official)
    assert found["errors"] == ["", "unknown_tool", ""]
    first, repeated, _ = ast.literal_eval(found["text"])
    assert repeated == first
    known = "[login_device(), m.turn_on_wifi(), turn_on_wifi()]"
    found = answers_to(known, "multi_turn", 0, **official)
    assert found["errors"] == ["", "bad_arguments"]
    assert "name 'm' is not defined" in answers_to(known, "multi_step", 0, **official)["text"]
    unread = answers_to("[login_device(), nosuch(a=open(file='x'))]", "multi_turn", 0, **official)
    assert unread["errors"] == ["", "unknown_tool"]
