"""Texts of JavaScript as values of a type (upstream ``type_convertor/js_type_converter.py``).

What does not look like a value of its type stays a text. Upstream looks with regular expressions
that backtrack; these look for the same in linear time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ace_ray.benchmarks.bfcl.check.spans import between_all, end_of_line

JAVASCRIPT_TYPES: Mapping[str, type] = {
    "String": str,
    "integer": int,
    "float": float,
    "Bigint": int,
    "Boolean": bool,
    "dict": dict,
    "array": list,
    "any": str,
}

# A line break at the very end is no obstacle, as for `$`.
_INTEGER = re.compile(r"-?\d++\n?")
_FLOAT = re.compile(r"-?\d++(?:\.\d++)?\n?")
_BIGINT = re.compile(r"-?\d++n\n?")
_NEW_ARRAY = re.compile(r"new\s++Array\(")
_OPEN = re.compile(r"\[")
_NESTED_OPEN = re.compile(r"(?:\[|new\s++Array\()\s*+\[")
_FURTHER = re.compile(r"\s*+,\s*+\[")
_SPACE = re.compile(r"\s*+")


def javascript_value(text: str, kind: str, items: str | None = None) -> Any:
    """The value of a text, the items of an array being of type ``items``.

    Raises `ValueError` for an unknown type and for too many digits."""
    if kind == "String":
        return text[1:-1] if _quoted(text) else text
    if kind == "integer":
        return int(text) if _INTEGER.fullmatch(text) else text
    if kind == "float":
        return float(text) if _FLOAT.fullmatch(text) else text
    if kind == "Bigint":
        return int(text[:-1]) if _BIGINT.fullmatch(text) else text
    if kind == "Boolean":
        return text == "true" if text in ("true", "false") else text
    if kind == "dict":
        return _object(text.strip())
    if kind == "array":
        return _array(text.strip(), items)
    if kind == "any":
        return text
    raise ValueError(f"unknown type {kind}")


def _quoted(text: str) -> bool:
    return text[:1] in ("'", '"') and text.endswith(text[:1])


def _array(text: str, items: str | None) -> Any:
    end = _nested_end(text)
    if end is not None:
        # What is found first begins with the bracket of the whole.
        first, *further = between_all(text[:end], _OPEN, "]")
        return [_row(first.strip().removeprefix("[")), *map(_row, further)]
    inside = _inside(text)
    if inside is None:
        return text
    inside = inside.strip()
    parts = [part.strip() for part in inside.split(",")] if inside else []
    if not items:
        return [_untyped(part) for part in parts]
    try:
        return [javascript_value(part, items) for part in parts]
    except ValueError:
        return text


def _inside(text: str) -> str | None:
    """What stands within the brackets that the text begins with, up to the first closing one."""
    if text.startswith("["):
        start, closing = 1, "]"
    elif opening := _NEW_ARRAY.match(text):
        start, closing = opening.end(), ")"
    else:
        return None
    end = text.find(closing, start, end_of_line(text, start))
    return None if end < 0 else text[start:end]


def _row(inside: str) -> list[Any]:
    return [_untyped(part) for part in inside.strip().split(",")]


def _nested_end(text: str) -> int | None:
    """Where an array of arrays that the text begins with ends, None if it begins with none.

    The arrays within it lie in one line each; the whole ends where the first of them does that is
    followed by its closing bracket.
    """
    opening = _NESTED_OPEN.match(text)
    if opening is None:
        return None
    closing = "]" if text.startswith("[") else ")"
    start = opening.end()
    while True:
        line_end = end_of_line(text, start)
        further = None
        end = start - 1
        while (end := text.find("]", end + 1, line_end)) >= 0:
            spaces = _SPACE.match(text, end + 1)
            assert spaces is not None
            if text.startswith(closing, spaces.end()):
                return spaces.end() + 1
            further = _FURTHER.match(text, end + 1)
        # Only the last one in a line can be followed by an array in another line.
        if further is None or further.end() <= line_end:
            return None
        start = further.end()


def _object(text: str) -> Any:
    if text == "{}":
        return {}
    end = text.find("}", 1, end_of_line(text, 1)) if text.startswith("{") else -1
    if end < 0:
        return text
    pairs: dict[str, Any] = {}
    for name, raw in _pairs(text[1:end]):
        key, value = name.strip().strip("'\""), raw.strip()
        if value.startswith("[") and value.endswith("]"):
            pairs[key] = _array(value, None)
        else:
            pairs[key] = _untyped(value.strip("'\""))
    return pairs


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    """Keys and values of a line: a key reaches to the next colon, a value to the next comma behind
    which another key begins."""
    position = 0
    while (colon := text.find(":", position)) >= 0:
        if colon == position:
            position += 1
            continue
        spaces = _SPACE.match(text, colon + 1)
        assert spaces is not None
        end, after = _value_end(text, spaces.end())
        yield text[position:colon], text[spaces.end() : end]
        position = after


def _value_end(text: str, start: int) -> tuple[int, int]:
    """Where a value ends, and where the next key begins."""
    comma = text.find(",", start)
    while comma >= 0:
        following = text.find(",", comma + 1)
        limit = len(text) if following < 0 else following
        spaces = _SPACE.match(text, comma + 1)
        assert spaces is not None
        key = spaces.end()
        if text.find(":", key + 1, limit) >= 0:
            return comma, key
        # A key of one space, which the colon follows.
        if key > comma + 1 and text.startswith(":", key):
            return comma, key - 1
        comma = following
    return len(text), len(text)


def _untyped(text: str) -> Any:
    """A value by its looks, where nothing says its type."""
    text = text.strip()
    if text in ("true", "false"):
        return text == "true"
    if _quoted(text):
        return text[1:-1]
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            pass
    return text
