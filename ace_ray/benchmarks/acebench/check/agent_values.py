"""When two JSON values, or two calls, are the same under the strict rules."""

from __future__ import annotations

from typing import Any

from ace_ray.calls import Call

_NUMBERS = (int, float)


def same_value(value: Any, gold: Any) -> bool:
    """Whether ``value`` equals ``gold`` as JSON: numbers by value, ``true`` is not ``1``.

    Lists are ordered, objects have the same keys. Goes no deeper than ``gold``.
    """
    if isinstance(gold, dict):
        if not isinstance(value, dict) or value.keys() != gold.keys():
            return False
        return all(same_value(value[key], item) for key, item in gold.items())
    if isinstance(gold, list):
        if not isinstance(value, list) or len(value) != len(gold):
            return False
        return all(map(same_value, value, gold))
    if isinstance(gold, _NUMBERS) and not isinstance(gold, bool):
        return isinstance(value, _NUMBERS) and not isinstance(value, bool) and value == gold
    return type(value) is type(gold) and bool(value == gold)


def same_call(call: Call, gold: Call) -> bool:
    """Whether name, argument names and values are the same; a call without a name equals none."""
    return bool(gold.name) and call.name == gold.name and same_value(call.args, gold.args)
