"""Episodes of chains (CoT@n) and tree search (DFSDT), with native calls and in the ReAct form."""

import asyncio
import json
from typing import Any

import pytest

from ace_ray.benchmarks.stabletoolbench.apis.answers import ApiAnswer
from ace_ray.benchmarks.stabletoolbench.episode.reading import read_finish, read_react
from ace_ray.benchmarks.stabletoolbench.episode.run import AgentSolution
from ace_ray.benchmarks.stabletoolbench.prompts import OWN
from ace_ray.errors import EpisodeStalled, PromptTooLong, RequestFailed
from tests.benchmarks.play import stalled
from tests.benchmarks.stabletoolbench.builders import GIVE_UP, Table, answer, play
from tests.scripted_model import ScriptedModel, hang, say

DFS = "DFS_woFilter_w2"
FIND = "find_bread_for_bakery"
FULL = PromptTooLong("too long")
DONE = say("", answer("x"))


def call(number: Any) -> Any:
    return say("", (FIND, {"q": number}))


def kinds(run: AgentSolution) -> list[str]:
    return [node["type"] for node in run.tries[0]["nodes"][1:]]


def roles(messages: Any) -> list[str]:
    return [message["role"] for message in messages]


def test_a_call_and_an_answer() -> None:
    model = ScriptedModel(say("I look.", (FIND, {"q": "rye"})), say("", answer("Rye.")))
    table = Table()
    run = play(model, caller=table)
    assert (run.valid, run.ended) == (True, "answered")
    raw = json.dumps(answer("Rye.")[1])
    assert run.final == {"return_type": "give_answer", "answer": "Rye.", "raw": raw}
    assert table.calls == [(FIND, '{"q": "rye"}')]
    assert kinds(run) == ["Thought", "Action", "Action Input", "Action", "Action Input"]
    assert run.query_count == 2
    (call,) = run.calls
    assert (call["name"], call["tool"], call["api"]) == (FIND, "Bakery", "Find bread")
    assert (call["code"], call["source"], call["error"]) == (0, "simulator", "")
    assert roles(run.messages) == ["system", "user", "assistant", "tool", "assistant", "tool"]
    # The chat that the model was sent.
    system, _, reply, observation = model.chats[1]
    assert "1.bakery: None" in system["content"]
    assert reply["tool_calls"][0]["function"] == {"name": FIND, "arguments": {"q": "rye"}}
    assert observation["tool_call_id"] == reply["tool_calls"][0]["id"]
    assert len(observation["tool_call_id"]) == 9
    assert json.loads(observation["content"]) == {
        "error": "",
        "response": {"you sent": '{"q": "rye"}'},
    }
    names = [tool["function"]["name"] for tool in model.requests[0].tools or ()]
    assert names == [FIND, "list_shops_for_bakery", "Finish"]


def test_a_hallucinated_name_is_an_observation_and_leaves_the_history() -> None:
    calls = [('bake "it"', {}), ("bread_for_bakery", '{"q": '), ("Finish ", {})]
    model = ScriptedModel(*[say("", name) for name in calls], DONE)
    table = Table()
    run = play(model, caller=table)
    assert [call["code"] for call in run.calls] == [1, 0, 1]
    assert table.calls == [(FIND, '{"q": ')], "a suffix reaches a function"
    assert run.calls[0]["tool"] is None
    assert run.tries[0]["nodes"][1]["description"] == 'bake "it"'
    reply, observation = model.chats[1][2:]
    assert reply["tool_calls"][0]["function"]["name"] == "invalid_hallucination_function_name"
    assert 'bake "it"' in json.loads(observation["content"])["error"]
    # Malformed arguments are stored, and not shown to the template.
    assert run.messages[4]["tool_calls"][0]["function"]["arguments"] == '{"q": '
    assert model.chats[2][4]["tool_calls"][0]["function"]["arguments"] == {}


def test_tries_go_on_until_one_answers() -> None:
    run = play(ScriptedModel(say("", GIVE_UP)))
    assert (run.valid, run.ended) == (False, "gave_up")
    assert run.final == {"return_type": "give_up_and_restart", "answer": "", "raw": ""}
    last = run.tries[0]["nodes"][-1]
    assert (last["code"], last["pruned"]) == (4, True)
    assert run.messages[-1]["content"] == OWN.gave_up
    model = ScriptedModel(say("", GIVE_UP), say("", answer("second")), say("", answer("third")))
    run = play(model, method="CoT@3")
    assert len(run.tries) == 2
    assert run.final
    assert run.final["answer"] == "second"
    seeds = {request.sampling.seed for request in model.requests}
    assert len(seeds) == 2, "a repeated try must not draw the same tokens"
    assert model.chats[0] == model.chats[1]


