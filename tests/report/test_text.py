"""Texts of others: cut, and with what is invisible made visible, whatever it is."""

from __future__ import annotations

import json
import sys
import unicodedata

import pytest

from ace_ray.reports.text import Part, Shown, shown, shown_json, visible


def said(found: Shown) -> str:
    return "".join(f"<{part.text}>" if part.hidden else part.text for part in found.parts)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("plain", "plain"),
        ("Größe 你好\u3000世界 🙂", "Größe 你好\u3000世界 🙂"),
        ("a\tb\nc", "a\tb\nc"),
        ("a\r\nb", "a<U+000D>\nb"),
        ("\x00", "<U+0000>"),
        ("\x1b[31mred", "<U+001B>[31mred"),
        ("\x00\x00\x00", "<U+0000 ×3>"),
        ("\x00\x01", "<U+0000><U+0001>"),
        ("ab\u202ecd\u202c", "ab<U+202E>cd<U+202C>"),
        ("\u2066x\u2069\u061c\u200f", "<U+2066>x<U+2069><U+061C><U+200F>"),
        ("zero\u200bwidth\ufeff", "zero<U+200B>width<U+FEFF>"),
        ("no\u00a0break\u2028line", "no<U+00A0>break<U+2028>line"),
        ("half \ud800 pair", "half <U+D800> pair"),
        ("\ufe0f\U000e0041\u3164\u2800", "<U+FE0F><U+E0041><U+3164><U+2800>"),
        ("\U0010ffff\ue000", "<U+10FFFF><U+E000>"),
    ],
)
def test_what_cannot_be_seen_is_named(text: str, expected: str) -> None:
    found = shown(text, 1000)
    assert said(found) == expected
    assert found.left_out == 0
    brackets = expected.replace("<", "⟦").replace(">", "⟧")
    assert visible(text) == brackets


@pytest.mark.nightly
def test_no_character_is_both_shown_and_unseen() -> None:
    unseen = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        if character in "\n\t" or unicodedata.category(character) not in unseen:
            continue
        (part,) = shown(character, 100).parts
        assert part.hidden, hex(code)
        part.text.encode()  # fits a UTF-8 page


@pytest.mark.parametrize("limit", [0, 1, 5, 10])
def test_a_long_text_is_cut_and_the_rest_counted(limit: int) -> None:
    found = shown("0123456789", limit)
    assert said(found) == "0123456789"[:limit]
    assert found.left_out == 10 - limit
    assert found.size == limit


def test_what_is_left_out_is_counted_in_the_text_s_own_characters() -> None:
    text = "a\x00" * 500_000
    found = shown(text, 4000)
    assert found.left_out == len(text) - len(found.parts)
    assert found.size < 4000, "names of invisible characters count for what they take"
    assert found.parts[:2] == (Part("a"), Part("U+0000", hidden=True))


def test_a_flood_of_one_invisible_character_is_one_name() -> None:
    found = shown("\x00" * 1_000_000, 4000)
    assert said(found) == "<U+0000 ×4000>"
    assert found.left_out == 1_000_000 - 4000


def test_json_is_laid_out_and_anything_else_left_as_it_is() -> None:
    assert said(shown_json('{"b":[1,"é"]}', 100)) == json.dumps(
        {"b": [1, "é"]}, indent=2, ensure_ascii=False
    )
    assert said(shown_json("no json", 100)) == "no json"
    assert said(shown_json('"a string"', 100)) == "a string"
    deep = "[" * 100_000
    assert said(shown_json(deep, 10)) == "[" * 10
    assert said(shown_json('"\\ud800"', 100)) == "<U+D800>"
