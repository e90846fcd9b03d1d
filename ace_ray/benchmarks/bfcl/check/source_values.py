"""Convert Java and JavaScript source to values of a documented type (upstream ``type_convertor``).

Source that does not look like a value of its type is returned unchanged, and so is a list of more
than `MAX_LIST_CHARS` or a map of more than `MAX_CHARS` characters. The patterns match the same
texts as upstream's patterns, but avoid useless backtracking."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# Maximum characters of a map and of a list that are converted; gold answers have fewer than 400.
MAX_CHARS, MAX_LIST_CHARS = 1_024, 8_192
JAVA_TYPES: Mapping[str, type] = {
    name: kind
    for kind, names in (
        (int, "byte short integer long"),
        (float, "float double"),
        (bool, "boolean"),
        (str, "char String any"),
        (list, "Array ArrayList Queue Stack"),
        (set, "Set"),
        (dict, "HashMap Hashtable"),
    )
    for name in names.split()
}

# A line break is allowed at the end, because upstream's patterns end with `$`.
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
    """Convert Java source to type ``kind``; the items of a collection have type ``items``.

    Raises `ValueError` for an unknown type and for too many digits, and `NotImplementedError` for
    the collections that upstream does not convert."""
    max_chars = MAX_CHARS if kind == "HashMap" else MAX_LIST_CHARS
    if kind in ("Array", "ArrayList", "HashMap") and len(text) > max_chars:
        return text
    if kind in ("byte", "short", "integer"):
        return int(text) if _INTEGER.fullmatch(text) else text
    if kind == "float":
        return _float(text) if _FLOAT.fullmatch(text) else text
    if kind == "double":
        return float(text) if _DOUBLE.fullmatch(text) else text
    if kind == "long":
        return int(_strip_suffix(text)) if _LONG.fullmatch(text) else text
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
    if kind in ("String", "any", "char"):  # upstream's pattern for char never matches
        return text
    raise ValueError(f"unknown type {kind}")


def _array(text: str, items: str | None) -> Any:
    match = _ARRAY.search(text)
    if match is None:
        return text
    parts = [part.strip() for part in match[1].split(",")]
    return [_infer_value(part) if not items else java_value(part, items) for part in parts if part]


def _array_list(text: str, items: str | None) -> Any:
    if listed := _AS_LIST.search(text):
        return [_item(part.strip(), items) for part in listed[1].split(",")]
    if adding := _ADDING.search(text):
        return [_item(part.strip(), items) for part in _ADD.findall(adding[1])]
    return [] if _EMPTY_LIST.search(text) else text


def _item(text: str, items: str | None) -> Any:
    if items in ("char", "String"):
        return text[1:-1]
    return java_value(text, items) if items else _infer_value(text)


def _hash_map(text: str) -> Any:
    match = _MAP.search(text)
    if match is None:
        return {} if _EMPTY_MAP.search(text) else text
    return {key: _infer_value(value.strip()) for key, value in _PUT.findall(match[1])}


def _infer_value(text: str) -> Any:
    """Convert Java source without a documented type, according to its syntax."""
    if text in ("true", "false"):
        return text == "true"
    if text.startswith('"') and text.endswith('"'):
        return text[1:-1]
    if _LONG.fullmatch(text):
        return int(text[:-1])
    return _float(text) if _FLOAT.fullmatch(text) else _number(text)


def _number(text: str) -> Any:
    """Return the number that a string represents, or else the string itself."""
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return text


def _float(text: str) -> float:
    return float(_strip_suffix(text))


def _strip_suffix(text: str) -> str:
    return text.removesuffix("\n")[:-1]


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

_JS_FLOAT = re.compile(r"-?\d++(?:\.\d++)?\n?")
_BIGINT = re.compile(r"-?\d++n\n?")
_JS_ARRAY = re.compile(r"\[([^\]\n]*+)\]|new\s++Array\(([^)\n]*+)\)")
_INNER = re.compile(r"\[([^\]\n]*+)\]")
_OBJECT = re.compile(r"\{([^}\n]*+)\}")
_PAIR = re.compile(r"([^:]++):\s*+(.*?)(?:,\s*(?=[^,]+:)|$)")
_NESTED_OPEN = re.compile(r"(?:\[|new\s++Array\()\s*+\[")
_FURTHER = re.compile(r"\s*+,\s*+\[")
_SPACE = re.compile(r"\s*+")


def javascript_value(text: str, kind: str, items: str | None = None) -> Any:
    """Convert JavaScript source to type ``kind``; the items of an array have type ``items``.

    Raises `ValueError` for an unknown type and for too many digits."""
    if kind in ("dict", "array") and len(text) > (MAX_CHARS if kind == "dict" else MAX_LIST_CHARS):
        return text
    if kind == "String":
        return text[1:-1] if _is_quoted(text) else text
    if kind == "integer":
        return int(text) if _INTEGER.fullmatch(text) else text
    if kind == "float":
        return float(text) if _JS_FLOAT.fullmatch(text) else text
    if kind == "Bigint":
        return int(text[:-1]) if _BIGINT.fullmatch(text) else text
    if kind == "Boolean":
        return text == "true" if text in ("true", "false") else text
    if kind == "dict":
        return _js_object(text.strip())
    if kind == "array":
        return _js_array(text.strip(), items)
    if kind == "any":
        return text
    raise ValueError(f"unknown type {kind}")


def _is_quoted(text: str) -> bool:
    return text[:1] in ("'", '"') and text.endswith(text[:1])


def _js_array(text: str, items: str | None) -> Any:
    end = _nested_end(text)
    if end is not None:
        # The first match begins with the bracket of the outer array.
        first, *rows = _INNER.findall(text[:end])
        return [_js_row(first.strip().removeprefix("[")), *map(_js_row, rows)]
    match = _JS_ARRAY.match(text)
    if match is None:
        return text
    inside = (match[1] if match[1] is not None else match[2]).strip()
    parts = [part.strip() for part in inside.split(",")] if inside else []
    if not items:
        return [_infer_js_value(part) for part in parts]
    try:
        return [javascript_value(part, items) for part in parts]
    except ValueError:
        return text


def _js_row(inside: str) -> list[Any]:
    return [_infer_js_value(part) for part in inside.strip().split(",")]


def _nested_end(text: str) -> int | None:
    """Return the index after the array of arrays that the text starts with, or None.

    Each inner array is on one line. The outer array ends at the first inner array that is followed
    by the outer closing bracket."""
    opening = _NESTED_OPEN.match(text)
    if opening is None:
        return None
    closing = "]" if text.startswith("[") else ")"
    start = opening.end()
    while True:
        line_end = text.find("\n", start)
        line_end = len(text) if line_end < 0 else line_end
        separator = None
        end = start - 1
        while (end := text.find("]", end + 1, line_end)) >= 0:
            spaces = _SPACE.match(text, end + 1)
            assert spaces is not None
            if text.startswith(closing, spaces.end()):
                return spaces.end() + 1
            separator = _FURTHER.match(text, end + 1)
        # Only the last inner array of a line can be followed by one on another line.
        if separator is None or separator.end() <= line_end:
            return None
        start = separator.end()


def _js_object(text: str) -> Any:
    match = _OBJECT.match(text)
    if match is None:
        return text
    pairs: dict[str, Any] = {}
    for name, raw in _PAIR.findall(match[1]):
        key, value = name.strip().strip("'\""), raw.strip()
        if value.startswith("[") and value.endswith("]"):
            pairs[key] = _js_array(value, None)
        else:
            pairs[key] = _infer_js_value(value.strip("'\""))
    return pairs


def _infer_js_value(text: str) -> Any:
    """Convert JavaScript source without a documented type, according to its syntax."""
    text = text.strip()
    if text in ("true", "false"):
        return text == "true"
    if _is_quoted(text):
        return text[1:-1]
    return _number(text)
