"""Arithmetic that a model writes for the tool ``calculate``, evaluated here and never by Python.

Upstream sends the text through ``eval`` once it holds nothing but digits, ``+-*/().`` and spaces.
What can come of such a text are numbers, tuples without elements, and errors.
"""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable
from typing import Any

MAX_CHARS = 1_000
MAX_BITS = 100_000
"""Of an integer that a power makes; beyond it a float would overflow by far."""
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}


def value_of(text: Any) -> Any:
    """The value of ``text``, as Python would have it.

    Raises what Python raises for it, in its words, and `ValueError` for what would take too long.
    """
    if not isinstance(text, str):
        raise TypeError("eval() arg 1 must be a string, bytes or code object")
    if len(text) > MAX_CHARS:
        raise ValueError(f"the expression has more than {MAX_CHARS:,} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "'int' object is not callable; perhaps ..."
            tree = ast.parse(text.lstrip(" \t"), "<string>", "eval")
        return _value(tree.body)
    except (MemoryError, RecursionError):
        raise ValueError("the expression is nested too deeply") from None


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp):
        operand = _value(node.operand)
        return -operand if isinstance(node.op, ast.USub) else +operand
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left), _value(node.right)
        if isinstance(node.op, ast.Pow):
            return _power(left, right)
        return _OPERATORS[type(node.op)](left, right)
    if isinstance(node, ast.Call):
        called = _value(node.func)
        for argument in node.args:
            _value(argument)
        raise TypeError(f"{type(called).__name__!r} object is not callable")
    if isinstance(node, ast.Tuple) and not node.elts:
        return ()
    raise SyntaxError("invalid syntax")


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(base, int) and isinstance(exponent, int):
        bits = max(0, abs(base).bit_length() - 1) * max(0, exponent)
        if bits > MAX_BITS:
            raise ValueError(f"the power has more than {MAX_BITS:,} bits")
    return base**exponent
