"""Text without control sequences and formulas."""

import pytest

from ace_ray.util.sanitizing import one_line, sanitize_line, sanitize_text, spreadsheet


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("a\r\nb", "a\nb"),
        ("a\rb", "a\\rb"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]0;never ends", ""),
        ("\x07\x08", "\\x07\\x08"),
        ("a\u200bb\u2028c", "a\\u200bb\\u2028c"),
        ("\ud800", "\\ud800"),
        ("\ufffe\uffff", "\\ufffe\\uffff"),
    ],
)
def test_control_characters_are_removed_or_shown(text: str, clean: str) -> None:
    assert sanitize_text(text) == clean


def test_cleaning_is_bounded_and_linear() -> None:
    assert len(sanitize_text("\x1b[" * 1_000_000, 500)) < 6_000
    assert sanitize_text("abcdef", 3) == "abc [3 more characters]"
    assert one_line("a\n\n b\t c") == "a b c"
    assert sanitize_line("\x1b[31msk-abcdefghijklmnopqrstuvwxyz\x1b[0m") == "***", (
        "a coloured secret"
    )
    cells = [spreadsheet(text) for text in (" =1", "+1", "-1", "@x", "[f()]", "")]
    assert cells == ["' =1", "'+1", "'-1", "'@x", "[f()]", ""]
