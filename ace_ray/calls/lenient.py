"""Calls as a lenient decoder reads them that several evaluators share (``resolve_ast_by_type``).

Names become texts (``true`` is "true"), every sign negates, and a call as a value becomes an
object. Such decoders run binary operations through ``eval``; here each benchmark says what they
give.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from ace_ray.calls.fold import Budget
from ace_ray.calls.literals import Call
from ace_ray.calls.syntax import NotCalls

Operation = Callable[[ast.BinOp, Budget, int], Any]
"""The value of an operation so many levels within its call; `NotCalls` and `Refused` as in `fold`.
"""


class LenientReader:
    """Reads the calls of one text.

    Args:
        operation: gives the values of binary operations.
        bare_as_source: whether a call without keywords, as a value, becomes its source.
    """

    __slots__ = ("_bare_as_source", "_budget", "_operation")

    def __init__(self, operation: Operation, *, bare_as_source: bool) -> None:
        self._operation, self._bare_as_source = operation, bare_as_source
        self._budget = Budget()

    def call(self, node: ast.Call, depth: int) -> Call:
        """Name and keyword arguments; the others vanish. Raises `NotCalls` where upstream's decoder
        raises, and what ``operation`` does, whichever comes first in its order of evaluation."""
        args: dict[str | None, Any] = {}
        for keyword in node.keywords:  # `**x` has the name None; of repeated names the last stays
            args[keyword.arg] = self.value(keyword.value, depth + 1)
        return Call(_name(node.func), args)

    def value(self, node: ast.expr, depth: int) -> Any:
        """One argument; raises as `call`."""
        if isinstance(node, ast.Constant):
            return "..." if node.value is ... else node.value
        if isinstance(node, ast.Name):
            return node.id
        if isinstance(node, ast.UnaryOp):
            return _negated(node.operand)
        if isinstance(node, ast.List):
            return [self.value(item, depth + 1) for item in node.elts]
        if isinstance(node, ast.Tuple):
            return tuple([self.value(item, depth + 1) for item in node.elts])
        if isinstance(node, ast.Dict):
            return self._dict(node, depth + 1)
        if isinstance(node, ast.BinOp):
            return self._operation(node, self._budget, depth)
        if isinstance(node, ast.Call):
            if self._bare_as_source and not node.keywords:
                return _source(node)
            name, args = self.call(node, depth)
            return {name: args}
        if isinstance(node, ast.Subscript):
            return f"{_source(node.value)}[{_source(node.slice)}]"
        raise NotCalls(f"{type(node).__name__} as a value")

    def _dict(self, node: ast.Dict, depth: int) -> dict[Any, Any]:
        pairs: dict[Any, Any] = {}
        for key_node, value_node in zip(node.keys, node.values, strict=True):
            if key_node is None:
                raise NotCalls("** in a dict")
            key = self.value(key_node, depth)
            value = self.value(value_node, depth)
            try:
                pairs[key] = value
            except TypeError:
                raise NotCalls("a key that cannot be hashed") from None
        return pairs


def _name(node: ast.expr) -> str:
    # Unlike `dotted_name`: a chain on anything else than a name keeps the chain alone.
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        parts.append(node.id)
    return ".".join(reversed(parts))


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
