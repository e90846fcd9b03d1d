"""Declare apps: their tools, answer texts and initial state."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter as SignatureParameter
from inspect import signature
from typing import Any

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
        optional: methods that may be missing.

    Raises what Python raises where the specifications lack a method or a text.
    """

    def __init__(
        self,
        methods: Mapping[str, Any],
        names: Mapping[str, Sequence[str]],
        optional: Collection[str] = (),
    ) -> None:
        self._texts = {
            method: dict(zip(names[method], methods[method]["texts"], strict=True))
            for method in names
            if method in methods or method not in optional
        }

    def of(self, method: str, name: str, values: Mapping[str, Any] | None = None) -> str:
        """The text ``name`` of ``method``, filled."""
        return fill(self._texts[method][name], values or {})


AS_PYTHON = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What the official classes end with on arguments and states that they did not expect."""


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
    config: Mapping[str, Any]


@dataclass(frozen=True)
class App:
    """One sandbox class.

    ``texts`` names each method's answer texts, in the file's order. A method in ``optional`` may be
    missing there and is then no tool. ``saved`` are the attributes of the recorded state.
    """

    name: str
    texts: Mapping[str, Sequence[str]]
    saved: Sequence[str]
    open: Callable[[InitialState], Any]
    tools: Mapping[str, Tool]
    optional: frozenset[str] = frozenset()


def declare(owner: str, *functions: Callable[..., Any]) -> dict[str, Tool]:
    """Tools that are named like their functions and take what follows the state.

    As in the official classes any value is tried, and what it raises is the tool's answer.
    """
    return {
        function.__name__: Tool(
            f"{owner}.{function.__name__}",
            function,
            tuple(
                Parameter(name, parameter.default is SignatureParameter.empty)
                for name, parameter in list(signature(function).parameters.items())[1:]
            ),
            raises=AS_PYTHON,
            receiver="self",
        )
        for function in functions
    }


def refused(message: str) -> dict[str, Any]:
    return {"status": False, "message": message}


def done(message: str) -> dict[str, Any]:
    return {"status": True, "message": message}
