"""Read the calls of an answer, and compare them with expected calls (docs/calls.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.external_outputs import quote
from ace_ray.benchmarks.json_schema import Schema, schema_fault
from ace_ray.parsing.syntax import MAX_CODE, bounded_json
from ace_ray.types import Verdict

# A call: ``name`` and ``arguments``, which is None if the model's text is not a JSON object.
Call = Mapping[str, Any]
# Notations of an expected value: ``{"$one_of": [...]}`` accepts each listed value.
# ``{"$optional": [...]}`` also accepts an object without the key.
ONE_OF, OPTIONAL = "$one_of", "$optional"


def read_text(text: str) -> list[Call]:
    """Return the calls of an answer of prompt mode: a JSON list of ``{name, arguments}``, or one
    such object, alone or in one code fence. Any other text is read as words."""
    text = text.strip()
    if len(text) >= 6 and text.startswith("```") and text.endswith("```"):
        text = text[3:-3].removeprefix("json")
    value = _json(text)
    calls = value if isinstance(value, list) else [value]
    form = {"name": str, "arguments": dict}
    forms = [{k: type(v) for k, v in call.items()} for call in calls if isinstance(call, dict)]
    return calls if forms == [form] * len(calls) else []


def read_native(calls: Sequence[Mapping[str, Any]]) -> list[Call]:
    """Return the calls that a tool parser or an endpoint read, from OpenAI's form."""
    functions = [call["function"] for call in calls]
    values = [(function["name"], _json(function["arguments"])) for function in functions]
    return [{"name": n, "arguments": v if isinstance(v, dict) else None} for n, v in values]


def _json(text: str) -> Any:
    """Parse a model's JSON text within bounds; None if it is not JSON."""
    try:
        value = bounded_json(text, MAX_CODE)
        json.dumps(value, allow_nan=False)
    except ValueError:  # `NotCalls`, and numbers that are not finite
        return None
    return value


def _choices(expected: Any) -> list[Any] | None:
    """Return the values that a notation lists; None for a plain value."""
    if not isinstance(expected, dict) or len(expected) != 1:
        return None
    choices = expected.get(ONE_OF, expected.get(OPTIONAL))
    return choices if isinstance(choices, list) else None


def _required(expected: Mapping[str, Any]) -> list[str]:
    return [k for k, v in expected.items() if not isinstance(v, dict) or v.keys() != {OPTIONAL}]


def example(expected: Any, index: int = 0) -> Any:
    """Return a plain value that matches ``expected``, with the alternative at ``index`` of each
    list of alternatives. Optional keys are included with 0 and left out with -1."""
    if (choices := _choices(expected)) is not None:
        return example(choices[index], index)
    if isinstance(expected, dict):
        keys = _required(expected) if index else expected
        return {key: example(expected[key], index) for key in keys}
    return [example(part, index) for part in expected] if isinstance(expected, list) else expected


def difference(expected: Any, value: Any, path: str = "arguments") -> str:
    """Describe the first difference between ``value`` and an expected value; "" if it fits."""
    if (choices := _choices(expected)) is not None:
        fits = any(not difference(choice, value) for choice in choices)
        return "" if fits else f"{path} is {quote(value)}, not one of {quote(choices)}"
    keys: Any = ()
    # Integers and floats are one type of JSON, booleans another.
    kinds = {float if type(part) is int else type(part) for part in (expected, value)}
    if kinds == {dict}:
        missing = [key for key in _required(expected) if key not in value]
        if missing or value.keys() - expected:
            return f"{path} has the keys {quote([*value])}, not {quote([*expected])}"
        keys = value
    elif kinds == {list} and len(expected) == len(value):
        keys = range(len(value))
    elif len(kinds) > 1 or expected != value:
        return f"{path} is {quote(value)}, not {quote(expected)}"
    faults = (difference(expected[key], value[key], f"{path}.{key}") for key in keys)
    return next(filter(None, faults), "")


def judge(
    expected: Sequence[Call], calls: Sequence[Call], schemas: Mapping[str, Schema], ordered: bool
) -> Verdict:
    """Return the verdict on ``calls``. ``schemas``: the schema of each offered tool's arguments.

    The metrics are the row's parts of the run's numbers, each 0 or 1, where they apply."""
    due, called = bool(expected), bool(calls)
    expected_names, names = ([call["name"] for call in group] for group in (expected, calls))
    right_name = expected_names == names or (
        not ordered and sorted(expected_names) == sorted(names)
    )
    error = _argument_fault(expected, calls, ordered) if right_name else ""
    error_type = "wrong_arguments" if error else ""
    if not right_name:
        error_type = "unwanted_call" if not due else "wrong_name" if called else "no_call"
        error = f"called {quote(names[:20])}, expected {quote(expected_names)}"
        error += " in this order" * ordered
    schemas_of_calls = [(schemas.get(call["name"]), call["arguments"]) for call in calls]
    fits = all(s is not None and not schema_fault(s, value) for s, value in schemas_of_calls)
    parts = {
        "right_name": (due, right_name),
        "right_arguments": (due and right_name, not error),
        "schema_valid": (called, fits),
        "trigger_precision": (called, due),
        "trigger_recall": (due, called),
        "trigger_f1": (due or called, due and called),
        "no_call": (not due, not called),
    }
    metrics = {name: float(value) for name, (applies, value) in parts.items() if applies}
    return Verdict(not error_type, error_type, error, metrics)


def _argument_fault(expected: Sequence[Call], calls: Sequence[Call], ordered: bool) -> str:
    """Describe an expected call that no call matches; "" if each matches a different call. The
    names must be right."""
    owners: dict[int, int] = {}  # call -> the expected call that it matches
    faults: list[str] = []

    def assign(index: int, tried: set[int]) -> bool:
        name, arguments = expected[index]["name"], expected[index]["arguments"]
        for n, call in enumerate(calls):
            if n in tried or call["name"] != name or (ordered and n != index):
                continue
            if fault := difference(arguments, call["arguments"], f"{name}: arguments"):
                faults.append(fault)
                continue
            tried.add(n)
            # The expected call that owns this call may move to another call.
            if n not in owners or assign(owners[n], tried):
                owners[n] = index
                return True
        return False

    return "" if all(assign(n, set()) for n in range(len(expected))) else faults[-1]
