"""How the official evaluator compares calls with a gold answer.

Facts of ``model_eval/checker.py`` and ``model_eval/utils.py`` at upstream commit 56dd66c, restated.
The functions raise where upstream raises; `official` makes a verdict of that.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from typing import Any, NamedTuple

from ace_ray.benchmarks.acebench.check.official_values import (
    Outcome,
    compare_list,
    compare_objects,
    contains,
    object_differs,
    type_outcome,
)
from ace_ray.calls import Call

_SUFFIX = re.compile(r"_\d+$")
# `number` means int: floats pass by the gold value's own type instead, or by equality.
_TYPES: dict[str, type] = {
    "string": str,
    "any": str,
    "integer": int,
    "int": int,
    "number": int,
    "float": float,
    "boolean": bool,
    "array": list,
    "list": list,
    "tuple": list,
    "list(string)": list,
    "list(enum)": list,
    "objectArray": list,
    "object": dict,
    "dict": dict,
    "enum": enumerate,
}
_NESTED = frozenset(["array", "tuple", "list(string)", "list(enum)", "object", "objectArray"])
_ELSE_INNER = {"list(string)": str, "list(enum)": enumerate}


class Fault(NamedTuple):
    """Why a call or an answer is not accepted."""

    error_type: str
    error: str


def judge(functions: Any, calls: list[Call], gold: dict[str, Any], prints: bool) -> Fault | None:
    """The first fault of ``calls`` against one alternative of the gold answer, None if accepted.

    Each gold call takes any model call of its name that fits; none is used up. The fault of a gold
    call that nothing fits is that of the last call looked at.
    """
    if len(calls) != len(gold):
        return Fault("wrong functions number", f"{len(calls)} calls instead of {len(gold)}")
    names = [_unnumbered(key) for key in gold]
    if len(calls) == 1:
        mismatch = calls[0].name != names[0]
    else:
        mismatch = Counter(call.name for call in calls) != Counter(names)
    if mismatch:
        return Fault("function_mismatch", f"the functions called are not {', '.join(names)}")
    for name, (key, args) in zip(names, gold.items(), strict=True):
        function = _described(functions, key)
        fault: Fault | None = None
        for call in calls:
            if call.name == name:
                fault = _call_fault(function, call, args, prints)
                if fault is None:
                    break
            else:
                fault = Fault("simple_function_checker:unclear", f"no call fits {key}")
        if fault is not None:
            if len(gold) > 1 and prints:
                str(calls)
            return fault
    return None


@functools.lru_cache(maxsize=4096)
def _unnumbered(key: str) -> str:
    return _SUFFIX.sub("", key)


def _described(functions: Any, key: str) -> Any:
    # A substring test on the gold key with its suffix: `get` describes `get_all_2`.
    if not isinstance(functions, list):
        return functions
    for function in functions:
        if function["name"] in key:
            return function
    return None


def _call_fault(function: Any, call: Call, gold: dict[str, Any], prints: bool) -> Fault | None:
    args = call.args
    schema = function["parameters"]
    if not args and schema == {}:
        return None
    if not args or schema == {}:
        return Fault("wrong_param", f"{call.name} is called with the wrong parameters")
    properties = schema["properties"]
    if gold == properties:
        return None
    if gold == {}:
        return Fault("wrong_param", f"{call.name} takes no parameters in the gold answer")
    if function["name"] != call.name:
        return Fault("wrong_function_name", f"{call.name} is described by {function['name']}")
    for param in schema["required"]:
        if param not in args:
            return Fault("lack_args", f"required parameter {param} is missing")
    for param, value in args.items():
        if param not in properties or param not in gold:
            return Fault("addition_args", f"parameter {str(param)[:80]} is not expected")
        error_type = _param_fault(properties[param], value, gold[param], prints)
        if error_type is not None:
            what = "type" if error_type == "type_error" else "value"
            return Fault(error_type, f"parameter {param} has the wrong {what}")
    return None


def _param_fault(schema: Any, value: Any, gold: Any, prints: bool) -> str | None:
    name = schema["type"]
    expected = _TYPES[name]
    inner = _inner_type(schema, name) if name in _NESTED else None
    if name == "tuple" and type(value) is tuple:
        value = list(value)
    elif name == "float" and type(value) is int:
        value = float(value)
    outcome = type_outcome(value, gold, expected, inner, prints)
    if outcome is Outcome.WRONG:
        return "type_error"
    if outcome is Outcome.UNCHECKED:
        return None
    if expected is str:
        return None if contains(value, gold) else "value_error:string"
    if expected is dict:
        return "value_error" if object_differs(value, gold, prints) else None
    if expected is not list:
        return None  # numbers and booleans have no value check
    if inner is not dict:
        return compare_list(value, gold, prints)
    if name == "objectArray":
        if len(value) != len(gold):
            return "value_error:dict_items"
        if value:
            raise TypeError("the check of an objectArray does not work upstream")
    return compare_objects(value, gold, prints)


def _inner_type(schema: Any, name: str) -> type:
    try:
        inner = schema["items"]["type"]
    except (LookupError, TypeError, AttributeError):
        return _ELSE_INNER.get(name, dict)
    return _TYPES[inner]
