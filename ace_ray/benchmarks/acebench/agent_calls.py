"""Read the calls in an agent's message. No part of a message is executed.

The protocol ``official`` reads the calls that upstream's decoders read. ``fixed`` finds the list of
calls that the prompt asks for, anywhere in the message.

``official`` reimplements ``multi_turn/common_agent.py``, ``multi_turn/execution_role.py`` and
``multi_step/execution_role_step.py`` at upstream commit 56dd66c. Upstream evaluates binary
operations when it decodes. It then writes each call as source text and evaluates that text. In
ace_ray, `ace_ray.parsing.constant_folding` computes operations, and no text is evaluated.
`AgentCall.problem` is set if upstream could not write the call as text, or if the text would run
other code too.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Literal

from ace_ray.parsing.constant_folding import Refusal
from ace_ray.parsing.literals import LenientReader, dotted_name, literal
from ace_ray.parsing.syntax import MAX_CODE, MAX_DIGITS, NotCalls, expression

_UNPRINTABLE = 10**MAX_DIGITS
# Names that are defined where upstream calls `eval`. Any other name raises NameError there.
_KNOWN = {
    *dir(builtins), "__builtins__", "__cached__", "__file__", "APIAgent_turn", "CommonAgent",
    "EXECUTION", "EXECUTION_STEP", "List", "OpenAI", "STATELESS_CLASSES", "ast", "copy",
    "execute_agent_func_call", "importlib", "inspect", "is_empty_execute_response", "json", "os",
    "re", "self", "value",
}  # fmt: skip
_KNOWN_ENDINGS = ("_EN", "_ZH", "_instance")
# The tool that upstream finds in a dotted name; none if it begins with another character.
_TOOL = re.compile(r"\b[a-zA-Z_]\w*$")


# Placeholder for the value of an operation that upstream evaluates and ace_ray does not.
_NOT_EVALUATED = object()


@dataclass(frozen=True, slots=True)
class AgentCall:
    """One call of an agent: a name, which may have dots, and arguments that are JSON values.

    A call with a ``problem`` runs no tool and returns an error; ``arguments`` may be incomplete."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    problem: str = ""
    tool: str = ""
    """Tool that upstream looks up if ``name`` is dotted (``f`` for ``m.f``); "" means ``name``."""


def official_calls(text: str, *, need_brackets: bool) -> list[AgentCall]:
    """Return the calls that upstream reads in a message. Raises `NotCalls` where upstream raises.

    One leading blank is removed, then every ``[``, ``]`` and ``'`` at both ends. The rest must be
    one expression: a call, or a tuple or list of calls. Any other expression gives an empty list.
    Positional arguments are dropped, names become strings, and any unary operator negates: ``+1``
    is -1. A nested call without keyword arguments becomes a string with its source text. A dict as
    an argument raises `NotCalls`. But if its first value is a dict, upstream would run the argument
    as a call; the outer call then gets a ``problem``.

    ``need_brackets`` (agent_multi_turn): raise unless a line has a ``[`` and after it a ``]``.

    Nothing is evaluated. Tuples become lists. A call also gets a ``problem`` if it has bytes,
    complex numbers, sets, or dicts with a key that is not a string."""
    bracketed = any(-1 < line.find("[") < line.rfind("]") for line in text.split("\n"))
    if not text or (need_brackets and not bracketed):
        raise NotCalls("no brackets")
    # Upstream also adds missing outer brackets first, but then strips them with the others.
    tree = expression(text.removeprefix(" ").strip("[]'"))
    reader = _Reader(
        lambda name: name in _KNOWN or name.endswith(_KNOWN_ENDINGS), bare_as_source=True
    )
    if isinstance(tree, ast.Call):
        return [_agent_call(*reader.call(tree))]
    if not isinstance(tree, (ast.Tuple, ast.List)):
        return []
    calls = []
    for item in tree.elts:
        if not isinstance(item, ast.Call):
            raise NotCalls("an element that is not a call")
        calls.append(_agent_call(*reader.call(item)))
    return calls


def plain_json(value: Any) -> Any:
    """Convert ``value`` to a JSON value, tuples to lists. Raises `NotCalls` for other values."""
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, int):
        if abs(value) < _UNPRINTABLE:
            return value
    elif isinstance(value, float):
        if isfinite(value):
            return value
    elif isinstance(value, (list, tuple)):
        return [plain_json(item) for item in value]
    elif isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: plain_json(item) for key, item in value.items()}
    raise NotCalls(f"a value that JSON does not have ({type(value).__name__})")


