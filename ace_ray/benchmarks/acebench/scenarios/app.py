"""What all apps share: how one is declared, opened and answered for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import Parameter as SignatureParameter
from inspect import signature
from types import NoneType
from typing import Any, Literal

from ace_ray.benchmarks.acebench.scenarios.texts import Texts
from ace_ray.sandbox.tools import Parameter, Tool

Behaviour = Literal["official", "fixed"]

AS_PYTHON = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What the official classes end with on arguments and states that they did not expect."""

Fields = tuple[str, ...]


@dataclass
class Phone:
    """The switches of the one phone. The official sandbox keeps a copy in each app, but sets and
    switches all of them together, so they never differ."""

    wifi: bool
    logged_in: bool
    texts: Texts


@dataclass(frozen=True)
class Opening:
    """What an app starts from. ``state`` is its own copy, integer keys restored; ``config`` is the
    entry's ``initial_config["BaseApi"]``."""

    state: dict[str, Any]
    texts: Texts
    phone: Phone
    language: str
    fixed: bool
    config: Mapping[str, Any]


@dataclass(frozen=True)
class App:
    """One sandbox class.

    ``attributes`` are those the world file must have, with their type and, for lists and objects of
    records, the fields of every record. ``texts`` names each method's answer texts, in the file's
    order. A method in ``optional`` may be missing there and is then no official tool.
    ``saved`` are the attributes of the recorded state.
    """

    name: str
    attributes: Mapping[str, tuple[type, Fields]]
    texts: Mapping[str, Sequence[str]]
    saved: Fields
    open: Callable[[Opening], Any]
    official: Mapping[str, Tool]
    fixed: Mapping[str, Tool]
    own: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    optional: frozenset[str] = frozenset()


Signature = tuple[Callable[..., Any], Mapping[str, type]]
"""A function and its arguments' types, in the function's order; ``object`` is anything."""


def declare(owner: str, functions: Mapping[str, Signature]) -> dict[str, Tool]:
    """Tools with typed parameters; one with a default may be left out, or None."""
    return {
        name: Tool(
            f"{owner}.{name}",
            function,
            tuple(_parameter(function, key, kind) for key, kind in types.items()),
        )
        for name, (function, types) in functions.items()
    }


def _parameter(function: Callable[..., Any], name: str, kind: type) -> Parameter:
    required = signature(function).parameters[name].default is SignatureParameter.empty
    if kind is object:
        return Parameter(name, required)
    return Parameter(name, required, (kind,) if required else (kind, NoneType))


def as_official(tools: Mapping[str, Tool]) -> dict[str, Tool]:
    """The same tools as the official classes have them: any value is tried, and may raise."""
    return {
        name: replace(
            tool,
            parameters=tuple(replace(parameter, types=()) for parameter in tool.parameters),
            raises=AS_PYTHON,
            receiver="self",
        )
        for name, tool in tools.items()
    }


def refused(message: str) -> dict[str, Any]:
    return {"status": False, "message": message}


def done(message: str) -> dict[str, Any]:
    return {"status": True, "message": message}
