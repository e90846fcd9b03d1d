"""Foreign texts are cut, and their invisible characters are named."""

from __future__ import annotations

import pytest

from ace_ray.reports.text import shown, shown_json, visible


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Größe 你好\u3000世界 🙂\tb\nc", "Größe 你好\u3000世界 🙂\tb\nc"),
        ("a\r\nb\x00\x00\x00", "a<U+000D>\nb<U+0000 ×3>"),
        ("ab\u202ecd\u202c zero\u200bwidth", "ab<U+202E>cd<U+202C> zero<U+200B>width"),
        ("half \ud800 pair\u2028", "half <U+D800> pair<U+2028>"),
        ("\ue000\u0378\xa0", "<U+E000><U+0378><U+00A0>"),
        ("\ufe0f\U000e0041\u3164\u2800", "<U+FE0F><U+E0041><U+3164><U+2800>"),
    ],
)
def test_invisible_characters_are_named(text: str, expected: str) -> None:
    assert visible(text) == expected.replace("<", "⟦").replace(">", "⟧")


@pytest.mark.parametrize("limit", [0, 5, 10])
def test_a_long_text_is_cut_and_the_rest_counted(limit: int) -> None:
    found = shown("0123456789", limit)
    assert found.text == "0123456789"[:limit]
    assert found.left_out == 10 - limit


def test_json_is_indented_and_other_texts_stay() -> None:
    assert shown_json('{"b":[1,"é"]}', 100).text == '{\n  "b": [\n    1,\n    "é"\n  ]\n}'
    assert shown_json("no json", 100).text == "no json"
    assert shown_json('"a string"', 100).text == "a string"
    assert shown_json("[" * 100_000, 10).text == "[" * 10
    assert shown_json('"\\ud800"', 100).text == "⟦U+D800⟧"
