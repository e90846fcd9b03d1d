"""Syntax trees to literal calls, and calls back to text."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any, NamedTuple

from ace_ray.calls.syntax import NotCalls


class Call(NamedTuple):
    """One tool call: a (dotted) name and its keyword arguments as plain values."""

    name: str
    args: dict[Any, Any]


def dotted_name(node: ast.expr) -> str | None:
    """``a.b.c`` for a chain of attributes on a name, None for any other expression."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    parts.append(node.id)
    return ".".join(reversed(parts))


def literal(node: ast.expr) -> Any:
    """The value of a literal: str, int, float, bool, None, signed number, list, tuple, dict.

    Raises `NotCalls` for everything else (names, calls, operations, bytes, complex, sets, ...).
    """
    if isinstance(node, ast.Constant):
        if node.value is None or isinstance(node.value, (str, int, float)):
            return node.value
    elif isinstance(node, ast.List):
        return [literal(item) for item in node.elts]
    elif isinstance(node, ast.Tuple):
        return tuple([literal(item) for item in node.elts])
    elif isinstance(node, ast.Dict):
        return _literal_dict(node)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.UAdd, ast.USub)):
        number = node.operand.value if isinstance(node.operand, ast.Constant) else None
        if isinstance(number, (int, float)) and not isinstance(number, bool):
            return -number if isinstance(node.op, ast.USub) else number
    raise NotCalls(f"{type(node).__name__} is not a literal value")


def _literal_dict(node: ast.Dict) -> dict[Any, Any]:
    pairs: dict[Any, Any] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        if key is None:
            raise NotCalls("** in a literal value")
        try:
            pairs[literal(key)] = literal(value)
        except TypeError:
            raise NotCalls("a key that cannot be hashed") from None
    return pairs


def literal_calls(tree: ast.expr) -> list[Call]:
    """The calls of a tree that is a list of calls with keyword arguments and literal values.

    Raises `NotCalls` for anything else, among it repeated keywords, which Python refuses too.
    """
    if not isinstance(tree, ast.List):
        raise NotCalls("not a list")
    return [_literal_call(item) for item in tree.elts]


def _literal_call(node: ast.expr) -> Call:
    name = dotted_name(node.func) if isinstance(node, ast.Call) else None
    if not isinstance(node, ast.Call) or name is None:
        raise NotCalls("an element that is not a call of a named function")
    if node.args:
        raise NotCalls(f"{name[:80]} has positional arguments")
    args: dict[Any, Any] = {}
    for keyword in node.keywords:
        if keyword.arg is None or keyword.arg in args:
            raise NotCalls(f"{name[:80]} has ** or a repeated keyword")
        args[keyword.arg] = literal(keyword.value)
    return Call(name, args)


def render(calls: Iterable[tuple[str, dict[str, Any]]]) -> str:
    """Calls as the text ``[F(k='v'), ...]`` that `parse_calls` reads back."""
    rendered = [
        f"{name}({', '.join(f'{key}={value!r}' for key, value in args.items())})"
        for name, args in calls
    ]
    return f"[{', '.join(rendered)}]"
