"""Prompts: where their texts come from, and what every form of them holds."""

from __future__ import annotations

import ast
import dataclasses
import json
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.bfcl import texts
from ace_ray.benchmarks.bfcl.categories import DEFAULT, FORMS, SINGLE_TURN, Form
from ace_ray.benchmarks.bfcl.data.loader import function_docs, load
from ace_ray.benchmarks.bfcl.data.upstream_package import (
    HINT_SOURCE,
    NATIVE_SOURCE,
    PROMPT_SOURCE,
    UpstreamPackage,
)
from ace_ray.benchmarks.bfcl.functions import documented, offered, with_hints
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


def test_a_prompt_from_a_copy_is_put_together_as_upstream_does(made_up_prompts: Prompts) -> None:
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


def test_prompts_travel_and_say_when_they_change(made_up: Path) -> None:
    prompts = official(UpstreamPackage.locate(str(made_up)))
    assert prompts == pickle.loads(pickle.dumps(prompts))
    assert prompts.sha256 != own().sha256
    path = made_up / "bfcl_eval" / NATIVE_SOURCE
    path.write_text(path.read_text().replace("float!", "real!"))
    assert official(UpstreamPackage.locate(str(made_up))).sha256 != prompts.sha256


BROKEN = [
    (PROMPT_SOURCE, '"More."', "say()", "FUNCTION_FC is no literal text"),
    (PROMPT_SOURCE, '"persona": "P.", ', "", r"\['persona'\] is no literal text"),
    (PROMPT_SOURCE, "{persona}{task}|", "{task}|", "must have the fields .*persona"),
    (PROMPT_SOURCE, "core {memory_content}", "core {memory_content!r}", "plain fields"),
    (PROMPT_SOURCE, "core {memory_content}", "core {memory_content.x}", "plain fields"),
    (PROMPT_SOURCE, "core {memory_content}", "core {", "is no template"),
    (PROMPT_SOURCE, '"notetaker": "n",', "", r"\['notetaker'\] is no literal text"),
    (PROMPT_SOURCE, "OUTPUT_FORMAT_MAPPING = {", "X = {", r"OUTPUT_FORMAT_MAPPING\[.*is no"),
    (PROMPT_SOURCE, "_PLAIN = ", "def", "is no Python source"),
    (HINT_SOURCE, "elif is_js", "elif is_c", "the hints at languages are not where"),
    (HINT_SOURCE, "def _get_language", "def get_language", "has no function _get_language"),
    (HINT_SOURCE, "{value['type']}", "some type", "the hints at types are not"),
    (NATIVE_SOURCE, '" float!"', "note()", "the note on floats is not where it was"),
]


