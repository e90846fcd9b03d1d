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


def test_words_are_a_call_of_an_unknown_function() -> None:
    run = play(ScriptedModel("just some words here", END), form="react")
    assert (run.calls[0]["code"], run.ended) == (1, "answered")


def test_hostile_text_ends_an_episode_in_bounds() -> None:
    draw = random.Random(1)
    pieces = ["Thought: ", "Action: Finish", "\nAction Input: ", '{"return_type": "', "[" * 300]
    pieces += ["give_answer", '"final_answer": "', "\ud800", "\0", "{}", "}", "\n", "9" * 5000]
    texts = ["".join(draw.choices(pieces, k=12)) for _ in range(60)]
    texts += ["Action: " * 20_000, "\nAction Input: " * 20_000, " " * 300_000]
    for text in texts:
        run = play(ScriptedModel(text), form="react", max_steps=6)
        assert run.query_count <= 6


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


def test_a_bad_finish_is_an_observation_and_the_work_goes_on() -> None:
    run = play(ScriptedModel("Action: Finish\nAction Input: {}", END), form="react")
    assert "Finish needs return_type" in json.dumps(run.messages)
    assert (run.ended, run.calls) == ("answered", [])
