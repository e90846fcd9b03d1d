"""Texts of Java as values of a documented type (upstream ``java_type_converter.py``).

What does not look like a value of its type stays a text. Upstream looks with regular expressions
that backtrack; these look for the same in linear time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ace_ray.benchmarks.bfcl.check.spans import between, between_all, end_of_line, trimmed_end

JAVA_TYPES: Mapping[str, type] = {
    "byte": int,
    "short": int,
    "integer": int,
    "float": float,
    "double": float,
    "long": int,
    "boolean": bool,
    "char": str,
    "Array": list,
    "ArrayList": list,
    "Set": set,
    "HashMap": dict,
    "Hashtable": dict,
    "Queue": list,
    "Stack": list,
    "String": str,
    "any": str,
}

# A line break at the very end is no obstacle, as for `$`.
_INTEGER = re.compile(r"-?\d++\n?")
_LONG = re.compile(r"-?\d++[lL]\n?")
_DOUBLE = re.compile(r"-?\d++(?:\.\d++)?(?:[eE][+-]?\d++)?\n?")
_FLOAT = re.compile(r"-?\d++(?:\.\d++)?(?:[eE][+-]?\d++)?[fF]\n?")
_AS_LIST = re.compile(r"new\s++ArrayList<\w*+>\(Arrays\.asList\(")
_ADDING = re.compile(r"new\s++ArrayList<\w*+>\(\)\s*+\{\{\s*+")
_EMPTY_LIST = re.compile(r"new\s++ArrayList<\w*+>\(\)")
_ADD = re.compile(r"add\(")
_ARRAY = re.compile(r"new\s++\w++\[\]\s*+\{")
_MAP = re.compile(r"new\s++HashMap<")
_MAP_BODY = re.compile(r">\s*+\(\)\s*+\{\s*+\{?+\s*+")
_EMPTY_MAP = re.compile(r">\s*+\(\)")
_SPACE = re.compile(r"\s*+")
_PUT, _PUT_KEY_END = 'put("', '",'


def java_value(text: str, kind: str, items: str | None = None) -> Any:
    """The value of a text, the items of a collection being of type ``items``.

    Raises `ValueError` for an unknown type and for too many digits, and `NotImplementedError` for
    the collections that upstream does not convert.
    """
    if kind in ("byte", "short", "integer"):
        return int(text) if _INTEGER.fullmatch(text) else text
    if kind == "float":
        return _float(text) if _FLOAT.fullmatch(text) else text
    if kind == "double":
        return float(text) if _DOUBLE.fullmatch(text) else text
    if kind == "long":
        return int(_without_suffix(text)) if _LONG.fullmatch(text) else text
    if kind == "boolean":
        return text == "true" if text in ("true", "false") else text
    if kind == "Array":
        return _array(text, items)
    if kind == "ArrayList":
        return _array_list(text, items)
    if kind == "HashMap":
        return _hash_map(text)
    if kind in ("Set", "Hashtable", "Queue", "Stack"):
        raise NotImplementedError(f"{kind} is not converted")
    if kind in ("String", "any", "char"):  # the pattern for a char never matches
        return text
    raise ValueError(f"unknown type {kind}")


def _array(text: str, items: str | None) -> Any:
    inside = between(text, _ARRAY, "}")
    if inside is None:
        return text
    parts = [part.strip() for part in inside.split(",")]
    return [_untyped(part) if not items else java_value(part, items) for part in parts if part]


def _array_list(text: str, items: str | None) -> Any:
    listed = between(text, _AS_LIST, "))", at_least=1)
    if listed is not None:
        return [_item(part.strip(), items) for part in listed.split(",")]
    adding = _added(text)
    if adding is not None:
        return [_item(part.strip(), items) for part in between_all(adding, _ADD, ")", at_least=1)]
    return [] if _EMPTY_LIST.search(text) else text


def _added(text: str) -> str | None:
    """What stands within the double braces of an anonymous class, at least one character."""
    opening = _ADDING.search(text)
    if opening is None:
        return None
    start = opening.end()
    end = text.find("}}", start + 1)
    if end >= 0:
        return text[start : trimmed_end(text, start + 1, end)]
    # Nothing but spaces within: the last of them is the one character.
    empty = text.startswith("}}", start) and text[start - 1].isspace()
    return text[start - 1 : start] if empty else None


def _item(text: str, items: str | None) -> Any:
    if items in ("char", "String"):
        return text[1:-1]
    return java_value(text, items) if items else _untyped(text)


def _hash_map(text: str) -> Any:
    opening = _MAP.search(text)
    if opening is None:
        return text
    body = _MAP_BODY.search(text, opening.end())
    end = text.find("}", body.end()) if body else -1
    if body is None or end < 0:
        return {} if _has_empty_map(text) else text
    return _puts(text[body.end() : trimmed_end(text, body.end(), end)])


def _has_empty_map(text: str) -> bool:
    """Whether one is made whose type stands in one line."""
    made = None
    for opening in _MAP.finditer(text):
        if made is None or made.start() < opening.end():
            made = _EMPTY_MAP.search(text, opening.end())
        if made is None:
            return False
        if made.start() < end_of_line(text, opening.end()):
            return True
    return False


def _puts(text: str) -> dict[str, Any]:
    """The pairs of ``put("key", value)``, key and value each within a line."""
    pairs: dict[str, Any] = {}
    position = 0
    while (position := text.find(_PUT, position)) >= 0:
        start = position + len(_PUT)
        line_end = end_of_line(text, start)
        places = _put_value(text, start, line_end)
        if places is None:
            # Any later one in this line would have to end at the same places.
            position = line_end
            continue
        key_end, value_start, value_end = places
        pairs[text[start:key_end]] = _untyped(text[value_start:value_end].strip())
        position = value_end + 1
    return pairs


def _put_value(text: str, start: int, line_end: int) -> tuple[int, int, int] | None:
    key_end = start - 1
    closed = True  # whether some ")" may stand in the rest of this line
    while (key_end := text.find(_PUT_KEY_END, key_end + 1, line_end)) >= 0:
        spaces = _SPACE.match(text, key_end + len(_PUT_KEY_END))
        assert spaces is not None
        value_start = spaces.end()
        if value_start <= line_end and not closed:
            continue
        value_end = text.find(")", value_start, end_of_line(text, value_start))
        if value_end >= 0:
            return key_end, value_start, value_end
        if value_start <= line_end:
            closed = False
    return None


def _untyped(text: str) -> Any:
    """A value by its looks, where nothing says its type."""
    if text in ("true", "false"):
        return text == "true"
    if text.startswith('"') and text.endswith('"'):
        return text[1:-1]
    if _LONG.fullmatch(text):
        return int(text[:-1])
    if _FLOAT.fullmatch(text):
        return _float(text)
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            pass
    return text


def _float(text: str) -> float:
    return float(_without_suffix(text))


def _without_suffix(text: str) -> str:
    return text.removesuffix("\n")[:-1]
