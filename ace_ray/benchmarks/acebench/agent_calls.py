"""Which messages of an agent are calls, and which calls with which arguments.

Two ways of reading: ``official`` takes for calls what the decoders of the upstream loops take,
``fixed`` finds the list of calls that the prompt asks for, wherever it stands in the message.
Nothing of a message is run.

The former are facts of ``multi_turn/common_agent.py``, ``multi_turn/execution_role.py`` and
``multi_step/execution_role_step.py`` at upstream commit 56dd66c, restated. Upstream evaluates
binary operations when it decodes, and writes each call back as source text to evaluate that. Here
operations are folded (`ace_ray.parsing.fold`); a call that could not be written back, or would run
more than its tool, has an `AgentCall.problem`.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Literal

from ace_ray.parsing import (
    MAX_CODE,
    MAX_DIGITS,
    LenientReader,
    NotCalls,
    Refused,
    dotted_name,
    expression,
    literal,
)

_UNPRINTABLE = 10**MAX_DIGITS
# Names that upstream's decoders know. With any other name an operation raises NameError there.
_KNOWN = {
    *dir(builtins), "__builtins__", "__cached__", "__file__", "APIAgent_turn", "CommonAgent",
    "EXECUTION", "EXECUTION_STEP", "List", "OpenAI", "STATELESS_CLASSES", "ast", "copy",
    "execute_agent_func_call", "importlib", "inspect", "is_empty_execute_response", "json", "os",
    "re", "self", "value",
}  # fmt: skip
_KNOWN_ENDINGS = ("_EN", "_ZH", "_instance")
_TOOL = re.compile(r"\b[a-zA-Z_]\w*$")


class _NotEvaluated:
    """Stands for the value of an operation that upstream would evaluate and ace_ray does not."""


_NOT_EVALUATED = _NotEvaluated()


@dataclass(frozen=True, slots=True)
class AgentCall:
    """One call of an agent: a (dotted) name and arguments that are JSON values.

    With a ``problem`` the call answers with an error and runs no tool; ``arguments`` is what could
    be read.
    """

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    problem: str = ""
    tool: str = ""
    """The tool that upstream looks for, where that is not the name: that of ``m.f()`` is ``f``."""


def official_calls(text: str, *, need_brackets: bool) -> list[AgentCall]:
    """The calls that upstream reads in a message. Raises `NotCalls` where its decoders raise.

    One leading blank goes, then all of ``[``, ``]`` and ``'`` at both ends; what is left must be
    one expression. A call is read, or a tuple or list of calls; any other expression gives an empty
    list. Positional arguments are dropped, names become texts, every sign negates, a nested call
    without keywords becomes its source text. An argument that is a dict raises, unless its first
    value is a dict (upstream would run it as a call).

    ``need_brackets``: whether one line must hold a ``[`` and after it a ``]`` (multi_turn).

    Differs from upstream in what is not evaluated, and in how arguments arrive: tuples as lists;
    bytes, complex numbers, sets and dicts with keys that are no texts are problems.
    """
    if not text or (need_brackets and not _bracketed(text)):
        raise NotCalls("no brackets")
    # Upstream adds missing outer brackets first, only to strip them with the others.
    tree = expression(text.removeprefix(" ").strip("[]'"))
    reader = _Reader(_is_known, bare_as_source=True)
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
    """``value`` as a JSON value, tuples as lists. Raises `NotCalls` for what is none."""
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


def _bracketed(text: str) -> bool:
    return any(-1 < line.find("[") < line.rfind("]") for line in text.split("\n"))


def _agent_call(name: str, given: dict[str | None, Any]) -> AgentCall:
    arguments, problems = {}, []
    for key, value in given.items():
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
        # The arguments are evaluated after the name.
        problems.insert(0, f"name {name.partition('.')[0]!r} is not defined")
    return AgentCall(name, arguments, problems[0] if problems else "", _tool(name))


def _tool(name: str) -> str:
    """The tool that upstream's expression finds in a call's text, "" for the name itself. A name
    that does not end like one of ASCII is no tool's."""
    match = _TOOL.search(name) if "." in name else None
    return match.group() if match else ""


def _problem(value: Any) -> str:
    """Why an argument cannot be written back as text and evaluated, "" when it can.

    Raises `NotCalls` where upstream cannot write it at all.
    """
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
        except Refused:
            return _NOT_EVALUATED


def _is_known(name: str) -> bool:
    return name in _KNOWN or name.endswith(_KNOWN_ENDINGS)


# Where a list of calls may begin, and what matters for finding its end.
_OPENING = re.compile(r"\[\s*+[^\W\d][\w.]*+\s*+\(")
# A string has what closes it in a group, "" where nothing does.
_TOKEN = re.compile(
    r"""'[^'\\\n]*+(?:\\.[^'\\\n]*+)*+('?)|"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+("?)|[\[\]]"""
)
_MAX_LISTS = 20
"""Openings that are tried in one message, if all their lists together keep within `MAX_CODE`."""


def agent_calls(
    text: str, *, loop: Literal["multi_turn", "multi_step"], protocol: Literal["official", "fixed"]
) -> list[AgentCall] | None:
    """The calls of a message, in order; None when it is none.

    None means that a multi_turn message goes to the user, and that a multi_step message cannot be
    decoded. The list is empty only under ``official`` (see `official_calls`); ``fixed`` takes the
    first list of at least one call of a named function. A call whose arguments are not literal
    keyword arguments has a ``problem``. Bounded in time and memory; never raises.
    """
    try:
        if protocol == "fixed":
            return _first_list(text)
        return official_calls(text, need_brackets=loop == "multi_turn")
    except (NotCalls, RecursionError):
        return None


def _first_list(text: str) -> list[AgentCall] | None:
    if len(text) > MAX_CODE:
        return None
    left = MAX_CODE
    for fragment in _lists(text):
        left -= len(fragment)
        if left < 0:
            break
        try:
            return _calls(expression(fragment))
        except NotCalls:
            continue
    return None


def _lists(text: str) -> Iterator[str]:
    """Texts from an opening bracket to its partner, brackets in strings left out of account."""
    for tried, opening in enumerate(_OPENING.finditer(text)):
        if tried == _MAX_LISTS:
            return
        depth = 0
        for token in _TOKEN.finditer(text, opening.start()):
            if "" in token.groups():  # a string that does not end: not a list of calls
                break
            depth += {"[": 1, "]": -1}.get(token.group(), 0)
            if depth == 0:
                yield text[opening.start() : token.end()]
                break


def _calls(tree: ast.expr) -> list[AgentCall]:
    if not isinstance(tree, ast.List):
        raise NotCalls("not a list")
    return [_call(item) for item in tree.elts]


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
