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

from ace_ray.calls import Budget, Call, NotCalls, fold

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
    budget = Budget()
    calls = []
    for item in tree.elts:
        if not isinstance(item, ast.Call):
            raise NotCalls(f"{type(item).__name__} in place of a call")
        calls.append(_call(item, budget, 1))
    return calls


def _call(node: ast.Call, budget: Budget, depth: int) -> Call:
    args: dict[str | None, Any] = {}
    for keyword in node.keywords:  # `**x` has the name None; of repeated names the last stays
        args[keyword.arg] = _value(keyword.value, budget, depth + 1)
    return Call(_name(node.func), args)


def _name(node: ast.expr) -> str:
    # Unlike `dotted_name`: a chain on anything else than a name keeps the chain alone.
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        parts.append(node.id)
    return ".".join(reversed(parts))


def _value(node: ast.expr, budget: Budget, depth: int) -> Any:
    if isinstance(node, ast.Constant):
        return "..." if node.value is ... else node.value
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.UnaryOp):
        return _negated(node.operand)
    if isinstance(node, ast.List):
        return [_value(item, budget, depth + 1) for item in node.elts]
    if isinstance(node, ast.Tuple):
        return tuple([_value(item, budget, depth + 1) for item in node.elts])
    if isinstance(node, ast.Dict):
        return _dict(node, budget, depth + 1)
    if isinstance(node, ast.BinOp):
        frames = _FRAMES - depth * _FRAMES_PER_VALUE
        return fold(node, budget, frames // _FRAMES_PER_OPERATION, _KNOWN.__contains__)
    if isinstance(node, ast.Call):
        name, args = _call(node, budget, depth)
        return {name: args}
    if isinstance(node, ast.Subscript):
        return _source(node)
    raise NotCalls(f"{type(node).__name__} as a value")


def _dict(node: ast.Dict, budget: Budget, depth: int) -> dict[Any, Any]:
    pairs: dict[Any, Any] = {}
    for key_node, value_node in zip(node.keys, node.values, strict=True):
        if key_node is None:
            raise NotCalls("** in a dict")
        key = _value(key_node, budget, depth)
        value = _value(value_node, budget, depth)
        try:
            pairs[key] = value
        except TypeError:
            raise NotCalls("a key that cannot be hashed") from None
    return pairs


def _negated(operand: ast.expr) -> int | float | complex:
    # Whatever the operator: `+5`, `~5` and `-5` are all -5, `not True` is -1.
    if isinstance(operand, ast.Constant) and isinstance(operand.value, (int, float, complex)):
        return -operand.value
    raise NotCalls("a sign before something else than a number")


def _source(node: ast.Subscript) -> str:
    try:
        return f"{ast.unparse(node.value)}[{ast.unparse(node.slice)}]"
    except (ValueError, RecursionError) as error:
        raise NotCalls(f"{type(error).__name__} in a subscript") from None