def test_a_chain_ends_at_its_depth_after_all_calls_of_the_reply() -> None:
    run = play(ScriptedModel(say("", (FIND, {}), (FIND, {}))), max_steps=5)
    assert (run.ended, run.query_count, run.final) == ("max_steps", 2, None)
    last = run.tries[0]["nodes"][-1]
    assert (last["depth"], last["pruned"]) == (8, True)
    run = play(model := ScriptedModel(say("")), max_steps=4)
    assert (run.ended, run.query_count) == ("max_steps", 4)
    assert roles(model.chats[-1]) == ["system", "user", *["assistant"] * 3]


def test_calls_of_a_reply_run_on_after_finish_and_are_bounded() -> None:
    table = Table()
    reply = say("", (FIND, {"q": 1}), answer("done"), (FIND, {"q": 2}))
    run = play(ScriptedModel(reply), caller=table)
    assert [arguments for _, arguments in table.calls] == ['{"q": 1}', '{"q": 2}']
    assert run.final == {"return_type": "give_answer", "answer": "done", "raw": '{"q": 2}'}
    run = play(ScriptedModel(say("", *[(FIND, {})] * 500), DONE), caller=table, max_steps=200)
    assert (len(table.calls), run.dropped_calls) == (2 + 64, 436)
    assert len({call["id"] for call in run.messages[2]["tool_calls"]}) == 64


def test_observations_are_cut_and_errors_have_codes() -> None:
    def observed(answered: ApiAnswer) -> tuple[str, dict[str, Any]]:
        run = play(ScriptedModel(call(1), DONE), caller=Table(find_bread=answered))
        assert run.ended == "answered"
        return run.tries[0]["nodes"][2]["observation"], run.calls[0]

    observation, _ = observed(ApiAnswer("", "é" * 3000, "simulator"))
    assert len(observation) == 1027
    assert observation.endswith("...")
    assert "\\u00e9" in observation
    invalid = "request invalid, data error. status_code=500"
    for error, code in (("Timeout error...", 5), (invalid, 12), ("no such bread", 0)):
        _, record = observed(ApiAnswer(error, "", "simulator"))
        assert (record["code"], record["error"]) == (code, error)


def test_a_deadline_cuts_an_episode_that_got_somewhere() -> None:
    class Slow:
        async def call(self, *_: Any) -> Any:
            await asyncio.sleep(3600)

    run = play(ScriptedModel(call(1), hang), deadline_s=0.05)
    assert (run.ended, run.valid, run.final, len(run.calls)) == ("deadline", False, None, 1)
    # Without progress, or with a broken engine, the row has no verdict.
    with pytest.raises(EpisodeStalled, match="engine"):
        play(ScriptedModel(call(1), hang), deadline_s=0.05, works=stalled)
    with pytest.raises(EpisodeStalled, match="candidate"):
        play(ScriptedModel(hang), deadline_s=0.01)
    with pytest.raises(EpisodeStalled, match="an API"):
        play(ScriptedModel(call(1)), caller=Slow(), deadline_s=0.05)


def test_a_full_context_ends_a_chain_but_not_the_tries() -> None:
    run = play(ScriptedModel(call(1), FULL))
    assert (run.ended, run.valid, len(run.calls)) == ("context", False, 1)
    assert play(ScriptedModel(call(1), FULL, DONE), method="CoT@2").ended == "answered"
    with pytest.raises(PromptTooLong):
        play(ScriptedModel(FULL))
    with pytest.raises(RequestFailed):  # a failure of the engine is not the candidate's
        play(ScriptedModel(call(1), RequestFailed("gone")))


def tree(run: AgentSolution) -> list[tuple[int | None, str]]:
    """Return (parent, description) of each action input."""
    (attempt,) = run.tries
    nodes = attempt["nodes"]
    return [
        (nodes[node["parent"]]["parent"], node["description"])
        for node in nodes[1:]
        if node["type"] == "Action Input"
    ]


def test_a_give_up_goes_two_rounds_back() -> None:
    model = ScriptedModel(call(1), call(2), say("", GIVE_UP), DONE, call(9))
    run = play(model, method=DFS)
    # 1 -> 2 -> give up; back over 2, on at 1
    ends = (4, json.dumps(GIVE_UP[1])), (2, json.dumps(answer("x")[1]))
    assert tree(run) == [(0, '{"q": 1}'), (2, '{"q": 2}'), *ends]
    assert (run.ended, run.valid, run.query_count) == ("answered", True, 4)
    assert run.final
    assert run.final["answer"] == "x"
    # The messages lack the abandoned branch and the diversity message.
    assert roles(run.messages) == ["system", "user", "assistant", "tool", "assistant", "tool"]
    # The candidate is shown what it did here.
    assert roles(model.chats[3]) == ["system", "user", "assistant", "tool", "user"]
    prompt = model.chats[3][-1]["content"]
    assert '"arguments": "{\\"q\\": 2}"' in prompt
    assert '{\\"q\\": 1}' in prompt, "the observation of the first call"
    assert [call["node"] for call in run.calls] == [2, 4]


