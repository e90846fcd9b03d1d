"""The ReAct form and Finish: text of any kind becomes calls within bounds."""

from __future__ import annotations

import json
import random

import pytest

from ace_ray.benchmarks.stabletoolbench.episode.reading import read_finish, read_react
from ace_ray.benchmarks.stabletoolbench.prompts import OWN
from tests.benchmarks.stabletoolbench.builders import Table, play
from tests.scripted_model import ScriptedModel

FIND = "find_bread_for_bakery"
ROUND = 'Thought: I look.\nAction: find_bread_for_bakery\nAction Input: {"q": "rye"}'
FINISH = 'Action: Finish\nAction Input: {"return_type": "give_answer", "final_answer": "Rye."}'
END = f"Thought: ok\n{FINISH}"


def test_replies_are_cut_as_upstream_cuts_them() -> None:
    draw = random.Random(0)
    pieces = ["Thought: ", "Action: ", "\nAction Input: ", "x", "\n", "{}", "Action Input: "]
    texts = ["".join(draw.choices(pieces, k=draw.randrange(9))) for _ in range(500)]
    for text in (ROUND, END, "", "words", *texts):
        thought, (call,) = read_react(text)
        assert thought == text
        # Upstream's expressions: a marker that is missing is found at -1.
        assert call.name == text[text.find("Action: ") + 8 : text.find("\nAction Input: ")]
        assert call.arguments == text[text.find("Action Input: ") + 14 :]


def test_an_episode_in_the_react_form() -> None:
    model, table = ScriptedModel(ROUND, END), Table()
    run = play(model, form="react", caller=table)
    assert run.final
    assert run.final["answer"] == "Rye."
    assert table.calls == [(FIND, '{"q": "rye"}')]
    assert [request.tools for request in model.asked] == [None, None]
    system, user, said, seen = model.chats[1]
    assert FIND in system["content"]
    assert "Action Input: its arguments" in system["content"]
    assert (user["role"], said["role"], seen["role"]) == ("user", "assistant", "user")
    assert said["content"] == ROUND
    assert "tool_calls" not in said
    assert seen["content"].startswith('Observation: {"error": "", "response"')
    assert run.messages[2]["tool_calls"][0]["function"]["name"] == FIND


@pytest.mark.parametrize(
    ("arguments", "code", "answer"),
    [
        ('{"return_type": "give_answer", "final_answer": {"a": [1]}}', 3, '{"a": [1]}'),
        ('{"return_type": "give_answer"}', 2, ""),
        ('{"return_type": "give_up_and_restart"}', 4, ""),
        ('{"return_type": "maybe"}', 2, ""),
        ("[]", 2, ""),
        # Text that is not JSON is searched for the two keys.
        ('{"return_type": "give_answer", "final_answer": "say "hi""}', 3, 'say "hi""}'),
        ('{"return_type": "give_up_and_restart", ', 4, ""),
        ('{"a": ' * 100_000 + '"return_type": "give_answer" "final_answer": "deep', 3, "deep"),
    ],
)
def test_arguments_of_finish(arguments: str, code: int, answer: str) -> None:
    found = read_finish(arguments, OWN)
    assert (found.code, found.answer) == (code, answer)
    said = {2: "Finish|return_type", 3: "handed over", 4: "given up"}[code]
    assert any(word in found.observation for word in said.split("|"))


def test_words_and_a_bad_finish_are_observations_and_the_work_goes_on() -> None:
    run = play(
        ScriptedModel("just some words", "Action: Finish\nAction Input: {}", END), form="react"
    )
    (unknown,) = run.calls
    assert (unknown["code"], run.ended) == (1, "answered")
    assert "Finish needs return_type" in json.dumps(run.messages)
    # A search that never answers ends.
    for reply in ("", ROUND, "Action: Finish\nAction Input: {"):
        run = play(ScriptedModel(reply), form="react", method="DFS_woFilter_w3", max_queries=40)
        assert (run.ended, run.query_count) == ("max_queries", 40)
