"""Run declared tools, the only code that a model's request can run.

A scenario has a table of its tools by name. A name from a model is only looked up in this table.
Arguments are checked and copied before the call, so a tool may keep or change them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ace_ray.sandbox.protocol import Observation

# Limits on the arguments of one call: nesting, total values, total characters, and digits of an
# integer. The product of a 100-digit number and a price still fits a float.
MAX_DEPTH = 50
MAX_VALUES = 10_000
MAX_CHARS = 1_000_000
MAX_DIGITS = 100

_TOO_LARGE = 10**MAX_DIGITS
_JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}
_JSON_TYPES |= {list: "array", dict: "object"}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A tool's parameter. ``types``: exact types (a bool is not an int); empty: any plain value."""

    name: str
    required: bool = True
    types: tuple[type, ...] = ()


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool: ``function(state, **arguments)``.

    ``name`` is the tool's name in error messages. ``raises``: exceptions that give a ``failed``
    observation, for tools that reproduce a faulty original. Other exceptions are defects."""

    name: str
    function: Callable[..., Any]
    parameters: tuple[Parameter, ...] = ()
    raises: tuple[type[Exception], ...] = ()
    receiver: str = ""
    """Name of the bound parameter, such as "self", if the original tool is a method."""

    def schema(self) -> dict[str, Any]:
        """Return the schema in OpenAI's format, with the first type of each parameter."""
        kinds = {p.name: p.types[:1] for p in self.parameters}
        fields = {name: {"type": _JSON_TYPES[t[0]]} if t else {} for name, t in kinds.items()}
        required = [parameter.name for parameter in self.parameters if parameter.required]
        parameters = {"type": "object", "properties": fields, "required": required}
        return {"type": "function", "function": {"name": self.name, "parameters": parameters}}


def call_tool(tool: Tool, state: Any, arguments: Mapping[str, Any]) -> Observation:
    """Run ``tool`` on ``state``, and return the function's result as an observation.

    Missing, unknown, mistyped or too large arguments give the error ``bad_arguments``, with the
    message of Python if there is one. An exception in ``tool.raises`` gives the error ``failed``.
    """
    problem = _names_problem(tool, arguments)
    if problem:
        return Observation(problem, "bad_arguments")
    try:
        values = _Copier().mapping(arguments)
    except ValueError as error:
        return Observation(f"{tool.name}() {error}", "bad_arguments")
    for parameter in tool.parameters:
        if parameter.types and parameter.name in values:
            actual = type(values[parameter.name])
            if actual not in parameter.types:
                expected = " or ".join(kind.__name__ for kind in parameter.types)
                problem = f"{parameter.name!r} must be {expected}, not {actual.__name__}"
                return Observation(f"{tool.name}() argument {problem}", "bad_arguments")
    try:
        return Observation(tool.function(state, **values))
    except tool.raises as error:
        return Observation(str(error), "failed")


def copy_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Copy the arguments of a call. Raises `ValueError` if they are not plain or too large."""
    return _Copier().mapping(arguments)


def unknown_tool(name: str) -> Observation:
    return Observation(f"there is no tool named {name[:100]!r}", "unknown_tool")


def _names_problem(tool: Tool, arguments: Mapping[str, Any]) -> str:
    names = {parameter.name for parameter in tool.parameters}
    for name in arguments:
        if name and name == tool.receiver:
            return f"{tool.name}() got multiple values for argument '{name}'"
        if name not in names:
            return f"{tool.name}() got an unexpected keyword argument '{str(name)[:100]}'"
    missing = [f"'{p.name}'" for p in tool.parameters if p.required and p.name not in arguments]
    if not missing:
        return ""
    lack = f"missing {len(missing)} required positional argument{'s' * (len(missing) > 1)}"
    listed = " and ".join(missing)
    if len(missing) > 2:
        listed = f"{', '.join(missing[:-1])}, and {missing[-1]}"
    return f"{tool.name}() {lack}: {listed}"


class _Copier:
    """Copies plain values, and counts them against the limits of one call. Raises `ValueError` for
    a value that is not plain, or if a limit is exceeded."""

    def __init__(self) -> None:
        self.values = MAX_VALUES
        self.chars = MAX_CHARS

    def mapping(self, value: Mapping[Any, Any], depth: int = 0) -> dict[Any, Any]:
        for key in value:
            if type(key) is not str and type(key) is not int:
                raise ValueError(f"got a key of type {type(key).__name__}")
        return {self.copy(key, depth): self.copy(item, depth) for key, item in value.items()}

    def copy(self, value: Any, depth: int) -> Any:
        self.values -= 1
        if self.values < 0:
            raise ValueError(f"got more than {MAX_VALUES} values")
        if depth > MAX_DEPTH:
            raise ValueError(f"got values nested deeper than {MAX_DEPTH}")
        kind = type(value)
        if kind is str:
            self.chars -= len(value)
            if self.chars < 0:
                raise ValueError(f"got more than {MAX_CHARS} characters")
        elif kind is int:
            if abs(value) >= _TOO_LARGE:
                raise ValueError(f"got a number of more than {MAX_DIGITS} digits")
        elif kind is list:
            return [self.copy(item, depth + 1) for item in value]
        elif kind is tuple:
            return tuple([self.copy(item, depth + 1) for item in value])
        elif kind is dict:
            return self.mapping(value, depth + 1)
        elif value is not None and kind is not bool and kind is not float:
            raise ValueError(f"got a value of type {kind.__name__}")
        return value
