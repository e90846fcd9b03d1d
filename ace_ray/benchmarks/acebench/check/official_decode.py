"""How the official evaluator finds and reads calls in an output.

Facts of ``eval_main.py`` and ``model_inference/utils.py`` at upstream commit 56dd66c, restated:
it is lenient (names become strings, positional arguments vanish, every sign negates) and it runs
binary operations through ``eval``. Here they are folded (`ace_ray.calls.fold`) or refused; most
unquoted values (``2025-Q2``) hold a name that means nothing there, which only raises.
"""

from __future__ import annotations

import ast
import builtins
import re
from typing import Any

from ace_ray.calls import Budget, Call, LenientReader, NotCalls, fold

_BRACKETS = re.compile(r"[\[\]]")
# Frames that Python's default recursion limit leaves the upstream decoder for writing an operation
# back as text, and what one level of that and of its own descent costs (measured on 3.11).
_FRAMES = 991
_FRAMES_PER_OPERATION = 3
_FRAMES_PER_VALUE = 2
# The names that mean something where upstream evaluates: builtins, its module's and its function's.
_KNOWN = frozenset([
    *dir(builtins), "__builtins__", "__cached__", "__file__", "ast", "ast_parse", "decode_ast",
    "json", "resolve_ast_by_type", "resolve_ast_call", "value",
])  # fmt: skip


def fragment(output: str, *, whole: bool) -> str | None:
    """The part of an output that is parsed.

    With ``whole`` (the multi-turn categories) all of it, without any whitespace, even in strings.
    Otherwise the first outermost balanced ``[...]``, counting brackets from the very start and in
    strings too, so that a stray ``]`` shifts the count; None when there is none.
    """
    if whole:
        return "".join(output.split())
    start, depth = -1, 0
    for bracket in _BRACKETS.finditer(output):
        if bracket.group() == "[":
            if depth == 0:
                start = bracket.start()
            depth += 1
        else:
            depth -= 1
            if depth == 0 and start >= 0:
                return output[start : bracket.end()]
    return None


def calls_of(tree: ast.expr) -> list[Call]:
    """The calls in a list, tuple or set of calls, in order.

    Raises `NotCalls` where the upstream decoder raises and `Refused` on reaching an operation that
    is not folded, whichever comes first in its order of evaluation.
    """
    if not isinstance(tree, (ast.List, ast.Tuple, ast.Set)):
        raise NotCalls(f"{type(tree).__name__} in place of a list")
    reader = LenientReader(_operation, bare_as_source=False)
    calls = []
    for item in tree.elts:
        if not isinstance(item, ast.Call):
            raise NotCalls(f"{type(item).__name__} in place of a call")
        calls.append(reader.call(item, 1))
    return calls


def _operation(node: ast.BinOp, budget: Budget, depth: int) -> Any:
    frames = _FRAMES - depth * _FRAMES_PER_VALUE
    return fold(node, budget, frames // _FRAMES_PER_OPERATION, _KNOWN.__contains__)