@pytest.mark.parametrize(("name", "old", "new", "match"), BROKEN)
def test_a_changed_source_is_named(
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


def test_sources_are_never_run(made_up: Path, tmp_path: Path) -> None:
    witness = tmp_path / "ran"
    for name in (PROMPT_SOURCE, HINT_SOURCE, NATIVE_SOURCE):
        path = made_up / "bfcl_eval" / name
        path.write_text(f"open({str(witness)!r}, 'w')\n{path.read_text()}")
    official(UpstreamPackage.locate(str(made_up)))
    assert not witness.exists()


def test_a_source_nested_without_end_is_refused(made_up: Path) -> None:
    path = made_up / "bfcl_eval" / PROMPT_SOURCE
    path.write_text(f"X = {'(' * 5000}{')' * 5000}\n")
    with pytest.raises(UserError, match="is no Python source"):
        official(UpstreamPackage.locate(str(made_up)))


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_every_form_of_our_own_asks_for_its_own_format(form: Form) -> None:
    functions = functions_of("simple_python_3")
    text = own().system(functions, form)
    assert texts.OWN.outputs[form.returned] in text
    assert ("<TOOLCALL>" in text) == form.tagged
    assert ("Each type attribute" in text) == (form.returned in ("verbose_xml", "concise_xml"))
    assert documented(with_hints(functions, "python"), form.documented) in text
    assert ("# What to do\n" in text) == (form.layout == "markdown")
    assert not re.search(r"\{(persona|functions|format|output_format|param_types)\}", text)


def test_our_forms_are_all_different() -> None:
    functions = functions_of("simple_python_3")
    assert len({own().system(functions, form) for form in FORMS}) == len(FORMS) == 26


def sentences(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        for sentence in re.split(r"[.\n;:{}]", value):
            words = " ".join(re.findall(r"[a-z_]+", sentence.lower()))
            if words.count(" ") >= 3:
                yield words
    elif isinstance(value, dict):
        for inner in value.values():
            yield from sentences(inner)


@pytest.mark.nightly
def test_no_sentence_of_ours_is_upstreams(bfcl_copy: UpstreamPackage) -> None:
    theirs = dataclasses.asdict(official(bfcl_copy).texts)
    ours = dataclasses.asdict(texts.OWN)
    del theirs["outputs"], ours["outputs"], theirs["layouts"], ours["layouts"]  # formats, no prose
    assert set(sentences(theirs))
    assert not set(sentences(theirs)) & set(sentences(ours))
    docs = {name: str(function_docs(bfcl_copy)[name]) for name in ("MemoryAPI_kv", "WebSearchAPI")}
    mine = {name: str(function_docs(MINI)[name]) for name in docs}
    assert not {s for text in docs.values() for s in sentences(text.replace("'", "."))} & {
        s for text in mine.values() for s in sentences(text.replace("'", "."))
    }


def test_a_system_message_that_is_there_stays_behind_ours() -> None:
    asked = [{"role": "system", "content": "s"}, USER]
    assert with_system("x", asked) == [{"role": "system", "content": "x\n\ns"}, USER]
    assert asked[0]["content"] == "s"
    assert with_system("x", [USER]) == [{"role": "system", "content": "x"}, USER]
    assert with_system("x", []) == [{"role": "system", "content": "x"}]
    later = [USER, {"role": "system", "content": "s"}]
    assert with_system("x", later) == [{"role": "system", "content": "x"}, *later]


def test_the_documents_of_functions() -> None:
    (function,) = functions_of("simple_python_3")
    xml = documented([function], "xml")
    assert xml.startswith(
        '<function name="huts.reserve">\n  <desc>Reserves beds in a mountain hut.'
    )
    assert '    <param name="guests" type="array[dict]" required="true">\n' in xml
    # inside a dictionary without a list of required entries all are
    assert (
        '        <param name="day" type="string" required="true">\n'
        "          <desc>Day of the week.</desc>\n        </param>\n"
    ) in xml
    python = documented([function, function], "python")
    assert python.startswith('# Function: huts.reserve\n    """\n    Reserves beds')
    assert "        guests (list[dict]): Who sleeps there.\n" in python
    assert "            hour (int): Hour of the day, 0 to 23.\n" in python
    assert python.count("\n\n\n") == 3
    (walk,) = functions_of("simple_python_2")
    choice = "How fast one walks. Enum values: ['slow', 'normal', 'fast']."
    assert f"pace (str, default='normal'): {choice}\n" in documented([walk], "python")
    assert (
        f'<param name="pace" type="string" required="false" default="\'normal\'">\n'
        f"      <desc>{choice}</desc>"
    ) in documented([walk], "xml")


def test_types_of_java_and_javascript_move_into_the_descriptions() -> None:
    hints = texts.OWN_HINTS
    (function,) = functions_of("simple_java_2")
    before = json.dumps(function)
    (shown,) = with_hints([function], "java")
    assert json.dumps(function) == before
    parcels = shown["parameters"]["properties"]["parcels"]
    assert list(parcels) == ["type", "description"]
    assert parcels["type"] == "string"
    assert "type ArrayList" in parcels["description"]
    assert parcels["description"].endswith(" type String.")
    (function,) = functions_of("simple_javascript_1")
    (shown,) = with_hints([function], "javascript")
    properties = shown["parameters"]["properties"]
    assert properties["table"]["description"].endswith(hints.any["javascript"])
    assert "items" not in properties["rows"]
    nested = {"type": "dict", "description": "d", "properties": {"a": {"type": "integer"}}}
    function = {"name": "f", "description": "", "parameters": {"properties": {"x": nested}}}
    (shown,) = with_hints([function], "javascript")
    x = shown["parameters"]["properties"]["x"]
    assert "properties" not in x
    assert x["description"].endswith('{"a": {"type": "integer"}}')
    (shown,) = with_hints([function], "java")
    assert "properties" in shown["parameters"]["properties"]["x"]


def test_held_out_functions_come_later() -> None:
    docs = function_docs(MINI)
    functions, later = offered(docs, ["Bakery"], {"2": ["total", "list_orders"], "3": ["no"]})
    names = [function["name"] for function in functions]
    assert names == ["add_order", "cancel_order", "set_price", "get_price", "close_day"]
    assert [one["name"] for one in later["2"]] == ["total", "list_orders"]
    assert later["3"] == []
    assert len(docs["Bakery"]) == 7
    text = own().more_functions(later["2"])
    shown, _, said = text.rpartition("\n")
    assert ast.literal_eval(shown) == later["2"]
    assert said == own().more_functions(None)


def test_the_default_form_is_one_of_the_26() -> None:
    assert DEFAULT in FORMS
