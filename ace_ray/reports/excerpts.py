"""Make untrusted text readable: cut it, and replace invisible characters by names in brackets.

This does not escape the text; templates escape it.
"""

from __future__ import annotations

import json
import unicodedata
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from ace_ray.util.safe_loading import InvalidContent, json_of_row, shorten_json

# Invisible characters that Unicode lists as letters, marks and symbols.
_BLANK = {0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180B, 0x180C, 0x180D, 0x180F, 0x2800, 0x3164}
_BLANK |= {0xFFA0, *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)}
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"})
# Blank characters that are not replaced. U+3000 is the space in Chinese texts.
_PLAIN = frozenset("\n\t \u3000")


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The beginning of a text. ``left_out`` counts the missing characters at its end."""

    text: str
    left_out: int = 0


def excerpt(text: str, limit: int) -> Excerpt:
    """Cut ``text`` after ``limit`` characters, and make its characters `mark_hidden`."""
    return Excerpt(mark_hidden(text[:limit]), max(0, len(text) - limit))


def json_excerpt(text: str, limit: int) -> Excerpt:
    """Indent ``text`` if it is JSON, and cut it after ``limit`` characters."""
    try:
        value = json_of_row(text)
    except InvalidContent:
        return excerpt(text, limit)
    return excerpt(to_json(value), limit)


def to_json(value: Any) -> str:
    """Shorten a JSON value and format it with indentation. A string is returned without quotes."""
    value = shorten_json(value)
    if isinstance(value, str):
        return value
    return json.dumps(value, indent=2, ensure_ascii=False)


def mark_hidden(text: str) -> str:
    """Return ``text`` with invisible characters replaced by their names in brackets."""
    if text.isprintable() and not _BLANK & {ord(c) for c in text}:
        return text
    return "".join(_name_if_hidden(character, "".join(part)) for character, part in groupby(text))


def _name_if_hidden(character: str, characters: str) -> str:
    hidden = unicodedata.category(character) in _HIDDEN or ord(character) in _BLANK
    if character in _PLAIN or not hidden:
        return characters
    return f"⟦U+{ord(character):04X}{f' ×{len(characters)}' if len(characters) > 1 else ''}⟧"
