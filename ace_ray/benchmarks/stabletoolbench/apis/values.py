"""JSON of others within bounds, and the keys under which answers are kept.

Everything here is linear in the length of the text.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from ace_ray.calls import MAX_DIGITS, NotCalls, expression, literal
from ace_ray.records import canonical_json

MAX_DEPTH = 64
MAX_ARGUMENTS = 32_768
"""Longest JSON text of a call's arguments, in characters."""
_NO_BRACKETS = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[^\[\]{}"]++', re.DOTALL)
_MANY_DIGITS = re.compile(f"[0-9]{{{MAX_DIGITS + 1}}}")


class Unusable(ValueError):
    """The text is not JSON within the bounds."""


def load(text: str, max_chars: int, *, unique: bool = False, floats: bool = False) -> Any:
    """Return the value of a JSON text. Raises `Unusable` for other text and beyond the bounds.

    NaN, infinities and numbers that are too large for a float become their text, so that all that
    is stored stays JSON. ``floats`` makes floats of them, as Python does. ``unique`` refuses a key
    that appears twice in one object; otherwise the last one counts, as everywhere.
    """
    if len(text) > max_chars:
        raise Unusable(f"longer than {max_chars:,} characters")
    if nesting(text) > MAX_DEPTH:
        raise Unusable(f"nested more than {MAX_DEPTH} deep")
    exact = _MANY_DIGITS.search(text) is not None
    try:
        return _decoder(unique, exact, floats).decode(text)
    except (ValueError, RecursionError) as error:
        raise Unusable(str(error) or type(error).__name__) from None


def nesting(text: str) -> int:
    """How deep the brackets of a JSON text go, those in strings aside; never less than that, and 0
    for a text with few. Brackets that nothing closes count as levels."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return 0
    brackets = _NO_BRACKETS.sub("", text).replace("{", "[").replace("}", "]")
    for level in range(MAX_DEPTH + 1):
        inner = brackets.replace("[]", "")
        if len(inner) == len(brackets):
            return level + inner.count("[")
        brackets = inner
    return MAX_DEPTH + 1


def first_object(text: str) -> dict[str, Any] | None:
    """The first JSON object within ``text`` that parses, among its first eight braces."""
    begin = -1
    for _ in range(8):
        begin = text.find("{", begin + 1)
        if begin < 0:
            return None
        try:
            value, _ = _decoder(False, True, False).raw_decode(text, begin)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            return value
    return None


def arguments_of(arguments: Mapping[str, Any] | str) -> Any:
    """Return what upstream's server reads from a call's arguments, objects in the order given.

    Any JSON value has a key, ``[1]`` and ``null`` too. An empty text means no arguments. Raises
    `Unusable` for text that is not JSON, and beyond the bounds.
    """
    if not isinstance(arguments, str):
        try:
            arguments = json.dumps(dict(arguments))
        except (TypeError, ValueError, RecursionError) as error:
            raise Unusable(str(error)) from None
    return load(arguments, MAX_ARGUMENTS, floats=True) if arguments else {}


def shown_arguments(text: str) -> dict[str, Any]:
    """Return a call's arguments as chat templates take them: an object of JSON values.

    Raises `Unusable` for anything else.
    """
    value = load(text, MAX_ARGUMENTS)
    if not isinstance(value, dict):
        raise Unusable(f"arguments that are a {type(value).__name__}")
    return value


def canonical_key(arguments: Any) -> str:
    """Return our key, the same for the same arguments in any order.

    Every key begins with ``{``: `CacheFile` splits the simulator's id off there. The prefix ``{}``
    marks other values than objects, and begins the JSON of the empty object only.
    """
    text = canonical_json(arguments)
    return text if isinstance(arguments, Mapping) else f"{{}}{text}"


def upstream_key(arguments: Any) -> str:
    """Return upstream's key (``server/main.py``), Python's text of the value."""
    return str(arguments)


def canonical_of_upstream(key: str) -> str | None:
    """Our key for one of upstream's, None where that one is no literal dict (NaN, say)."""
    try:
        value = literal(expression(key))
        if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
            return None
        return canonical_json(value)
    except (NotCalls, TypeError, ValueError, RecursionError):
        return None


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        raise ValueError("a key appears twice in one object")
    return mapping


def _whole(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"an integer of more than {MAX_DIGITS} digits")
    return int(digits)


def _finite(digits: str) -> float | str:
    number = float(digits)
    return number if math.isfinite(number) else digits[:80]


@cache
def _decoder(unique: bool, count_digits: bool, floats: bool) -> json.JSONDecoder:
    # Python's own int is much faster than one of ours that is asked for every number.
    return json.JSONDecoder(
        parse_constant=None if floats else str,
        parse_float=None if floats else _finite,
        parse_int=_whole if count_digits else None,
        object_pairs_hook=_distinct if unique else None,
    )
