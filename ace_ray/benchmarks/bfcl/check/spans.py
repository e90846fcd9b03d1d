"""What stands between an opening and the next closing of it, found in linear time."""

from __future__ import annotations

import re
from collections.abc import Iterator


def between(text: str, opening: re.Pattern[str], closing: str, *, at_least: int = 0) -> str | None:
    """The first of `between_all`, None where there is none."""
    return next(between_all(text, opening, closing, at_least=at_least), None)


def between_all(
    text: str, opening: re.Pattern[str], closing: str, *, at_least: int = 0
) -> Iterator[str]:
    """The shortest texts of ``at_least`` characters without a line break between the two, from left
    to right."""
    position = dead_until = 0
    while match := opening.search(text, position):
        start, position = match.end(), match.start() + 1
        if start <= dead_until:
            continue
        line_end = end_of_line(text, start)
        end = text.find(closing, start + at_least, line_end)
        if end < 0:
            dead_until = line_end  # for a later opening there is no closing in this line either
        else:
            yield text[start:end]
            position, dead_until = end + len(closing), 0


def end_of_line(text: str, start: int) -> int:
    """Where the line that ``start`` stands in ends."""
    end = text.find("\n", start)
    return len(text) if end < 0 else end


def trimmed_end(text: str, start: int, end: int) -> int:
    """``end`` without the spaces before it, at least ``start``."""
    return start + len(text[start:end].rstrip())
