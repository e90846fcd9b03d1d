"""Which messages of an agent are calls, and which calls with which arguments.

Two ways of reading: ``official`` takes for calls what the decoders of the upstream loops take
(`official_calls`), ``fixed`` finds the list of calls that the prompt asks for, wherever it stands
in the message. Nothing of a message is run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Literal

from ace_ray.benchmarks.acebench.agent.official_calls import AgentCall, official_calls, plain_json
from ace_ray.calls import MAX_CODE, NotCalls, dotted_name, expression, literal

__all__ = ["AgentCall", "agent_calls"]

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
