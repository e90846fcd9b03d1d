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


def load(text: str, max_chars: int, *, unique: bool = False) -> Any:
    """The value of a JSON text. Raises `Unusable` beyond the bounds or where it is none.

    What Python's json writes and JSON does not know (NaN, infinities), and numbers beyond those of
    a computer, become their text, so that everything stored stays JSON. ``unique``: a key that
    appears twice in one object is refused; otherwise the last one counts, as everywhere.
    """
    if len(text) > max_chars:
        raise Unusable(f"longer than {max_chars:,} characters")
    if nesting(text) > MAX_DEPTH:
        raise Unusable(f"nested more than {MAX_DEPTH} deep")
    exact = _MANY_DIGITS.search(text) is not None
    try:
        return _decoder(unique, exact).decode(text)
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
            value, _ = _decoder(False, True).raw_decode(text, begin)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            return value
    return None


def arguments_of(arguments: Mapping[str, Any] | str) -> dict[str, Any]:
    """A call's arguments as JSON values in the order given. An empty text means none.

    Raises `Unusable` for all that is no object within the bounds.
    """
    if not isinstance(arguments, str):
        try:
            arguments = json.dumps(dict(arguments))
        except (TypeError, ValueError, RecursionError) as error:
            raise Unusable(str(error)) from None
    value = load(arguments, MAX_ARGUMENTS) if arguments.strip() else {}
    if not isinstance(value, dict):
        raise Unusable(f"arguments that are a {type(value).__name__}")
    return value


def canonical_key(arguments: Mapping[str, Any]) -> str:
    """Our key: the same for the same arguments in any order."""
    return canonical_json(arguments)


def upstream_key(arguments: Mapping[str, Any]) -> str:
    """Upstream's key (``server/main.py``): Python's text of the dict, in the order given."""
    return str(dict(arguments))


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
def _decoder(unique: bool, count_digits: bool) -> json.JSONDecoder:
    # Python's own int is much faster than one of ours that is asked for every number.
    return json.JSONDecoder(
        parse_constant=str,
        parse_float=_finite,
        parse_int=_whole if count_digits else None,
        object_pairs_hook=_distinct if unique else None,
    )
