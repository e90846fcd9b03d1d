"""An API played by a model: its prompts, and the reading of its answers."""

from __future__ import annotations

import ast
import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.stabletoolbench.apis.simulator import (
    ATTEMPTS,
    FAILED,
    MAX_CHARS,
    OWN_SYSTEM,
    SCHEMA,
    Form,
    Simulator,
    SystemText,
    form_of,
    messages,
    read_answer,
    system_text,
)
from ace_ray.errors import PromptRefused, PromptTooLong, UserError
from ace_ray.types import Sampling
from tests.benchmarks.stabletoolbench.builders import API, role_of
from tests.scripted_model import ScriptedModel

GOOD = '{"error": "", "response": {"name": "Messi"}}'
SYSTEM = SystemText("you are a server", "own")


def simulated(
    model: ScriptedModel, form: Form = "own", sampling: Sampling | None = None
) -> Simulator:
    return Simulator(role_of(model, sampling), form, SYSTEM)


def ask(simulator: Simulator, *examples: tuple[str, str]) -> Any:
    return asyncio.run(simulator.answer(API, {"player_id": "10"}, examples))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (GOOD, ("", {"name": "Messi"})),
        (f"Sure!\n```\n{GOOD}```\nAnything else?", ("", {"name": "Messi"})),
        (f"Here it is: {GOOD} I hope it helps", ("", {"name": "Messi"})),
        ('{"error": "bad id", "response": ""}', ("bad id", "")),
        ('{"response": 0}', ("", 0)),
        ('{"error": {"code": 4}}', ('{"code": 4}', "")),
        ('{"error": "", "response": NaN}', ("", "NaN")),
        ('{"error": "", "response": ' + "[" * 500 + "]" * 500 + "}", None),
    ],
)
def test_answers_are_read_with_tolerance(text: str, expected: Any) -> None:
    assert read_answer(text) == expected


def test_other_texts_are_not_answers() -> None:
    long = '{"error": "", "response": "' + "x" * MAX_CHARS + '"}'
    empty = '{"error": "", "response": ""}'
    for text in ("I cannot do that", "{}", empty, '{"name": "Messi"}', "{" * 60_000, long):
        assert read_answer(text) is read_answer(text, loose=True) is None
    cut = '{"error": "", "response": "cut'
    assert (read_answer(cut), read_answer(cut, loose=True)) == (None, ("", "cut"))


@pytest.mark.parametrize(
    ("form", "name"), [("mirror", "Player Details"), ("mirror_cache", "player_details")]
)
def test_mirrorapi_gets_the_form_it_was_trained_on(form: Form, name: str) -> None:
    chat = messages(form, SYSTEM, API, {"is_from": "it's", "n": None, "toolbench_key": "k"})
    assert [message["role"] for message in chat] == ["system", "user"]
    label, document, blank, request, arguments = chat[1]["content"].split("\n")
    assert (label, blank, request) == ("API doc:", "", "Request:")
    assert arguments == """{'is_from': "it's", 'n': None}"""
    texts = {"api_name": name, "api_description": "Details of a player."}
    parameters = {"required_parameters": API.required, "optional_parameters": API.optional}
    tool = {"tool_description": "All about sports.", "tool_name": "clique"}
    expected = {**texts, **parameters, **tool, "tool_category": "News_Media"}
    assert list(ast.literal_eval(document).items()) == list(expected.items())


def test_the_own_form_is_bounded_and_shows_examples() -> None:
    parameter = {"name": "p" * 9000, "type": "STRING", "description": "d" * 9000, "default": "x"}
    long = {"api_description": "d" * 50_000, "tool_description": "t" * 50_000}
    wordy = replace(API, **long, optional=[parameter] * 500, template="s" * 50_000)
    chat = messages("own", SYSTEM, wordy, {"a": 1}, [("{'a': 2}", "e" * 9000)])
    assert len(chat[1]["content"]) < 100_000
    assert "{'a': 2}" in chat[1]["content"]
    assert "Earlier" not in messages("own", SYSTEM, API, {})[1]["content"]


