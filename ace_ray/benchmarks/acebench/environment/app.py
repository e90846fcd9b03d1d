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
    """Replace each ``{field}`` in ``template`` by its value as a string, in one pass.

    Fields inside values are not replaced, so braces in a model's words stay as they are."""
    return _FIELD.sub(lambda m: str(values[m[1]]) if m[1] in values else m[0], template)


class Texts:
    """Answer texts of one class in one language.

    Args:
        methods: ``methods`` of the class in the app specifications.
        names: names for each method's texts, in the order of the specifications.
        optional: methods that may be missing.

    Raises `KeyError` or `ValueError` if the specifications lack a method or a text.
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
        """Return the text ``name`` of ``method``, with ``values`` filled in."""
        return fill(self._texts[method][name], values or {})


# Errors that the official classes raise on unexpected arguments and states.
AS_PYTHON = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


@dataclass
class Phone:
    """Switches of the phone, shared by its apps. The official sandbox has a copy in each app and
    changes all copies together."""

    wifi: bool
    logged_in: bool
    texts: Texts


@dataclass(frozen=True)
class InitialState:
    """Initial state of an app. ``state`` is a copy of the specified state with integer keys
    restored; ``config`` is the entry's ``initial_config["BaseApi"]``."""

    state: dict[str, Any]
    texts: Texts
    phone: Phone
    language: str
    config: Mapping[str, Any]


@dataclass(frozen=True)
class App:
    """A class of upstream's sandbox, such as BaseApi or Travel.

    Attributes:
        texts: names of the texts that each method answers with, in the specifications' order.
        optional: methods that the specifications may lack; then they are not tools.
        saved: attributes of the recorded state.
    """

    name: str
    texts: Mapping[str, Sequence[str]]
    saved: Sequence[str]
    open: Callable[[InitialState], Any]
    tools: Mapping[str, Tool]
    optional: frozenset[str] = frozenset()


def declare(owner: str, *functions: Callable[..., Any]) -> dict[str, Tool]:
    """Return tools for ``functions`` by name. The first parameter of a function is the state.

    As in the official classes, arguments of any type are accepted, and errors become answers."""
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
