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


@pytest.mark.parametrize(
    "text",
    [
        "I cannot do that",
        "{}",
        '{"error": "", "response": ""}',
        '{"name": "Messi"}',
        "{" * 60_000,
        '{"response": ' * 4000,
        '{"error": "", "response": "' + "x" * MAX_CHARS + '"}',
        '{"error": "", "response": "cut',
    ],
)
def test_other_texts_are_not_answers(text: str) -> None:
    assert read_answer(text) is None
    assert read_answer(text, loose=True) == (("", "cut") if text.endswith('"cut') else None)


def test_the_form_follows_the_models_name() -> None:
    forms = {
        "stabletoolbench/MirrorAPI": "mirror",
        "stabletoolbench/MirrorAPI-Cache": "mirror_cache",
        "/models/mirrorapi_cache/": "mirror_cache",
        "Qwen/Qwen2.5-7B-Instruct": "own",
    }
    assert {name: form_of(name) for name in forms} == forms


@pytest.mark.parametrize(
    ("form", "name"), [("mirror", "Player Details"), ("mirror_cache", "player_details")]
)
def test_mirrorapi_gets_the_form_it_was_trained_on(form: Form, name: str) -> None:
    chat = messages(form, SYSTEM, API, {"is_from": "it's", "n": None, "toolbench_key": "k"})
    assert [message["role"] for message in chat] == ["system", "user"]
    label, document, blank, request, arguments = chat[1]["content"].split("\n")
    assert (label, blank, request) == ("API doc:", "", "Request:")
    assert arguments == """{'is_from': "it's", 'n': None}"""
    assert list(ast.literal_eval(document).items()) == [
        ("api_name", name),
        ("api_description", "Details of a player."),
        ("required_parameters", API.required),
        ("optional_parameters", API.optional),
        ("tool_description", "All about sports."),
        ("tool_name", "clique"),
        ("tool_category", "News_Media"),
    ]


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


def test_a_good_answer_takes_one_call() -> None:
    model = ScriptedModel(GOOD)
    answered = ask(simulated(model))
    assert (answered.error, answered.response) == ("", {"name": "Messi"})
    assert (answered.source, answered.origin, answered.failure) == ("simulator", "simulator", "")
    assert [request.sampling.seed for request in model.asked] == [42]


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


def test_no_answer_in_all_attempts_is_a_declared_failure() -> None:
    model = ScriptedModel("I am a language model")
    answered = ask(simulated(model))
    assert (answered.error, answered.source, answered.failure) == (FAILED, "simulator", "simulator")
    assert len(model.asked) == ATTEMPTS == simulated(model).identity()["attempts"]


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


def test_the_identity_names_what_moves_an_answer() -> None:
    model = ScriptedModel(GOOD)
    bound = role_of(model, Sampling(temperature=0.3, seed=7), model="m", revision="r")
    found = Simulator(bound, "own", SYSTEM).identity()
    assert (found["model"], found["revision"], found["form"]) == ("m", "r", "own")
    assert (found["temperature"], found["seed"]) == (0.3, 7)
    other = Simulator(bound, "own", SystemText("other", "own")).identity()
    assert found["system"] != other["system"]
    json.dumps(found)


def test_our_own_form_is_asked_with_a_schema_and_mirrorapi_is_not() -> None:
    forms: dict[Form, str] = {"own": json.dumps(SCHEMA), "mirror": "", "mirror_cache": ""}
    for form, wanted in forms.items():
        model = ScriptedModel(GOOD)
        simulator = simulated(model, form)
        assert ask(simulator).response == {"name": "Messi"}
        assert [request.sampling.schema for request in model.asked] == [wanted]
        assert ("schema_sha256" in simulator.identity()) is bool(wanted)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("text", "follows"),
    [
        ('{"error": "", "response": {"text": ["a \\"b\\"\\n", null, 1.5]}}', True),
        ('{"error": "no id", "response": ""}', True),
        ('{"error": "", "response": ""}', False),
        ('{"error": "no id", "response": {}}', False),
    ],
)
def test_what_follows_the_schema_is_an_answer(text: str, follows: bool) -> None:
    xgrammar = pytest.importorskip("xgrammar")
    from xgrammar.testing import _is_grammar_accept_string

    grammar = xgrammar.Grammar.from_json_schema(json.dumps(SCHEMA), any_whitespace=True)
    assert _is_grammar_accept_string(grammar, text) is follows
    if follows:
        assert read_answer(text) is not None