def _agent_call(name: str, args: dict[str | None, Any]) -> AgentCall:
    arguments, problems = {}, []
    for key, value in args.items():
        if problem := _problem(value):
            problems.append(problem)
        elif key is None:
            problems.append("** cannot be written back")
        else:
            try:
                arguments[key] = plain_json(value)
            except NotCalls as error:
                problems.append(f"{key}: {error}")
    if "." in name:
        # Upstream evaluates the name before the arguments, so this problem comes first.
        problems.insert(0, f"name {name.partition('.')[0]!r} is not defined")
    match = _TOOL.search(name) if "." in name else None
    tool = match.group() if match else ""
    return AgentCall(name, arguments, problems[0] if problems else "", tool)


def _problem(value: Any) -> str:
    """Return the `AgentCall.problem` that an argument causes, or "" if it causes none.

    Raises `NotCalls` where upstream raises when it writes the argument as source text."""
    if value is _NOT_EVALUATED:
        return "an operation that is not evaluated"
    if isinstance(value, dict):
        inner = next(iter(value.values()), None)
        if inner is _NOT_EVALUATED:
            return "an operation that is not evaluated"
        if not isinstance(inner, dict):
            raise NotCalls("a dict as an argument")
        for item in inner.values():
            _problem(item)
        return "a call as an argument is not run"
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            pending += [*item, *item.values()]
        elif isinstance(item, (list, tuple, set)):
            pending += item
        elif isinstance(item, int) and abs(item) >= _UNPRINTABLE:
            raise NotCalls(f"an integer of more than {MAX_DIGITS} digits")
        elif item is _NOT_EVALUATED:
            return "an operation that is not evaluated"
    return ""


class _Reader(LenientReader):
    def operation(self, node: ast.BinOp) -> Any:
        try:
            return super().operation(node)
        except Refusal:
            return _NOT_EVALUATED


# The opening of a list of calls.
_OPENING = re.compile(r"\[\s*+[^\W\d][\w.]*+\s*+\(")
# Tokens that decide where a list ends. A string has its closing quote in a group, "" if unclosed.
_TOKEN = re.compile(
    r"""'[^'\\\n]*+(?:\\.[^'\\\n]*+)*+('?)|"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+("?)|[\[\]]"""
)
# Maximum openings tried in one message. Their lists may have `MAX_CODE` characters in total.
_MAX_LISTS = 20


def agent_calls(
    text: str, *, loop: Literal["multi_turn", "multi_step"], protocol: Literal["official", "fixed"]
) -> list[AgentCall] | None:
    """Return the calls of a message in order, or None if no calls can be read. Never raises.

    After None, a multi_turn message goes to the user, and a multi_step message is refused. The
    protocol ``official`` gives an empty list for an expression that is not a call or list (see
    `official_calls`). The protocol ``fixed`` reads the first list whose items are all calls, such
    as ``f(...)`` or ``a.b(...)``. A call has a ``problem`` if its arguments are not literal keyword
    arguments. Time and memory are bounded."""
    try:
        if protocol == "fixed":
            return _first_list(text)
        return official_calls(text, need_brackets=loop == "multi_turn")
    except (NotCalls, RecursionError):
        return None


def _first_list(text: str) -> list[AgentCall] | None:
    if len(text) > MAX_CODE:
        return None
    budget_chars = MAX_CODE
    for fragment in _call_lists(text):
        budget_chars -= len(fragment)
        if budget_chars < 0:
            break
        try:
            tree = expression(fragment)
            if isinstance(tree, ast.List):
                return [_call(item) for item in tree.elts]
        except NotCalls:
            continue
    return None


def _call_lists(text: str) -> Iterator[str]:
    """Yield the parts of ``text`` that may be lists of calls, from bracket to closing bracket.

    Brackets inside strings are ignored."""
    for tried, opening in enumerate(_OPENING.finditer(text)):
        if tried == _MAX_LISTS:
            return
        depth = 0
        for token in _TOKEN.finditer(text, opening.start()):
            if "" in token.groups():  # an unclosed string: not a list of calls
                break
            depth += {"[": 1, "]": -1}.get(token.group(), 0)
            if depth == 0:
                yield text[opening.start() : token.end()]
                break


def _call(node: ast.expr) -> AgentCall:
    name = dotted_name(node.func) if isinstance(node, ast.Call) else None
    if not isinstance(node, ast.Call) or name is None:
        raise NotCalls("an element that is not a call of a named function")
    call = AgentCall(name, {}, "positional arguments are not supported" if node.args else "")
    for keyword in node.keywords:
        if keyword.arg is None or keyword.arg in call.arguments:
            problem = "** is not supported" if keyword.arg is None else f"{keyword.arg} is repeated"
            call = AgentCall(name, call.arguments, call.problem or problem)
            continue
        try:
            call.arguments[keyword.arg] = plain_json(literal(keyword.value))
        except NotCalls as error:
            call = AgentCall(name, call.arguments, call.problem or f"{keyword.arg}: {error}")
    return call
