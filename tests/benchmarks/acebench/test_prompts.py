"""Prompts: the messages of a generation row, from our own texts and from the official ones."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.acebench import native, prompts
from ace_ray.benchmarks.acebench.benchmark import ACEBench
from ace_ray.benchmarks.acebench.data import loader as data
from ace_ray.benchmarks.acebench.options import GENERATION, LANGUAGES
from ace_ray.benchmarks.acebench.texts import OWN
from ace_ray.errors import UserError
from ace_ray.types import Entry

PLACEHOLDER = re.compile(r"\{(time|profile|function|question)\}")


def entry(category: str = "normal_atom_bool", language: str = "en", **row: Any) -> Entry:
    fields = {"question": "user: hi\n", "function": [{"name": "F"}], "time": "", **row}
    return Entry("acebench", category, language, f"{category}_0", fields, {})


@pytest.mark.parametrize("variant", [*prompts.VARIANTS, "native"])
def test_own_prompts_show_the_whole_row(variant: str) -> None:
    texts = native.prompts() if variant == "native" else prompts.own_prompts(variant)
    for row in data.load(data.MINI, categories=GENERATION):
        system, user = texts.messages(row)
        assert (system["role"], user["role"]) == ("system", "user")
        assert not PLACEHOLDER.search(system["content"] + user["content"])
        assert (str(row.data["function"]) in system["content"]) is (variant != "native")
        assert row.data["question"] in user["content"]
        extra = "profile" if row.category == "normal_preference" else "time"
        assert row.data[extra] in system["content"]
    # Special prompts hold the phrases that the checkers look for, in their order of priority.
    phrases = [
        "There is incorrect value (value) for the parameters (key) in the conversation history.",
        "Missing necessary parameters (key1, key2) for the api (",
        "Due to the limitations of the function, I cannot solve this problem.",
    ]
    for language in LANGUAGES:
        text = texts.messages(entry("special_incomplete", language))[0]["content"]
        offsets = [text.index(phrase) for phrase in phrases]
        assert offsets == sorted(offsets)


def test_braces_in_data_survive_and_are_not_filled_again() -> None:
    row = entry(
        time="{question} {{x}} {0.__class__}",
        function=[{"name": "F", "parameters": {"properties": {}}}],
        question="user: {time} }{ \\1 \\g<1>\n",
    )
    system, user = prompts.own_prompts().messages(row)
    assert "{question} {{x}} {0.__class__}" in system["content"]
    assert "[{'name': 'F', 'parameters': {'properties': {}}}]" in system["content"]
    assert user["content"].endswith("user: {time} }{ \\1 \\g<1>\n")


def written(folder: Path, content: Any) -> Path:
    file = folder / prompts.OFFICIAL_FILE
    file.parent.mkdir(exist_ok=True)
    file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return folder


def test_official_prompts_are_the_users_copy(tmp_path: Path) -> None:
    copy = {name: f"copied: {text}" for name, text in OWN.items()}
    texts = prompts.load_prompts(written(tmp_path, {**copy, "FURTHER_TEXT": "{unused"}))
    assert (texts.source, texts.variant, texts.templates) == ("official", "standard", copy)
    condensed = prompts.load_prompts(tmp_path, "condensed")
    assert (condensed.source, condensed.variant) == ("own", "condensed")
    own_normal = prompts.own_prompts("condensed").messages(entry())[0]
    assert condensed.messages(entry())[0] == own_normal
    special = entry("special_incomplete")
    assert condensed.messages(special) == texts.messages(special)


def test_a_users_file_replaces_texts_and_changes_the_identity(tmp_path: Path) -> None:
    name, text = "SYSTEM_PROMPT_FOR_NORMAL_DATA_EN", "Mine. {time} {function}"
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({name: text}))
    options = {"variant": "minimal", "categories": ["normal"]}
    benchmark = ACEBench.from_options({**options, "prompt_file": str(file)})
    plain = ACEBench.from_options(options)
    assert benchmark.resolved()["prompt_file"] == {name: text}
    assert benchmark.prompt(entry(time="Noon"))[0]["content"] == "Mine. Noon [{'name': 'F'}]"
    assert benchmark.prompt(entry(language="zh")) == plain.prompt(entry(language="zh"))
    differing = {k for k, v in plain.identity().items() if benchmark.identity()[k] != v}
    assert differing == {"prompts", "prompts_sha256"}, "Table 6 compares such runs"
    for content, message in {
        '{"SYSTEM_PROMPT": "x"}': "unknown text 'SYSTEM_PROMPT'",
        json.dumps({name: text + "\ud800"}): "half of a surrogate pair",
        json.dumps({name: "{function}"}): "must have the placeholders {function}, {time} and no",
        "[]": "has no prompt texts",
    }.items():
        file.write_text(content)
        with pytest.raises(UserError, match=re.escape(message)):
            ACEBench.from_options({"prompt_file": str(file)})
    with pytest.raises(UserError, match="no effect with mode: native"):
        ACEBench.from_options({"prompt_file": str(file), "mode": "native"})


def test_a_broken_file_of_prompts_is_named(tmp_path: Path) -> None:
    contents: list[tuple[Any, str]] = [
        ({"USER_PROMPT_ZH": None}, "USER_PROMPT_ZH is missing"),
        ({"USER_PROMPT_EN": "{question} {time}"}, "must have the placeholders {question} and no"),
        ({"SYSTEM_PROMPT_FOR_PREFERENCE_DATA_EN": "{function}"}, "{function}, {profile} and no"),
        ("{not json", "run `ace-ray data import acebench PATH`"),
    ]
    with pytest.raises(UserError, match="no such file; run `ace-ray data import acebench PATH`"):
        prompts.load_prompts(tmp_path)
    for broken, message in contents:
        texts = broken
        if isinstance(broken, dict):
            texts = {name: t for name, t in {**OWN, **broken}.items() if t is not None}
        with pytest.raises(UserError) as error:
            prompts.load_prompts(written(tmp_path, texts))
        assert message in str(error.value)
        assert str(tmp_path / prompts.OFFICIAL_FILE) in str(error.value)
