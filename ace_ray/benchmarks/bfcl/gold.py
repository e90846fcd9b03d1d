"""One right answer of an entry, out of its acceptable values.

Per parameter the first acceptable value that is not "", which marks what may be left out; a
parameter whose first is "", or null, is left out unless the function requires it. This rule passes
upstream's checker on 2,345 of the 2,351 Python entries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ace_ray.calls import Call, render


def gold_calls(gold: Sequence[Mapping[str, Any]], functions: Sequence[Any]) -> list[Call]:
    """The calls of ``gold``, an entry's answers as published: ``[{name: {parameter: values}}]``."""
    required = {
        function["name"]: set(function["parameters"].get("required", ())) for function in functions
    }
    return [
        Call(name, _arguments(acceptable, required.get(name, set())))
        for expected in gold
        for name, acceptable in expected.items()
    ]


def gold_text(gold: Sequence[Mapping[str, Any]], functions: Sequence[Any]) -> str:
    """The same as a Python list of calls, the form that prompts ask for."""
    return render(gold_calls(gold, functions))


def _arguments(acceptable: Mapping[str, Sequence[Any]], required: set[str]) -> dict[str, Any]:
    return {
        name: _first(values)
        for name, values in acceptable.items()
        if name in required or (values and values[0] not in ("", None))
    }


def _first(values: Sequence[Any]) -> Any:
    return _plain(next((value for value in values if value != ""), ""))


def _plain(value: Any) -> Any:
    """An acceptable value as a value: keys of objects hold acceptable values of their own."""
    if isinstance(value, Mapping):
        return {
            key: _first(inner) if isinstance(inner, list) else inner for key, inner in value.items()
        }
    if isinstance(value, list):
        return [_plain(item) if isinstance(item, Mapping) else item for item in value]
    return value
