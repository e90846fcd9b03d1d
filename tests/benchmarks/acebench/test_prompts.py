"""Prompts: what a generation row becomes, from our own texts and from the official ones."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from ace_ray.benchmarks.acebench.categories import GENERATION, LANGUAGES

from ace_ray.benchmarks.acebench import prompts
from ace_ray.benchmarks.acebench.data import loader as data
from ace_ray.benchmarks.acebench.texts import OWN
from ace_ray.errors import UserError
from ace_ray.types import Entry

ROOT = Path(__file__).resolve().parents[3]
SHARED = Path(os.environ.get("ACE_RAY_SHARED", ROOT.parent / "shared"))
OFFICIAL = SHARED / "data" / "acebench"
PLACEHOLDER = re.compile(r"\{(time|profile|function|question)\}")

needs_official = pytest.mark.skipif(
    not (OFFICIAL / prompts.OFFICIAL_FILE).is_file(),
    reason="no official data: set ACE_RAY_SHARED to a folder with data/acebench",
)


def entry(category: str = "normal_atom_bool", language: str = "en", **row: Any) -> Entry:
    shown = {"question": "user: hi\n", "function": [{"name": "F"}], "time": "", **row}
    return Entry("acebench", category, language, f"{category}_0", shown, {})


@pytest.fixture(scope="module")
def rows() -> list[Entry]:
    return data.load(data.MINI, categories=GENERATION)


@pytest.mark.parametrize("variant", prompts.VARIANTS)
def test_own_prompts_show_the_whole_row(rows: list[Entry], variant: str) -> None:
    for row in rows:
        system, user = prompts.own(variant).messages(row)
        assert (system["role"], user["role"]) == ("system", "user")
        assert not PLACEHOLDER.search(system["content"] + user["content"])
        assert str(row.data["function"]) in system["content"]
        assert row.data["question"] in user["content"]
        extra = "profile" if row.category == "normal_preference" else "time"
        assert row.data[extra] in system["content"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_rows_of_a_language_and_kind_share_the_instructions(language: str) -> None:
    own = prompts.own()
    for category in ("normal_atom_bool", "normal_preference", "special_incomplete"):
        a = own.messages(entry(category, language, profile="p", time="t"))[0]["content"]
        b = own.messages(entry(category, language, profile="q", time="u"))[0]["content"]
        same = [x == y for x, y in zip(a, b, strict=True)]
        shared = a[: same.index(False)]
        assert len(shared) > 0.8 * len(a)
        assert "[ApiName()]" in shared or category.startswith("special")


@pytest.mark.parametrize("language", LANGUAGES)
def test_special_prompt_holds_the_phrases_that_the_checkers_look_for(language: str) -> None:
    text = prompts.own().messages(entry("special_incomplete", language))[0]["content"]
    phrases = [
        "There is incorrect value (value) for the parameters (key) in the conversation history.",
        "Missing necessary parameters (key1, key2) for the api (ApiName)",
        "Due to the limitations of the function, I cannot solve this problem.",
    ]
    places = [text.index(phrase) for phrase in phrases]
    assert places == sorted(places), "the messages stand in their order of priority"


def test_braces_in_data_survive_and_are_not_filled_again() -> None:
    row = entry(
        time="{question} {{x}} {0.__class__}",
        function=[{"name": "F", "parameters": {"properties": {}}}],
        question="user: {time} }{ \\1 \\g<1>\n",
    )
    system, user = prompts.own().messages(row)
    assert "{question} {{x}} {0.__class__}" in system["content"]
    assert "[{'name': 'F', 'parameters': {'properties': {}}}]" in system["content"]
    assert user["content"].endswith("user: {time} }{ \\1 \\g<1>\n")


@pytest.mark.parametrize("template", ["{{time}} {time}", "{{{time}}}", "a}}{{b", "{time}{time}"])
def test_fill_equals_str_format(template: str) -> None:
    assert prompts.fill(template, {"time": "{now}"}) == template.format(time="{now}")


def test_variants_change_the_normal_prompt_only() -> None:
    standard, condensed, minimal = (prompts.own(variant) for variant in prompts.VARIANTS)
    assert len({standard.sha256, condensed.sha256, minimal.sha256}) == 3
    for language in LANGUAGES:
        lengths = [
            len(texts.messages(entry(language=language))[0]["content"])
            for texts in (standard, condensed, minimal)
        ]
        assert lengths == sorted(lengths, reverse=True)
        for category in ("normal_preference", "special_irrelevant"):
            other = entry(category, language, profile="p")
            assert standard.messages(other) == minimal.messages(other)


def written(folder: Path, content: Any) -> Path:
    file = folder / prompts.OFFICIAL_FILE
    file.parent.mkdir(exist_ok=True)
    file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return folder


def test_official_reads_the_users_copy(tmp_path: Path) -> None:
    copy = {name: f"copied: {text}" for name, text in OWN.items()}
    texts = prompts.official(written(tmp_path, {**copy, "FURTHER_TEXT": "{unused"}))
    assert (texts.source, texts.variant, texts.templates) == ("official", "standard", copy)

    condensed = prompts.official(tmp_path, "condensed")
    assert (condensed.source, condensed.variant) == ("own", "condensed")
    own_normal = prompts.own("condensed").messages(entry())[0]
    assert condensed.messages(entry())[0] == own_normal
    special = entry("special_incomplete")
    assert condensed.messages(special) == texts.messages(special)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"USER_PROMPT_ZH": None}, "USER_PROMPT_ZH is missing"),
        ({"USER_PROMPT_EN": 5}, "USER_PROMPT_EN is not a text"),
        ({"USER_PROMPT_EN": "{question.data}"}, "neither doubled nor part of a known placeholder"),
        ({"USER_PROMPT_EN": "{question!r}"}, "neither doubled nor part of a known placeholder"),
        ({"USER_PROMPT_EN": "{question} {time}"}, "must hold the placeholders {question} and no"),
        ({"SYSTEM_PROMPT_FOR_PREFERENCE_DATA_EN": "{function}"}, "{function}, {profile} and no"),
    ],
)
def test_official_names_the_file_and_the_text_at_fault(
    tmp_path: Path, broken: dict[str, Any], message: str
) -> None:
    texts = {name: text for name, text in {**OWN, **broken}.items() if text is not None}
    with pytest.raises(UserError) as error:
        prompts.official(written(tmp_path, texts))
    assert message in str(error.value)
    assert str(tmp_path / prompts.OFFICIAL_FILE) in str(error.value)


@pytest.mark.parametrize("content", [None, "{not json", "[]"])
def test_official_without_a_readable_file(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        written(tmp_path, content)
    with pytest.raises(UserError, match=r"prompts\.json.*ace-ray data import acebench"):
        prompts.official(tmp_path)


@needs_official
@pytest.mark.parametrize("language", LANGUAGES)
def test_official_rendering_equals_str_format_on_all_rows(language: str) -> None:
    texts = prompts.official(OFFICIAL)
    rows = data.load(OFFICIAL, languages=[language], categories=GENERATION)
    assert len(rows) > 900
    for row in rows:
        kind = "NORMAL"
        if row.category == "normal_preference":
            kind = "PREFERENCE"
        elif row.category.startswith("special"):
            kind = "SPECIAL"
        system = texts.templates[f"SYSTEM_PROMPT_FOR_{kind}_DATA_{language.upper()}"]
        fields = {"function": row.data["function"]}
        if kind == "PREFERENCE":
            fields["profile"] = row.data["profile"]
        else:
            fields["time"] = row.data["time"]
        user = texts.templates[f"USER_PROMPT_{language.upper()}"]
        assert texts.messages(row) == [
            {"role": "system", "content": system.format(**fields)},
            {"role": "user", "content": user.format(question=row.data["question"])},
        ]


@needs_official
def test_own_texts_repeat_no_official_sentence() -> None:
    phrases = ("There is incorrect value", "Missing necessary", "Due to the limitations")

    def sentences(text: str) -> set[str]:
        parts = (part.strip(" -\"'[]") for part in re.split(r"[.。\n:：]", text))
        return {part for part in parts if len(part) > 24 and not part.startswith(phrases)}

    for name, text in prompts.official(OFFICIAL).templates.items():
        for texts in (prompts.own(variant).templates for variant in prompts.VARIANTS):
            assert not sentences(text) & sentences(texts[name])
