"""Declare apps: their tools, answer texts and initial state."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import wraps
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

    Raises `KeyError` or `ValueError` if the specifications lack a method or a text."""

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

    def fill_text(self, method: str, name: str, values: Mapping[str, Any] | None = None) -> str:
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

    def make_state(self, kind: type[Any]) -> Any:
        """Make an object of a dataclass, whose fields are attributes of this object (except
        ``state``) or keys of ``state``."""
        values = {name: value for name, value in vars(self).items() if name != "state"}
        names = [field.name for field in fields(kind) if field.init]
        return kind(**{n: values[n] if n in values else self.state[n] for n in names})


@dataclass(frozen=True)
class App:
    """A class of upstream's sandbox, such as BaseApi or Travel.

    Attributes:
        kind: class of the state, which `InitialState.make_state` makes; `Phone` is shared by all
            apps.
        saved: attributes of the recorded state.
        texts: names of the texts that each method answers with, in the specifications' order.
        optional: methods that the specifications may lack; missing methods are not tools."""

    name: str
    kind: type[Any]
    saved: Sequence[str]
    texts: Mapping[str, Sequence[str]]
    tools: Mapping[str, Tool]
    optional: frozenset[str]


def declare(
    name: str,
    kind: type[Any],
    *,
    saved: str,
    texts: Mapping[Callable[..., Any], str | None],
    optional: frozenset[str] = frozenset(),
    plain: bool = False,
) -> App:
    """Return an app. Each key of ``texts`` is a tool: a function whose first parameter is the
    state. The key's value has the names of the tool's answer texts, separated by blanks, or is
    None. With ``plain``, a tool that returns a `Reply` answers with the reply's text alone.

    As in the official classes, arguments of any type are accepted, and errors become answers."""
    tools = {
        function.__name__: Tool(
            f"{name}.{function.__name__}",
            _wrap_tool(function, plain),
            tuple(
                Parameter(key, parameter.default is SignatureParameter.empty)
                for key, parameter in list(signature(function).parameters.items())[1:]
            ),
            raises=AS_PYTHON,
            receiver="self",
        )
        for function in texts
    }
    names = {method.__name__: words.split() for method, words in texts.items() if words}
    return App(name, kind, saved.split(), names, tools, optional)


class Reply(Exception):
    """An answer that consists of a status and the tool's text ``name``, with ``values`` filled in.
    A tool returns a reply, or raises a reply to refuse the call."""

    def __init__(self, status: bool, name: str, values: Mapping[str, Any]) -> None:
        super().__init__(name)
        self.status, self.name, self.values = status, name, values


def success(name: str, **values: Any) -> Reply:
    return Reply(True, name, values)


def refusal(name: str, **values: Any) -> Reply:
    return Reply(False, name, values)


def require(condition: object, name: str, **values: Any) -> None:
    """Unless ``condition`` is true, refuse the call with the tool's message called ``name``."""
    if not condition:
        raise refusal(name, **values)


def _wrap_tool(function: Callable[..., Any], plain: bool) -> Callable[..., Any]:
    """Convert the `Reply` of a tool to the official form of an answer."""

    @wraps(function)
    def answer(app: Any, **arguments: Any) -> Any:
        try:
            result = function(app, **arguments)
        except Reply as reply:
            result = reply
        if not isinstance(result, Reply):
            return result
        text = app.texts.fill_text(function.__name__, result.name, result.values)
        return text if plain else {"status": result.status, "message": text}

    return answer
