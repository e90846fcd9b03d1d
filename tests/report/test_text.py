"""Texts of others: cut, and with what is invisible made visible, whatever it is."""

from __future__ import annotations

import json
import sys
import unicodedata

import pytest

from ace_ray.reports.text import shown, shown_json, visible


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Größe 你好\u3000世界 🙂", "Größe 你好\u3000世界 🙂"),
        ("a\tb\nc", "a\tb\nc"),
        ("a\r\nb", "a<U+000D>\nb"),
        ("\x00", "<U+0000>"),
        ("\x00\x00\x00", "<U+0000 ×3>"),
        ("ab\u202ecd\u202c", "ab<U+202E>cd<U+202C>"),
        ("zero\u200bwidth\ufeff", "zero<U+200B>width<U+FEFF>"),
        ("half \ud800 pair", "half <U+D800> pair"),
        ("\ufe0f\U000e0041\u3164\u2800", "<U+FE0F><U+E0041><U+3164><U+2800>"),
    ],
)
def test_what_cannot_be_seen_is_named(text: str, expected: str) -> None:
    assert visible(text) == expected.replace("<", "⟦").replace(">", "⟧")


@pytest.mark.nightly
def test_no_character_is_both_shown_and_unseen() -> None:
    unseen = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        if character in "\n\t" or unicodedata.category(character) not in unseen:
            continue
        named = visible(character)
        assert named.startswith("⟦U+"), hex(code)
        named.encode()  # fits a UTF-8 page


@pytest.mark.parametrize("limit", [0, 1, 5, 10])
def test_a_long_text_is_cut_and_the_rest_counted(limit: int) -> None:
    found = shown("0123456789", limit)
    assert found.text == "0123456789"[:limit]
    assert found.left_out == 10 - limit


def test_a_flood_of_one_invisible_character_is_one_name() -> None:
    found = shown("\x00" * 1_000_000, 4000)
    assert found.text == "⟦U+0000 ×4000⟧"
    assert found.left_out == 1_000_000 - 4000


def test_json_is_laid_out_and_anything_else_left_as_it_is() -> None:
    assert shown_json('{"b":[1,"é"]}', 100).text == json.dumps(
        {"b": [1, "é"]}, indent=2, ensure_ascii=False
    )
    assert shown_json("no json", 100).text == "no json"
    assert shown_json('"a string"', 100).text == "a string"
    deep = "[" * 100_000
    assert shown_json(deep, 10).text == "[" * 10
    assert shown_json('"\\ud800"', 100).text == "⟦U+D800⟧"
