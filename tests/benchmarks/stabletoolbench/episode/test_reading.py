"""The ReAct form and Finish: text of any kind becomes calls within bounds."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest

from ace_ray.benchmarks.stabletoolbench.episode.reading import read_finish, read_react
from ace_ray.benchmarks.stabletoolbench.episode.run import AgentRun
from ace_ray.benchmarks.stabletoolbench.prompts import OWN
from tests.benchmarks.stabletoolbench.scripted_agent import Table
from tests.scripted_model import ScriptedModel

Played = Callable[..., AgentRun]
FIND = "find_bread_for_bakery"
ROUND = 'Thought: I look.\nAction: find_bread_for_bakery\nAction Input: {"q": "rye"}'
END = (
    "Thought: ok\nAction: Finish\n"
    'Action Input: {"return_type": "give_answer", "final_answer": "Rye."}'
)


def _upstream(text: str) -> tuple[str, str]:
    action = text[text.find("Action: ") + 8 : text.find("\nAction Input: ")]
    return action, text[text.find("Action Input: ") + 14 :]


def test_official_cuts_as_upstream_does() -> None:
    draw = random.Random(0)
    pieces = ["Thought: ", "Action: ", "\nAction Input: ", "x", "\n", "{}", "Action Input: "]
    texts = [ROUND, END, "", "words"]
    texts += ["".join(draw.choices(pieces, k=draw.randrange(9))) for _ in range(500)]
    for text in texts:
        thought, (call,) = read_react(text)
        assert thought == text
        assert (call.name, call.arguments) == _upstream(text)


def test_an_episode(play: Played) -> None:
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


def test_official_takes_words_for_an_unknown_function(play: Played) -> None:
    run = play(ScriptedModel("just some words here", END), form="react")
    assert run.calls[0]["code"] == 1
    assert run.ended == "answered"


def test_hostile_text_is_survived(play: Played) -> None:
    draw = random.Random(1)
    pieces = ["Thought: ", "Action: Finish", "\nAction Input: ", '{"return_type": "', "[" * 300]
    pieces += ["give_answer", '"final_answer": "', "\ud800", "\0", "{}", "}", "\n", "9" * 5000]
    texts = ["".join(draw.choices(pieces, k=12)) for _ in range(60)]
    texts += ["Action: " * 20_000, "\nAction Input: " * 20_000, "`" * 200_000, " " * 300_000]
    for text in texts:
        run = play(ScriptedModel(text), form="react", max_steps=6)
        assert run.query_count <= 6


FINISHES = [
    ('{"return_type": "give_answer", "final_answer": "Rye."}', 3, "Rye."),
    ('{"return_type": "give_answer", "final_answer": 5}', 3, "5"),
    ('{"return_type": "give_answer", "final_answer": {"a": [1]}}', 3, '{"a": [1]}'),
    ('{"return_type": "give_answer"}', 2, ""),
    ('{"return_type": "give_up_and_restart"}', 4, ""),
    ('{"return_type": "maybe"}', 2, ""),
    ("[]", 2, ""),
    ("", 2, ""),
    # no JSON: searched for the two keys
    ('{"return_type": "give_answer", "final_answer": "cut o', 3, "cut o"),
    ('{"return_type": "give_answer", "final_answer": "say "hi""}', 3, 'say "hi""}'),
    ('{"return_type": "give_up_and_restart", ', 4, ""),
    ('{"return_type":"give_answer", "final_answer": "cut', 2, ""),
    ('{"a": ' * 100_000 + '"return_type": "give_answer" "final_answer": "deep', 3, "deep"),
    ('{"return_type": "give_answer", "final_answer": ' + "9" * 5000 + "}", 2, ""),
]


@pytest.mark.parametrize(("arguments", "code", "answer"), FINISHES)
def test_finish(arguments: str, code: int, answer: str) -> None:
    found = read_finish(arguments, OWN)
    assert (found.code, found.answer) == (code, answer)
    said = {2: "Finish|return_type", 3: "handed over", 4: "given up"}[code]
    assert any(word in found.observation for word in said.split("|"))


def test_a_bad_finish_is_an_observation_and_the_work_goes_on(play: Played) -> None:
    bad = "Action: Finish\nAction Input: {}"
    run = play(ScriptedModel(bad, END), form="react")
    assert "Finish needs return_type" in json.dumps(run.messages)
    assert run.ended == "answered"
    assert run.calls == [], "Finish is no API"
