"""Text from outside, made readable: cut, with invisible characters made visible.

Escaping is not done here but by the templates, everywhere.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from ace_ray.bounded import Unbounded, json_of_row, shortened

_BLANK = {0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180B, 0x180C, 0x180D, 0x180F, 0x2800, 0x3164}
_BLANK |= {0xFFA0, *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)}
"""Fillers, joiners and blanks that Unicode counts among letters, marks and symbols."""
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"})
_PLAIN = frozenset("\n\t \u3000")
"""Blanks that are what they look like; U+3000 is the space of Chinese texts."""

_COST = 32
"""What an invisible character counts of a limit: its name takes that much of a page."""


@dataclass(frozen=True, slots=True)
class Part:
    """Some of a text; ``hidden``: it names characters that would not be seen."""

    text: str
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class Shown:
    """A text as parts, of which ``left_out`` characters at its end are missing."""

    parts: tuple[Part, ...]
    left_out: int = 0

    @property
    def size(self) -> int:
        return sum(len(part.text) for part in self.parts)


def shown(text: str, limit: int) -> Shown:
    """At most about ``limit`` characters of ``text``."""
    parts: list[Part] = []
    taken = used = 0
    for part, length in _parts(text[:limit]):
        cost = _COST if part.hidden else length
        if used + cost > limit:
            if not part.hidden:
                parts.append(Part(part.text[: limit - used]))
                taken += limit - used
            break
        parts.append(part)
        taken, used = taken + length, used + cost
    return Shown(tuple(parts), len(text) - taken)


def shown_json(text: str, limit: int) -> Shown:
    """A JSON text, laid out; as it is where it is none."""
    try:
        value = json_of_row(text)
    except Unbounded:
        return shown(text, limit)
    return shown(pretty(value), limit)


def pretty(value: Any) -> str:
    """Return a JSON value for people, `shortened`; a string is itself."""
    value = shortened(value)
    if isinstance(value, str):
        return value
    return json.dumps(value, indent=2, ensure_ascii=False)


def visible(text: str) -> str:
    """``text`` with the names of its invisible characters in brackets."""
    if text.isprintable():
        return text if not _BLANK & {ord(c) for c in text} else _named(text)
    return _named(text)


def _named(text: str) -> str:
    return "".join(f"⟦{part.text}⟧" if part.hidden else part.text for part, _ in _parts(text))


def _parts(text: str) -> Iterator[tuple[Part, int]]:
    """The parts of ``text``, each with the number of characters that it stands for."""
    for hidden, group in groupby(text, key=_is_hidden):
        if not hidden:
            run = "".join(group)
            yield Part(run), len(run)
            continue
        for character, same in groupby(group):
            count = sum(1 for _ in same)
            times = f" ×{count}" if count > 1 else ""
            yield Part(f"U+{ord(character):04X}{times}", hidden=True), count


def _is_hidden(character: str) -> bool:
    if character in _PLAIN:
        return False
    return unicodedata.category(character) in _HIDDEN or ord(character) in _BLANK
