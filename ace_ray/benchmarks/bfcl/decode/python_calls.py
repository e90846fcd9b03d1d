"""Calls written in Python, as upstream's decoder reads them (``model_handler/utils.py``).

It is lenient: names become texts (``true`` is "true"), every sign negates, positional arguments
vanish, a call as a value becomes an object or, without keywords, its source. Binary operations it
runs through ``eval``; here they are folded or refused (see `operations`).
"""

from __future__ import annotations

import ast
from functools import partial
from typing import Any

from ace_ray.benchmarks.bfcl.decode.keyword_names import marked_expression, marked_names
from ace_ray.benchmarks.bfcl.decode.operations import operation
from ace_ray.benchmarks.bfcl.decode.reading import Read
from ace_ray.calls import Budget, NotCalls, expression, plain_calls


def read_python(text: str) -> list[Read]:
    """The calls of a call, or of a list, tuple or set of calls.

    Raises `NotCalls` where upstream's decoder raises, and `Refused` on an operation that is not
    folded, whichever comes first in its order of evaluation.
    """
    plain = plain_calls(text)
    if plain is not None:
        return [Read(call.name, call.args) for call in plain]
    return _calls(expression(text))


def read_python_with_keywords(text: str) -> list[Read]:
    """The same of a text in which some argument is named by a word of Python's own.

    Raises `NotCalls` for any other text, too."""
    marked = marked_names(text)
    if marked is None:
        raise NotCalls("no argument is named by a keyword")
    return _calls(marked_expression(marked))


def _calls(tree: ast.expr) -> list[Read]:
    budget = Budget()
    try:
        if isinstance(tree, ast.Call):
            return [_call(tree, budget, 1)]
        if not isinstance(tree, (ast.List, ast.Tuple, ast.Set)):
            raise NotCalls(f"{type(tree).__name__} in place of a list")
        return [_call(item, budget, 1) for item in tree.elts]
    except RecursionError:
        raise NotCalls("nested too deep") from None


def _call(node: ast.expr, budget: Budget, depth: int) -> Read:
    if not isinstance(node, ast.Call):
        raise NotCalls(f"{type(node).__name__} in place of a call")
    args: dict[str | None, Any] = {}
    repeated = None
    for keyword in node.keywords:  # `**x` has the name None; of repeated names the last stays
        if keyword.arg in args:
            repeated = keyword.arg
        args[keyword.arg] = _value(keyword.value, budget, depth + 1)
    positional = {n: partial(_value, item, budget, depth + 1) for n, item in enumerate(node.args)}
    return Read(_name(node.func), args, positional, repeated=repeated)


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
        return operation(node, budget, depth)
    if isinstance(node, ast.Call):
        if not node.keywords:
            return _source(node)
        call = _call(node, budget, depth)
        return {call.name: call.args}
    if isinstance(node, ast.Subscript):
        return f"{_source(node.value)}[{_source(node.slice)}]"
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


def _source(node: ast.expr) -> str:
    try:
        return ast.unparse(node)
    except (ValueError, RecursionError) as error:
        raise NotCalls(f"{type(error).__name__} in writing a value back") from None
