"""CoT@n: what becomes of every kind of reply, and when a chain ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from ace_ray.benchmarks.stabletoolbench.apis.answers import Answered
from ace_ray.benchmarks.stabletoolbench.episode.rollout import template_probe
from ace_ray.benchmarks.stabletoolbench.episode.run import AgentRun
from ace_ray.benchmarks.stabletoolbench.options import Settings
from ace_ray.benchmarks.stabletoolbench.prompts import OWN
from ace_ray.benchmarks.stabletoolbench.tools import apis_of
from ace_ray.errors import EpisodeStalled, PromptTooLong, RequestFailed
from tests.benchmarks.stabletoolbench.scripted_agent import BREAD, GIVE_UP, Table, answer
from tests.scripted_model import ScriptedModel, hang, say

Played = Callable[..., AgentRun]
FIND = "find_bread_for_bakery"


def kinds(run: AgentRun, attempt: int = 0) -> list[str]:
    return [node["type"] for node in run.tries[attempt]["nodes"][1:]]


def test_a_call_and_an_answer(play: Played) -> None:
    model = ScriptedModel(say("I look.", (FIND, {"q": "rye"})), say("", answer("Rye.")))
    table = Table()
    run = play(model, caller=table)
    assert (run.valid, run.ended) == (True, "answered")
    assert run.final == {
        "return_type": "give_answer",
        "answer": "Rye.",
        "raw": json.dumps(answer("Rye.")[1]),
    }
    assert table.calls == [(FIND, '{"q": "rye"}')]
    assert kinds(run) == ["Thought", "Action", "Action Input", "Action", "Action Input"]
    assert [node["depth"] for node in run.tries[0]["nodes"]] == [0, 1, 2, 3, 4, 5]
    assert run.query_count == 2
    (call,) = run.calls
    assert (call["name"], call["tool"], call["api"]) == (FIND, "Bakery", "Find bread")
    assert (call["code"], call["source"], call["error"]) == (0, "simulator", "")
    assert [message["role"] for message in run.messages] == [
        *("system", "user", "assistant", "tool", "assistant", "tool")
    ]


def test_the_model_sees_the_chat_its_template_takes(play: Played) -> None:
    model = ScriptedModel(say("I look.", (FIND, {"q": "rye"})), say("", answer("Rye.")))
    play(model)
    system, user, said, seen = model.chats[1]
    assert system["role"] == "system"
    assert "1.bakery: None" in system["content"]
    assert "Which bread?" in user["content"]
    assert said["tool_calls"][0]["function"] == {"name": FIND, "arguments": {"q": "rye"}}
    assert seen["tool_call_id"] == said["tool_calls"][0]["id"]
    assert len(seen["tool_call_id"]) == 9
    assert json.loads(seen["content"]) == {"error": "", "response": {"you sent": '{"q": "rye"}'}}
    names = [tool["function"]["name"] for tool in model.asked[0].tools or ()]
    assert names == [FIND, "list_shops_for_bakery", "Finish"]


def test_a_hallucinated_name_is_an_observation_and_leaves_the_history(play: Played) -> None:
    model = ScriptedModel(say("", ('bake "it"', {})), say("", answer("x")))
    table = Table()
    run = play(model, caller=table)
    assert table.calls == []
    assert run.calls[0]["code"] == 1
    assert run.calls[0]["tool"] is None
    assert run.tries[0]["nodes"][1]["description"] == 'bake "it"'
    said, seen = model.chats[1][2:]
    assert said["tool_calls"][0]["function"]["name"] == "invalid_hallucination_function_name"
    assert seen["name"] == "invalid_hallucination_function_name"
    assert 'bake "it"' in json.loads(seen["content"])["error"]


@pytest.mark.parametrize(
    ("called", "reached"),
    [("bread_for_bakery", FIND), ("", FIND), ("Finish ", None), ("inish", None)],
)
def test_suffixes_reach_functions(play: Played, called: str, reached: str | None) -> None:
    table = Table()
    run = play(ScriptedModel(say("", (called, "{}")), say("", answer("x"))), caller=table)
    assert [name for name, _ in table.calls] == ([reached] if reached else [])
    assert run.calls[0]["code"] == (0 if reached else 1)


def test_giving_up_ends_a_chain_without_an_answer(play: Played) -> None:
    run = play(ScriptedModel(say("", GIVE_UP)))
    assert (run.valid, run.ended) == (False, "gave_up")
    assert run.final == {"return_type": "give_up_and_restart", "answer": "", "raw": ""}
    assert run.tries[0]["nodes"][-1]["code"] == 4
    assert run.tries[0]["nodes"][-1]["pruned"]
    assert run.messages[-1]["content"] == OWN.gave_up


def test_tries_go_on_until_one_answers(play: Played) -> None:
    model = ScriptedModel(say("", GIVE_UP), say("", answer("second")), say("", answer("third")))
    run = play(model, method="CoT@3")
    assert len(run.tries) == 2
    assert run.final
    assert run.final["answer"] == "second"
    assert len({request.sampling.seed for request in model.asked}) == 2, (
        "a repeated try must not draw the same tokens"
    )
    assert model.chats[0] == model.chats[1]


def test_a_chain_ends_at_its_depth_after_all_calls_of_the_reply(play: Played) -> None:
    twice = say("", (FIND, {}), (FIND, {}))
    run = play(ScriptedModel(twice), max_steps=5)
    assert run.ended == "max_steps"
    assert run.query_count == 2
    assert run.tries[0]["nodes"][-1]["depth"] == 8
    assert run.tries[0]["nodes"][-1]["pruned"]
    assert run.final is None


def test_words_without_calls_are_thoughts_and_end_at_the_depth(play: Played) -> None:
    for words in ("hm", ""):
        model = ScriptedModel(say(words))
        run = play(model, max_steps=4)
        assert (run.ended, run.query_count) == ("max_steps", 4)
        assert kinds(run) == ["Thought"] * 4
        roles = [message["role"] for message in model.chats[-1]]
        assert roles == ["system", "user", *["assistant"] * 3]


def test_calls_after_finish_run_on(play: Played) -> None:
    reply = say("", (FIND, {"q": 1}), answer("done"), (FIND, {"q": 2}))
    table = Table()
    run = play(ScriptedModel(reply), caller=table)
    assert [given for _, given in table.calls] == ['{"q": 1}', '{"q": 2}']
    assert run.final == {"return_type": "give_answer", "answer": "done", "raw": '{"q": 2}'}


def test_observations_are_cut(play: Played) -> None:
    caller = Table(find_bread=Answered("", "é" * 3000, "simulator"))
    run = play(ScriptedModel(say("", (FIND, {})), say("", answer("x"))), caller=caller)
    seen = run.tries[0]["nodes"][2]["observation"]
    assert len(seen) == 1027
    assert seen.endswith("...")
    assert "\\u00e9" in seen
    short = Table(
        find_bread=Answered("", "x" * (1024 - len('{"error": "", "response": ""}')), "simulator")
    )
    run = play(ScriptedModel(say("", (FIND, {})), say("", answer("x"))), caller=short)
    assert len(run.tries[0]["nodes"][2]["observation"]) == 1024


@pytest.mark.parametrize(("error", "code"), [("Timeout error...", 5), ("no such bread", 0)])
def test_errors_of_apis_are_observations(play: Played, error: str, code: int) -> None:
    script = (say("", (FIND, {})), say("", answer("x")))
    run = play(ScriptedModel(*script), caller=Table(find_bread=Answered(error, "", "simulator")))
    assert (run.calls[0]["code"], run.calls[0]["error"]) == (code, error)
    assert run.ended == "answered"


def test_malformed_arguments_reach_the_caller_and_not_the_template(play: Played) -> None:
    model = ScriptedModel(say("", (FIND, '{"q": ')), say("", answer("x")))
    table = Table()
    run = play(model, caller=table)
    assert table.calls == [(FIND, '{"q": ')]
    assert run.messages[2]["tool_calls"][0]["function"]["arguments"] == '{"q": '
    assert model.chats[1][2]["tool_calls"][0]["function"]["arguments"] == {}


def test_a_flood_of_calls_is_bounded(play: Played) -> None:
    table = Table()
    model = ScriptedModel(say("", *[(FIND, {})] * 500), say("", answer("x")))
    run = play(model, caller=table, max_steps=200)
    assert len(table.calls) == 64
    assert run.dropped_calls == 436
    ids = [call["id"] for call in run.messages[2]["tool_calls"]]
    assert len(set(ids)) == 64


class Slow:
    """An API that takes for ever."""

    async def call(self, *_: Any) -> Any:
        await asyncio.sleep(3600)


def test_nothing_before_the_deadline_is_nobodys_wrong_answer(play: Played) -> None:
    with pytest.raises(EpisodeStalled, match="candidate"):
        play(ScriptedModel(hang), deadline_s=0.01)
    with pytest.raises(EpisodeStalled, match="an API"):
        play(ScriptedModel(say("", (FIND, {}))), caller=Slow(), deadline_s=0.05)


def test_the_deadline_cuts_an_episode_that_got_somewhere(play: Played) -> None:
    async def yes() -> bool:
        return True

    async def no() -> bool:
        return False

    run = play(ScriptedModel(say("a", (FIND, {})), hang), deadline_s=0.05, works=yes)
    assert (run.ended, run.valid, run.final, len(run.calls)) == ("deadline", False, None, 1)
    with pytest.raises(EpisodeStalled, match="engine"):
        play(ScriptedModel(say("a", (FIND, {})), hang), deadline_s=0.05, works=no)


def test_a_full_context_ends_a_chain_but_not_the_tries(play: Played) -> None:
    full = PromptTooLong("too long")
    run = play(ScriptedModel(say("", (FIND, {})), full))
    assert (run.ended, run.valid, len(run.calls)) == ("context", False, 1)
    run = play(ScriptedModel(say("", (FIND, {})), full, say("", answer("x"))), method="CoT@2")
    assert run.ended == "answered"
    with pytest.raises(PromptTooLong):
        play(ScriptedModel(full))


def test_the_engines_failures_are_the_rows(play: Played) -> None:
    with pytest.raises(RequestFailed):
        play(ScriptedModel(say("", (FIND, {})), RequestFailed("gone")))


def test_the_same_script_gives_the_same_run(play: Played) -> None:
    def once() -> AgentRun:
        return play(ScriptedModel(say("t", (FIND, {})), say("", ("no", {})), say("", answer("x"))))

    assert once() == once()


@pytest.mark.parametrize("form", ["native", "react"])
@pytest.mark.parametrize("method", ["CoT@1", "DFS_woFilter_w2"])
def test_a_template_probe_shows_every_kind_of_message(play: Played, form: Any, method: str) -> None:
    settings = Settings(method=method, form=form, max_steps=6, max_queries=20)
    shown = template_probe(apis_of(BREAD), settings)
    pairs = {kind_of(*pair) for pair in pairwise(shown)}
    reply = f"Action: {FIND}\nAction Input: {{}}"
    script = [reply, "hm"] * 10 if form == "react" else [say("", (FIND, {})), say("hm")] * 10
    model = ScriptedModel(*script)
    play(model, method=method, form=form, max_steps=6, max_queries=20)
    sent = {kind_of(*pair) for chat in model.chats for pair in pairwise(chat)}
    kinds = {kind for pair in sent for kind in pair}
    assert {kind for pair in pairs for kind in pair} >= kinds


def kind_of(one: dict[str, Any], other: dict[str, Any]) -> tuple[Any, Any]:
    return (one["role"], *sorted(one)), (other["role"], *sorted(other))