def test_mirrorapis_text_is_read_from_a_checkout_and_not_run(tmp_path: Path) -> None:
    assert system_text("mirror", None) == SystemText(OWN_SYSTEM, "own")
    assert system_text("own", str(tmp_path)) == SystemText(OWN_SYSTEM, "own")
    with pytest.raises(UserError, match="system_prompts"):
        system_text("mirror", str(tmp_path))
    ran, path = tmp_path / "ran", tmp_path / "server" / "system_prompts.py"
    path.parent.mkdir()
    path.write_text(f'import pathlib\npathlib.Path({str(ran)!r}).touch()\nSFT_SYSTEM = "t"')
    assert system_text("mirror", str(tmp_path)) == SystemText("t", "upstream")
    assert not ran.exists()
    for source in ("SFT_SYSTEM = f'{1}'", "x = 1", "def (", "(" * 5000):
        path.write_text(source)
        with pytest.raises(UserError, match="system_prompts"):
            system_text("mirror_cache", str(tmp_path))


@pytest.mark.parametrize(
    ("name", "form", "schema"),
    [
        ("stabletoolbench/MirrorAPI", "mirror", ""),
        ("stabletoolbench/MirrorAPI-Cache", "mirror_cache", ""),
        ("/models/mirrorapi_cache/", "mirror_cache", ""),
        ("Qwen/Qwen2.5-7B-Instruct", "own", json.dumps(SCHEMA)),
    ],
)
def test_the_form_and_the_schema_follow_the_models_name(name: str, form: Form, schema: str) -> None:
    assert form_of(name) == form
    model = ScriptedModel(GOOD)
    bound = role_of(model, Sampling(temperature=0.3, seed=7), model=name, revision="r")
    simulator = Simulator(bound, form, SYSTEM)
    assert ask(simulator).response == {"name": "Messi"}
    assert [request.sampling.schema for request in model.asked] == [schema]
    found = simulator.identity()
    assert (found["model"], found["revision"], found["form"]) == (name, "r", form)
    assert (found["temperature"], found["seed"]) == (0.3, 7)
    assert ("schema_sha256" in found) is bool(schema)
    other = Simulator(bound, form, SystemText("other", "own"))
    assert other.simulator_id != simulator.simulator_id


@pytest.mark.parametrize(
    ("sampling", "drawn"),
    [
        (None, [(42, 0.1), (43, 0.1), (44, 0.1)]),
        (Sampling(), [(0, 0.0), (1, 0.5), (2, 0.5)]),  # a greedy retry would repeat the answer
    ],
)
def test_retries_draw_with_other_seeds(sampling: Sampling | None, drawn: Any) -> None:
    model = ScriptedModel("no", "{", GOOD)
    simulator = simulated(model, sampling=sampling)
    assert ask(simulator).response == {"name": "Messi"}
    assert [(one.sampling.seed, one.sampling.temperature) for one in model.asked] == drawn
    assert simulator.identity()["retry_temperature"] == drawn[1][1]
    failed = ask(simulated(silent := ScriptedModel("I am a language model"), sampling=sampling))
    assert (failed.error, failed.source, failed.failure) == (FAILED, "simulator", "simulator")
    assert len(silent.asked) == ATTEMPTS == simulator.identity()["attempts"]


@pytest.mark.parametrize("error", [PromptTooLong("x"), PromptRefused("x")])
def test_a_refused_prompt_is_tried_without_examples(error: Exception) -> None:
    example = ("{'a': 1}", "b")
    model = ScriptedModel(error, GOOD)
    assert ask(simulated(model), example).failure == ""
    assert ["Earlier" in chat[1]["content"] for chat in model.chats] == [True, False]
    alone = ScriptedModel(error)
    assert ask(simulated(alone)).failure == "prompt"
    assert len(alone.asked) == 1
    for replies, failure in [(("no", "no", error), "prompt"), ((error, "no"), "simulator")]:
        assert ask(simulated(ScriptedModel(*replies)), example).failure == failure
