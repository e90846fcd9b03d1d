"""DFSDT: the next node after a give-up or a limit, and the text that the candidate is shown."""

from __future__ import annotations

import json

from ace_ray.benchmarks.stabletoolbench.episode.run import AgentRun
from ace_ray.errors import PromptTooLong
from ace_ray.types import ToolAnswer
from tests.benchmarks.stabletoolbench.builders import BREAD, GIVE_UP, Table, answer, play
from tests.scripted_model import ScriptedModel, say

FIND = "find_bread_for_bakery"
DFS = "DFS_woFilter_w2"


def call(number: int) -> ToolAnswer:
    return say("", (FIND, {"q": number}))


def tree(run: AgentRun) -> list[tuple[int | None, str]]:
    """(parent, description) of each action input."""
    (attempt,) = run.tries
    nodes = attempt["nodes"]
    return [
        (nodes[node["parent"]]["parent"], node["description"])
        for node in nodes[1:]
        if node["type"] == "Action Input"
    ]


def test_a_give_up_goes_two_rounds_back() -> None:
    script = [call(1), call(2), say("", GIVE_UP), say("", answer("x")), call(9)]
    model = ScriptedModel(*script)
    run = play(model, method=DFS)
    # 1 -> 2 -> give up; back over 2, on at 1
    assert tree(run) == [
        (0, '{"q": 1}'),
        (2, '{"q": 2}'),
        (4, json.dumps(GIVE_UP[1])),
        (2, json.dumps(answer("x")[1])),
    ]
    assert (run.ended, run.valid, run.query_count) == ("answered", True, 4)
    assert run.final
    assert run.final["answer"] == "x"
    assert [message["role"] for message in run.messages] == [
        *("system", "user", "assistant", "tool", "assistant", "tool")
    ], "the abandoned branch and the diversity message are no part of it"
    # The candidate is shown what it did here.
    assert [message["role"] for message in model.chats[3]] == [
        *("system", "user", "assistant", "tool", "user")
    ]
    said = model.chats[3][-1]["content"]
    assert '"arguments": "{\\"q\\": 2}"' in said
    assert f'"name": "{FIND}"' in said
    assert '"function_output": ' in said
    assert "The observation that had led you here: " in said
    assert '{\\"q\\": 1}' in said, "that of the first call"
    # The run is stored whole.
    stored = json.loads(json.dumps(run.as_json()))
    assert len(stored["tries"][0]["nodes"]) == 9
    assert [one["node"] for one in stored["calls"]] == [2, 4]
    assert BREAD.data["apis"][0]["api"] == stored["calls"][0]["api"]


def test_the_depth_goes_one_round_back() -> None:
    model = ScriptedModel(*[call(number) for number in range(20)])
    run = play(model, method=DFS, max_steps=4)
    assert run.ended == "exhausted"
    assert tree(run) == [
        (0, '{"q": 0}'),
        (2, '{"q": 1}'),
        (2, '{"q": 2}'),
        (0, '{"q": 3}'),
        (8, '{"q": 4}'),
        (8, '{"q": 5}'),
    ]
    assert (run.valid, run.final) == (False, None)
    assert len({one.sampling.seed for one in model.asked}) == 2, "a second child has another seed"
    wide = ScriptedModel(*[call(number) for number in range(20)])
    run = play(wide, method="DFS_woFilter_w3", max_steps=2)
    assert [parent for parent, _ in tree(run)] == [0, 0, 0]
    assert wide.chats[2][-1]["content"].count('"arguments"') == 2


def test_queries_are_limited() -> None:
    table = Table()
    run = play(ScriptedModel(call(1)), method=DFS, max_queries=3, caller=table)
    assert (run.ended, run.query_count) == ("max_queries", 3)
    assert len(table.calls) == 2, "upstream throws the last reply away"


def test_without_an_answer_a_give_up_counts_the_same_one_each_time() -> None:
    script = [call(1), call(2), say("", GIVE_UP), call(3), say("no", GIVE_UP)]

    run, again = (play(ScriptedModel(*script, say("", GIVE_UP)), method=DFS) for _ in range(2))
    assert (run.valid, run.ended) == (True, "exhausted")
    raw = json.dumps(GIVE_UP[1])
    assert run.final == {"return_type": "give_up_and_restart", "answer": "", "raw": raw}
    assert run.messages[-1]["name"] == "Finish"
    assert again == run


def test_a_full_context_is_given_up_and_others_go_on() -> None:
    full = PromptTooLong("too long")
    model = ScriptedModel(call(1), call(2), call(3), full, call(4), say("", answer("x")))
    run = play(model, method=DFS)
    assert run.ended == "answered"
    full_at = [n for n in run.tries[0]["nodes"] if n.get("context_full")]
    assert [node["description"] for node in full_at] == ['{"q": 3}']
    # back over 3 and on at 2's other child
    assert tree(run)[3] == (4, '{"q": 4}')
