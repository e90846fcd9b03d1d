"""Prompts and tools: the source of their texts, their forms, and functions as a model sees them."""

import re
from pathlib import Path

import pytest

from ace_ray.benchmarks.bfcl.categories import DEFAULT, FORMS, SINGLE_TURN
from ace_ray.benchmarks.bfcl.data.loader import load
from ace_ray.benchmarks.bfcl.data.upstream_package import (
    HINT_SOURCE,
    NATIVE_SOURCE,
    PROMPT_SOURCE,
    UpstreamPackage,
)
from ace_ray.benchmarks.bfcl.functions import add_hints, render_docs
from ace_ray.benchmarks.bfcl.prompts import Prompts, official_prompts, own_prompts
from ace_ray.benchmarks.bfcl.texts import OWN
from ace_ray.errors import UserError
from tests.benchmarks.bfcl.synthetic_bfcl import COPY, bfcl, entry_of


def prompts_of(folder: Path) -> Prompts:
    return official_prompts(UpstreamPackage.locate(str(folder)))


def test_other_texts_have_another_hash(made_up: Path) -> None:
    prompts = prompts_of(made_up)
    path = made_up / "bfcl_eval" / NATIVE_SOURCE
    path.write_text(path.read_text().replace("a float type", "a real type"))
    assert len({prompts.sha256, prompts_of(made_up).sha256, own_prompts().sha256}) == 3


@pytest.mark.parametrize(
    ("name", "old", "new", "match"),
    [
        (PROMPT_SOURCE, "FUNCTION_FC = (", "FUNCTION_FC = str(", "FUNCTION_FC is not a string"),
        (PROMPT_SOURCE, "{persona}{task}", "{task}", "must have the fields .*persona"),
        (HINT_SOURCE, "elif is_js(", "elif is_c(", "the hints about languages are not in"),
        (HINT_SOURCE, "{value['type']}", "some type", "the hints about types do not"),
        (NATIVE_SOURCE, '+= " This', '+= note() + " This', "the note on floats is not in the exp"),
    ],
    ids=["call", "missing field", "languages", "types", "floats"],
)
def test_a_changed_source_is_refused(made_up, name, old, new, match) -> None:
    path = made_up / "bfcl_eval" / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(UserError, match=match) as caught:
        prompts_of(made_up)
    line = str(caught.value)
    assert line.startswith(str(path))
    assert "use an unmodified copy" in line


def test_sources_are_parsed_and_never_run(made_up: Path, tmp_path: Path) -> None:
    witness = tmp_path / "ran"
    for name in (PROMPT_SOURCE, HINT_SOURCE, NATIVE_SOURCE):
        path = made_up / "bfcl_eval" / name
        path.write_text(f"open({str(witness)!r}, 'w')\n{path.read_text()}")
    prompts_of(made_up)
    assert not witness.exists()
    path.write_text(f"X = {'(' * 5000}{')' * 5000}\n")
    with pytest.raises(UserError, match="is not Python source"):
        prompts_of(made_up)


def test_each_of_the_26_forms_asks_for_its_own_format() -> None:
    (entry,) = (entry for entry in load(COPY, SINGLE_TURN) if entry.id == "simple_python_3")
    functions = entry.data["function"]
    prompts = {form: own_prompts().system(functions, form) for form in FORMS}
    assert len(set(prompts.values())) == len(FORMS) == 26
    assert DEFAULT in FORMS
    for form, text in prompts.items():
        assert OWN.outputs[form.returned] in text
        assert ("<TOOLCALL>" in text) == form.tagged
        assert ("Each type attribute" in text) == (form.returned in ("verbose_xml", "concise_xml"))
        assert render_docs(add_hints(functions, "python"), form.documented) in text
        assert ("# What to do\n" in text) == (form.layout == "markdown")
        assert not re.search(r"\{(persona|functions|format|output_format|param_types)\}", text)


def test_only_agentic_entries_are_told_the_format_of_answers() -> None:
    for category in ("multi_turn_base", "memory_kv"):
        benchmark = bfcl(category)
        text = benchmark.prompt(entry_of(benchmark, category))[0]["content"]
        assert (OWN.agentic in text) == (category == "memory_kv")
