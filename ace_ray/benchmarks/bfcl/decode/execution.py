"""Decoded calls as the texts that upstream executes (``model_handler/utils.py``)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.bfcl.decode.json_calls import json_value
from ace_ray.calls import NotCalls
from ace_ray.records import ToolCall


def execution_texts(decoded: Iterable[Mapping[Any, Mapping[Any, Any]]]) -> list[str]:
    """One text ``name(key=value, ...)`` a call.

    An object whose values are all objects is written as a nested call of its first key, so that
    an empty one cannot be written. Raises `NotCalls` there, and for a number that Python does not
    print.
    """
    try:
        return [_call(name, args) for call in decoded for name, args in call.items()]
    except ValueError as error:
        raise NotCalls(str(error)[:200]) from None


def native_texts(calls: Sequence[ToolCall]) -> list[str]:
    """The same of calls that a tool parser read; all values are written as Python prints them.

    Raises `NotCalls` for arguments that are no JSON object."""
    texts = []
    for call in calls:
        try:
            args = json_value(call.arguments)
            if not isinstance(args, dict):
                raise NotCalls("arguments that are no object")
            pairs = ",".join([f"{key}={value!r}" for key, value in args.items()])
        except json.JSONDecodeError:
            raise NotCalls("arguments that are no JSON") from None
        texts.append(f"{call.name}({pairs})")
    return texts


def _call(name: Any, args: Mapping[Any, Any]) -> str:
    return f"{name}({', '.join([f'{key}={_value(value)}' for key, value in args.items()])})"


def _value(value: Any) -> str:
    if not isinstance(value, dict):
        return repr(value)
    if not all(isinstance(inner, dict) for inner in value.values()):
        return "{" + ", ".join([f"'{key}': {_value(item)}" for key, item in value.items()]) + "}"
    if not value:
        raise NotCalls("an empty object in a call")
    name = next(iter(value))
    return _call(name, value[name])
