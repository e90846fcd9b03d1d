"""Prompts: where their texts come from, and what every form of them holds."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.bfcl import texts
from ace_ray.benchmarks.bfcl.categories import DEFAULT, FORMS, SINGLE_TURN, Form
from ace_ray.benchmarks.bfcl.data.loader import load
from ace_ray.benchmarks.bfcl.data.upstream_package import (
    HINT_SOURCE,
    NATIVE_SOURCE,
    PROMPT_SOURCE,
    UpstreamPackage,
)
from ace_ray.benchmarks.bfcl.functions import documented, with_hints
from ace_ray.benchmarks.bfcl.prompts import Prompts, official, own, with_system
from ace_ray.errors import UserError

MINI = UpstreamPackage.locate("mini")
ENTRIES = {entry.id: entry for entry in load(MINI, SINGLE_TURN)}
USER = {"role": "user", "content": "u"}


def functions_of(entry_id: str) -> list[dict[str, Any]]:
    return list(ENTRIES[entry_id].data["function"])


@pytest.fixture
def made_up_prompts(made_up: Path) -> Prompts:
    return official(UpstreamPackage.locate(str(made_up)))


def test_prompt_from_a_copy_is_upstreams(made_up_prompts: Prompts) -> None:
    shown = json.dumps(with_hints([], "python"), indent=4)
    assert made_up_prompts.source == "official"
    # the text of the task is no template, however it looks
    head = "P.T {braces}.|no tag: [f(a=1...)] .|M.|"
    assert made_up_prompts.system([]) == f"{head}json:\n{shown}\n"
    form = Form("verbose_xml", True, "xml", "markdown", "experimental")
    assert made_up_prompts.system([], form) == "# p.t.|w: <v/> xml types.|m.|e xml:\n\n"
    functions = functions_of("multiple_0")
    assert '"Lists the ferries that leave a harbour on a day. python!"' in (
        made_up_prompts.system(functions)
    )
    twice = made_up_prompts.system(functions, hints=2)
    assert "on a day. python! python!" in twice
    assert "python!" not in made_up_prompts.system(functions, hints=0)
    assert made_up_prompts.texts.agentic == "Answer {'answer': x}."
    assert made_up_prompts.memory("finance", "kv", "{a}") == "f core {a}"
    assert made_up_prompts.memory("student", "rec_sum", "") == "s whole "
    assert made_up_prompts.more_functions(None) == "More."
    assert made_up_prompts.more_functions([{"name": "f"}]) == "[{'name': 'f'}]\nMore."
    assert made_up_prompts.tools(functions, hints=0)[0]["function"]["name"] == "sea_tide"


def test_prompts_travel_and_their_hash_changes_with_any_text(made_up: Path) -> None:
    prompts = official(UpstreamPackage.locate(str(made_up)))
    assert prompts == pickle.loads(pickle.dumps(prompts))
    assert prompts.sha256 != own().sha256
    path = made_up / "bfcl_eval" / NATIVE_SOURCE
    path.write_text(path.read_text().replace("float!", "real!"))
    assert official(UpstreamPackage.locate(str(made_up))).sha256 != prompts.sha256


@pytest.mark.parametrize(
    ("name", "old", "new", "match"),
    [
        (PROMPT_SOURCE, '"More."', "say()", "FUNCTION_FC is no literal text"),
        (PROMPT_SOURCE, '"persona": "P.", ', "", r"\['persona'\] is no literal text"),
        (PROMPT_SOURCE, "{persona}{task}|", "{task}|", "must have the fields .*persona"),
        (PROMPT_SOURCE, "core {memory_content}", "core {memory_content!r}", "plain fields"),
        (PROMPT_SOURCE, "_PLAIN = ", "def", "is no Python source"),
        (HINT_SOURCE, "elif is_js", "elif is_c", "the hints at languages are not where"),
        (HINT_SOURCE, "{value['type']}", "some type", "the hints at types are not"),
        (NATIVE_SOURCE, '" float!"', "note()", "the note on floats is not where it was"),
    ],
)
def test_a_changed_source_is_refused(
    made_up: Path, name: str, old: str, new: str, match: str
) -> None:
    path = made_up / "bfcl_eval" / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(UserError, match=match) as caught:
        official(UpstreamPackage.locate(str(made_up)))
    line = str(caught.value)
    assert line.startswith(str(path))
    assert "use an unmodified copy" in line


def test_sources_are_parsed_and_never_run(made_up: Path, tmp_path: Path) -> None:
    witness = tmp_path / "ran"
    for name in (PROMPT_SOURCE, HINT_SOURCE, NATIVE_SOURCE):
        path = made_up / "bfcl_eval" / name
        path.write_text(f"open({str(witness)!r}, 'w')\n{path.read_text()}")
    official(UpstreamPackage.locate(str(made_up)))
    assert not witness.exists()
    path.write_text(f"X = {'(' * 5000}{')' * 5000}\n")
    with pytest.raises(UserError, match="is no Python source"):
        official(UpstreamPackage.locate(str(made_up)))


def test_each_of_the_26_forms_asks_for_its_own_format() -> None:
    functions = functions_of("simple_python_3")
    prompts = {form: own().system(functions, form) for form in FORMS}
    assert len(set(prompts.values())) == len(FORMS) == 26
    assert DEFAULT in FORMS
    for form, text in prompts.items():
        assert texts.OWN.outputs[form.returned] in text
        assert ("<TOOLCALL>" in text) == form.tagged
        assert ("Each type attribute" in text) == (form.returned in ("verbose_xml", "concise_xml"))
        assert documented(with_hints(functions, "python"), form.documented) in text
        assert ("# What to do\n" in text) == (form.layout == "markdown")
        assert not re.search(r"\{(persona|functions|format|output_format|param_types)\}", text)


def test_system_message_of_an_entry_follows_the_prompt() -> None:
    asked = [{"role": "system", "content": "s"}, USER]
    assert with_system("x", asked) == [{"role": "system", "content": "x\n\ns"}, USER]
    assert asked[0]["content"] == "s"
    assert with_system("x", [USER]) == [{"role": "system", "content": "x"}, USER]
    assert with_system("x", []) == [{"role": "system", "content": "x"}]
    later = [USER, {"role": "system", "content": "s"}]
    assert with_system("x", later) == [{"role": "system", "content": "x"}, *later]
