"""Calls written as JSON, as upstream reads them (``model_handler/parser/json_parser.py``).

``[{"function": name, "parameters": {...}}, ...]``, with anything before and behind."""

from __future__ import annotations

import json
import re
from typing import Any

from ace_ray.benchmarks.bfcl.decode.reading import Read
from ace_ray.calls import MAX_CHARS, MAX_DEPTH, NotCalls

_NESTING = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)
_LIST_BEGINS = re.compile(r"\[\s*+\{")
_LIST_ENDS = re.compile(r"\}\s*+\]")


def read_json(text: str) -> list[Read]:
    """The calls of a list; none where the text is no JSON.

    Raises `NotCalls` for an object without the two keys, and beyond the bounds of `json_value`."""
    first, last = text.find("["), text.rfind("]")
    if 0 <= first < last:
        text = text[first : last + 1]
    begin = _LIST_BEGINS.search(text)
    end = begin and _LIST_ENDS.search(text, begin.end())
    if begin and end:
        text = text[begin.start() : end.end()]
    try:
        value = json_value(text)
    except json.JSONDecodeError:
        return []
    if not isinstance(value, (list, dict, str)):
        raise NotCalls("JSON that is no list")
    return [_call(item) for item in value if isinstance(item, dict)]


def _call(item: dict[str, Any]) -> Read:
    if "function" not in item or "parameters" not in item:
        raise NotCalls("an object without function and parameters")
    if isinstance(item["function"], (list, dict)):
        raise NotCalls("a function's name that is no text")
    return Read(item["function"], item["parameters"])


def json_value(text: str) -> Any:
    """The value of a JSON text, with Python's leniency (NaN, Infinity).

    Raises `json.JSONDecodeError` where it is none, and `NotCalls` beyond `MAX_CHARS`, `MAX_DEPTH`
    or Python's limit on digits.
    """
    if len(text) > MAX_CHARS:
        raise NotCalls(f"longer than {MAX_CHARS} characters")
    depth = 0
    if text.count("[") + text.count("{") > MAX_DEPTH:
        for found in _NESTING.finditer(text):
            bracket = found[0]
            depth += (bracket in "[{") - (bracket in "]}")
            if depth > MAX_DEPTH:
                raise NotCalls(f"nested more than {MAX_DEPTH} deep")
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except (ValueError, RecursionError) as error:
        raise NotCalls(f"{type(error).__name__} in JSON") from None
