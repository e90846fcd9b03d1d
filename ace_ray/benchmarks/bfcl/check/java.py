"""Texts of Java as values of a documented type (upstream ``java_type_converter.py``).

What does not look like a value of its type stays a text, and so does a collection of more than
`MAX_CHARS` characters. The patterns are upstream's, without backtracking that finds nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

MAX_CHARS = 1_024
"""Longest text of a collection that is converted; gold answers have fewer than 400."""
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
_AS_LIST = re.compile(r"new\s++ArrayList<\w*+>\(Arrays\.asList\((.+?)\)\)")
_ADDING = re.compile(r"new\s++ArrayList<\w*+>\(\)\s*+\{\{\s*+(.+?)\}\}", re.DOTALL)
_EMPTY_LIST = re.compile(r"new\s++ArrayList<\w*+>\(\)")
_ADD = re.compile(r"add\((.+?)\)")
_ARRAY = re.compile(r"new\s++\w++\[\]\s*+\{([^}\n]*+)\}")
_MAP = re.compile(r"new\s++HashMap<.*?>\s*+\(\)\s*+\{\s*+\{?+([^}]*+)\}", re.DOTALL)
_EMPTY_MAP = re.compile(r"new\s++HashMap<.*?>\s*+\(\)")
_PUT = re.compile(r'put\("(.*?)",\s*+([^)\n]*+)\)')


def java_value(text: str, kind: str, items: str | None = None) -> Any:
    """The value of a text, the items of a collection being of type ``items``.

    Raises `ValueError` for an unknown type and for too many digits, and `NotImplementedError` for
    the collections that upstream does not convert.
    """
    if kind in ("Array", "ArrayList", "HashMap") and len(text) > MAX_CHARS:
        return text
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
    found = _ARRAY.search(text)
    if found is None:
        return text
    parts = [part.strip() for part in found[1].split(",")]
    return [_untyped(part) if not items else java_value(part, items) for part in parts if part]


def _array_list(text: str, items: str | None) -> Any:
    if listed := _AS_LIST.search(text):
        return [_item(part.strip(), items) for part in listed[1].split(",")]
    if adding := _ADDING.search(text):
        return [_item(part.strip(), items) for part in _ADD.findall(adding[1])]
    return [] if _EMPTY_LIST.search(text) else text


def _item(text: str, items: str | None) -> Any:
    if items in ("char", "String"):
        return text[1:-1]
    return java_value(text, items) if items else _untyped(text)


def _hash_map(text: str) -> Any:
    found = _MAP.search(text)
    if found is None:
        return {} if _EMPTY_MAP.search(text) else text
    return {key: _untyped(value.strip()) for key, value in _PUT.findall(found[1])}


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
