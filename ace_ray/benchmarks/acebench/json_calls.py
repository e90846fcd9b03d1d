"""Calls written as JSON, read within bounds.

OpenAI's forms: ``{"name": ..., "arguments": ...}``, the arguments an object or the JSON text of
one, alone, under ``function``, in a list, or in the ``tool_calls`` of a message.
"""

from __future__ import annotations

import json
import keyword
import math
import re
from typing import Any, NoReturn

from ace_ray.calls import MAX_CODE, MAX_DEPTH, MAX_DIGITS, Call

_NESTING = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)


class NotJson(ValueError):
    """The text is not JSON within the bounds, or the JSON is no call."""


def load_json(text: str) -> Any:
    """The value of a JSON text. NaN, infinities, and numbers that overflow are none.

    Raises `NotJson` for anything else, and beyond the bounds of `ace_ray.calls` on length (here
    with strings), depth and digits.
    """
    if len(text) > MAX_CODE:
        raise NotJson(f"longer than {MAX_CODE} characters")
    depth = 0
    for found in _NESTING.finditer(text):
        bracket = found[0]
        depth += (bracket in "[{") - (bracket in "]}")
        if depth > MAX_DEPTH:
            raise NotJson(f"nested more than {MAX_DEPTH} deep")
    try:
        return json.loads(text, parse_int=_whole, parse_float=_finite, parse_constant=_no_constant)
    except ValueError as error:
        raise NotJson(str(error)) from None


def calls_of(value: Any) -> list[Call]:
    """The calls of a JSON value in one of OpenAI's forms. Raises `NotJson` for any other value."""
    if isinstance(value, dict) and "tool_calls" in value:
        value = value["tool_calls"]
    items = value if isinstance(value, list) else [value]
    if not items:
        raise NotJson("no calls")
    return [_call(item) for item in items]


def arguments_of(value: Any) -> dict[str, Any]:
    """The keyword arguments of a call: an object, or an object's JSON text.

    Raises `NotJson` for anything else, and for a name that Python does not take as a keyword.
    """
    if isinstance(value, str):
        value = load_json(value)
    if not isinstance(value, dict):
        raise NotJson("arguments that are no object")
    if not all(map(_is_name, value)):
        raise NotJson("an argument's name that is no keyword argument")
    return value


def callable_name(name: str) -> str:
    """``name`` if it is one that Python can call, dots allowed. Raises `NotJson` otherwise."""
    if not all(map(_is_name, name.split("."))):
        raise NotJson("a function's name that cannot be called")
    return name


def _is_name(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name)


def _call(item: Any) -> Call:
    if isinstance(item, dict) and isinstance(item.get("function"), dict):
        item = item["function"]
    if not isinstance(item, dict) or not isinstance(item.get("name"), str):
        raise NotJson("a call without a name")
    if "arguments" not in item:
        raise NotJson("a call without arguments")
    return Call(callable_name(item["name"]), arguments_of(item["arguments"]))


def _whole(digits: str) -> int:
    if len(digits.removeprefix("-")) > MAX_DIGITS:
        raise NotJson(f"an integer of more than {MAX_DIGITS} digits")
    return int(digits)


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise NotJson("a number beyond those of a computer")
    return number


def _no_constant(name: str) -> NoReturn:
    raise NotJson(f"{name} is not JSON")