def test_the_depth_goes_one_round_back() -> None:
    model = ScriptedModel(*[call(number) for number in range(20)])
    run = play(model, method=DFS, max_steps=4)
    assert (run.ended, run.valid, run.final) == ("exhausted", False, None)
    parents = enumerate((0, 2, 2, 0, 8, 8))
    assert tree(run) == [(parent, f'{{"q": {number}}}') for number, parent in parents]
    assert len({request.sampling.seed for request in model.requests}) == 2, "each child has a seed"
    table = Table()
    run = play(ScriptedModel(call(1)), method=DFS, max_queries=3, caller=table)
    assert (run.ended, run.query_count) == ("max_queries", 3)
    assert len(table.calls) == 2, "upstream throws the last reply away"


def test_without_an_answer_a_give_up_counts_the_same_one_each_time() -> None:
    script = [call(1), call(2), say("", GIVE_UP), call(3), say("no", GIVE_UP), say("", GIVE_UP)]
    run, again = (play(ScriptedModel(*script), method=DFS) for _ in range(2))
    assert (run.valid, run.ended) == (True, "exhausted")
    raw = json.dumps(GIVE_UP[1])
    assert run.final == {"return_type": "give_up_and_restart", "answer": "", "raw": raw}
    assert run.messages[-1]["name"] == "Finish"
    assert again == run


ROUND = 'Thought: I look.\nAction: find_bread_for_bakery\nAction Input: {"q": "rye"}'
FINISH = 'Action: Finish\nAction Input: {"return_type": "give_answer", "final_answer": "Rye."}'
END = f"Thought: ok\n{FINISH}"


def test_an_episode_in_the_react_form() -> None:
    model, table = ScriptedModel(ROUND, END), Table()
    run = play(model, mode="react", caller=table)
    assert run.final
    assert run.final["answer"] == "Rye."
    assert table.calls == [(FIND, '{"q": "rye"}')]
    assert [request.tools for request in model.requests] == [None, None]
    system, _, reply, observation = model.chats[1]
    assert "Action Input: its arguments" in system["content"]
    assert reply == {"role": "assistant", "content": ROUND}
    assert observation["role"] == "user"
    assert observation["content"].startswith('Observation: {"error": "", "response"')
    assert run.messages[2]["tool_calls"][0]["function"]["name"] == FIND
    # Words and a bad Finish are observations, and the work goes on.
    model = ScriptedModel("just some words", "Action: Finish\nAction Input: {}", END)
    run = play(model, mode="react")
    (unknown,) = run.calls
    assert (unknown["code"], run.ended) == (1, "answered")
    assert "Finish needs return_type" in json.dumps(run.messages)


def test_replies_are_read_as_upstream_reads_them() -> None:
    for text in (ROUND, "words", "Action: a\nAction Input: b\nAction Input: c", "Action: x"):
        thought, (read,) = read_react(text)
        assert thought == text
        # Upstream's expressions: a marker that is missing is found at -1.
        assert read.name == text[text.find("Action: ") + 8 : text.find("\nAction Input: ")]
        assert read.arguments == text[text.find("Action Input: ") + 14 :]


GIVE = '{"return_type": "give_answer", "final_answer": '


@pytest.mark.parametrize(
    ("arguments", "code", "phrase", "final"),
    [
        (GIVE + '{"a": [1]}}', 3, "handed over", '{"a": [1]}'),
        ('{"return_type": "give_answer"}', 2, "needs final_answer", ""),
        ("[]", 2, "needs return_type", ""),
        # Text that is not JSON is searched for the two keys.
        (GIVE + '"say "hi""}', 3, "handed over", 'say "hi""}'),
        ('{"return_type": "give_up_and_restart", ', 4, "given up", ""),
        ('{"a": ' * 100_000 + f"{GIVE[1:]}" + '"deep', 3, "handed over", "deep"),
    ],
    ids=["object", "no answer", "list", "quotes", "cut", "deep"],
)
def test_arguments_of_finish_are_read_as_upstream_reads_them(arguments, code, phrase, final):
    finish = read_finish(arguments, OWN)
    assert (finish.code, finish.answer) == (code, final)
    assert phrase in finish.observation
