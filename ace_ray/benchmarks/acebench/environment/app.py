"""What all apps share: how one is declared, opened and answered for.

BaseApi is the phone's switches. Neither switch has a precondition or can fail.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import Parameter as SignatureParameter
from inspect import signature
from types import NoneType
from typing import Any, Literal

from ace_ray.sandbox.tools import Parameter, Tool

_FIELD = re.compile(r"\{([^{}]*)\}")


def fill(template: str, values: Mapping[str, Any]) -> str:
    """``template`` with each ``{field}`` that ``values`` has as its ``str()``, in one pass.

    Values are never looked into, so braces in a model's words stay words.
    """
    return _FIELD.sub(lambda m: str(values[m[1]]) if m[1] in values else m[0], template)


class Texts:
    """The answer texts of one class in one language.

    Args:
        methods: ``methods`` in the app specifications of the class.
        names: per method what its texts are called here, in the file's order.
        own: answers that the file has no text for, by name.
    """

    def __init__(
        self,
        methods: Mapping[str, Any],
        names: Mapping[str, Sequence[str]],
        own: Mapping[str, str],
    ) -> None:
        self._own = own
        self._texts = {
            method: dict(zip(names[method], methods[method]["texts"], strict=True))
            for method in names
            if method in methods
        }

    def of(self, method: str, name: str, values: Mapping[str, Any] | None = None) -> str:
        """The text ``name`` of ``method``, filled."""
        return fill(self._texts[method][name], values or {})

    def own(self, name: str, values: Mapping[str, Any] | None = None) -> str:
        return fill(self._own[name], values or {})


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
class InitialState:
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

    ``attributes`` are those its specification must have, with their type and, for lists and objects
    of records, the fields of every record. ``texts`` names each method's answer texts, in the
    file's order. A method in ``optional`` may be missing there and is then no official tool.
    ``saved`` are the attributes of the recorded state.
    """

    name: str
    attributes: Mapping[str, tuple[type, Fields]]
    texts: Mapping[str, Sequence[str]]
    saved: Fields
    open: Callable[[InitialState], Any]
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


def turn_on_wifi(phone: Phone) -> dict[str, Any]:
    phone.wifi = True
    return done(phone.texts.of("turn_on_wifi", "on"))


def login_device(phone: Phone) -> dict[str, Any]:
    phone.logged_in = True
    return done(phone.texts.of("login_device", "logged_in"))


TOOLS = declare("BaseApi", {"turn_on_wifi": (turn_on_wifi, {}), "login_device": (login_device, {})})

BASE = App(
    name="BaseApi",
    attributes={"wifi": (bool, ()), "logged_in": (bool, ())},
    texts={"turn_on_wifi": ("on",), "login_device": ("logged_in",)},
    saved=("wifi", "logged_in"),
    open=lambda initial: initial.phone,
    official=as_official(TOOLS),
    fixed=TOOLS,
)
