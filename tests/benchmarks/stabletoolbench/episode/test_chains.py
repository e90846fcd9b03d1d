"""CoT@n: the result of every kind of reply, and the end of a chain."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from ace_ray.benchmarks.stabletoolbench.apis.answers import Answered
from ace_ray.benchmarks.stabletoolbench.episode.rollout import template_probe
from ace_ray.benchmarks.stabletoolbench.episode.run import AgentRun
from ace_ray.benchmarks.stabletoolbench.options import Settings
from ace_ray.benchmarks.stabletoolbench.prompts import OWN
from ace_ray.benchmarks.stabletoolbench.tools import apis_of
from ace_ray.errors import EpisodeStalled, PromptTooLong, RequestFailed
from tests.benchmarks.stabletoolbench.builders import BREAD, GIVE_UP, Table, answer, play
from tests.scripted_model import ScriptedModel, hang, say

FIND = "find_bread_for_bakery"


def kinds(run: AgentRun) -> list[str]:
    return [node["type"] for node in run.tries[0]["nodes"][1:]]


def test_a_call_and_an_answer() -> None:
    model = ScriptedModel(say("I look.", (FIND, {"q": "rye"})), say("", answer("Rye.")))
    table = Table()
    run = play(model, caller=table)
    assert (run.valid, run.ended) == (True, "answered")
    raw = json.dumps(answer("Rye.")[1])
    assert run.final == {"return_type": "give_answer", "answer": "Rye.", "raw": raw}
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
    # The chat that the model was sent.
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


def test_a_hallucinated_name_is_an_observation_and_leaves_the_history() -> None:
    calls = [('bake "it"', {}), ("bread_for_bakery", {}), ("Finish ", {})]
    model = ScriptedModel(*[say("", one) for one in calls], say("", answer("x")))
    table = Table()
    run = play(model, caller=table)
    assert [call["code"] for call in run.calls] == [1, 0, 1]
    assert [name for name, _ in table.calls] == [FIND], "a suffix reaches a function"
    assert (run.calls[0]["code"], run.calls[0]["tool"]) == (1, None)
    assert run.tries[0]["nodes"][1]["description"] == 'bake "it"'
    said, seen = model.chats[1][2:]
    assert said["tool_calls"][0]["function"]["name"] == "invalid_hallucination_function_name"
    assert seen["name"] == "invalid_hallucination_function_name"
    assert 'bake "it"' in json.loads(seen["content"])["error"]


def test_giving_up_ends_a_chain_without_an_answer() -> None:
    run = play(ScriptedModel(say("", GIVE_UP)))
    assert (run.valid, run.ended) == (False, "gave_up")
    assert run.final == {"return_type": "give_up_and_restart", "answer": "", "raw": ""}
    last = run.tries[0]["nodes"][-1]
    assert (last["code"], last["pruned"]) == (4, True)
    assert run.messages[-1]["content"] == OWN.gave_up


def test_tries_go_on_until_one_answers() -> None:
    model = ScriptedModel(say("", GIVE_UP), say("", answer("second")), say("", answer("third")))
    run = play(model, method="CoT@3")
    assert len(run.tries) == 2
    assert run.final
    assert run.final["answer"] == "second"
    seeds = {request.sampling.seed for request in model.asked}
    assert len(seeds) == 2, "a repeated try must not draw the same tokens"
    assert model.chats[0] == model.chats[1]


def test_a_chain_ends_at_its_depth_after_all_calls_of_the_reply() -> None:
    run = play(ScriptedModel(say("", (FIND, {}), (FIND, {}))), max_steps=5)
    assert (run.ended, run.query_count, run.final) == ("max_steps", 2, None)
    last = run.tries[0]["nodes"][-1]
    assert (last["depth"], last["pruned"]) == (8, True)
    for words in ("hm", ""):
        model = ScriptedModel(say(words))
        run = play(model, max_steps=4)
        assert (run.ended, run.query_count) == ("max_steps", 4)
        assert kinds(run) == ["Thought"] * 4
        roles = [message["role"] for message in model.chats[-1]]
        assert roles == ["system", "user", *["assistant"] * 3]


def test_calls_after_finish_run_on() -> None:
    reply = say("", (FIND, {"q": 1}), answer("done"), (FIND, {"q": 2}))
    table = Table()
    run = play(ScriptedModel(reply), caller=table)
    assert [given for _, given in table.calls] == ['{"q": 1}', '{"q": 2}']
    assert run.final == {"return_type": "give_answer", "answer": "done", "raw": '{"q": 2}'}


def test_observations_are_cut_and_errors_have_codes() -> None:
    def observed(answered: Answered) -> tuple[str, dict[str, Any]]:
        model = ScriptedModel(say("", (FIND, {})), say("", answer("x")))
        run = play(model, caller=Table(find_bread=answered))
        assert run.ended == "answered"
        return run.tries[0]["nodes"][2]["observation"], run.calls[0]

    seen, _ = observed(Answered("", "é" * 3000, "simulator"))
    assert len(seen) == 1027
    assert seen.endswith("...")
    assert "\\u00e9" in seen
    whole = "x" * (1024 - len('{"error": "", "response": ""}'))
    assert len(observed(Answered("", whole, "simulator"))[0]) == 1024
    invalid = "request invalid, data error. status_code=500"
    for error, code in (("Timeout error...", 5), (invalid, 12), ("no such bread", 0)):
        _, call = observed(Answered(error, "", "simulator"))
        assert (call["code"], call["error"]) == (code, error)


def test_malformed_arguments_reach_the_caller_and_not_the_template() -> None:
    model = ScriptedModel(say("", (FIND, '{"q": ')), say("", answer("x")))
    table = Table()
    run = play(model, caller=table)
    assert table.calls == [(FIND, '{"q": ')]
    assert run.messages[2]["tool_calls"][0]["function"]["arguments"] == '{"q": '
    assert model.chats[1][2]["tool_calls"][0]["function"]["arguments"] == {}


def test_a_flood_of_calls_is_bounded() -> None:
    table = Table()
    model = ScriptedModel(say("", *[(FIND, {})] * 500), say("", answer("x")))
    run = play(model, caller=table, max_steps=200)
    assert (len(table.calls), run.dropped_calls) == (64, 436)
    assert len({call["id"] for call in run.messages[2]["tool_calls"]}) == 64


def test_a_deadline_without_progress_is_no_verdict() -> None:
    with pytest.raises(EpisodeStalled, match="candidate"):
        play(ScriptedModel(hang), deadline_s=0.01)

    class Slow:
        async def call(self, *_: Any) -> Any:
            await asyncio.sleep(3600)

    with pytest.raises(EpisodeStalled, match="an API"):
        play(ScriptedModel(say("", (FIND, {}))), caller=Slow(), deadline_s=0.05)


def test_the_deadline_cuts_an_episode_that_got_somewhere() -> None:
    async def yes() -> bool:
        return True

    async def no() -> bool:
        return False

    run = play(ScriptedModel(say("a", (FIND, {})), hang), deadline_s=0.05, works=yes)
    assert (run.ended, run.valid, run.final, len(run.calls)) == ("deadline", False, None, 1)
    with pytest.raises(EpisodeStalled, match="engine"):
        play(ScriptedModel(say("a", (FIND, {})), hang), deadline_s=0.05, works=no)


def test_a_full_context_ends_a_chain_but_not_the_tries() -> None:
    full = PromptTooLong("too long")
    run = play(ScriptedModel(say("", (FIND, {})), full))
    assert (run.ended, run.valid, len(run.calls)) == ("context", False, 1)
    run = play(ScriptedModel(say("", (FIND, {})), full, say("", answer("x"))), method="CoT@2")
    assert run.ended == "answered"
    with pytest.raises(PromptTooLong):
        play(ScriptedModel(full))
    with pytest.raises(RequestFailed):  # a failure of the engine is not the candidate's
        play(ScriptedModel(say("", (FIND, {})), RequestFailed("gone")))


@pytest.mark.parametrize("form", ["native", "react"])
@pytest.mark.parametrize("method", ["CoT@1", "DFS_woFilter_w2"])
def test_a_template_probe_shows_every_kind_of_message(form: Any, method: str) -> None:
    given: dict[str, Any] = {"method": method, "form": form, "max_steps": 6, "max_queries": 20}
    reply = f"Action: {FIND}\nAction Input: {{}}"
    script = [reply, "hm"] * 10 if form == "react" else [say("", (FIND, {})), say("hm")] * 10
    model = ScriptedModel(*script)
    play(model, **given)
    shown = template_probe(apis_of(BREAD), Settings(**given))
    kinds = [{(m["role"], *sorted(m)) for m in chat} for chat in (shown, *model.chats)]
    assert kinds[0] >= set().union(*kinds[1:])
