"""Arithmetic that a model writes for the tool ``calculate``, evaluated here and never by Python.

Upstream sends the text through ``eval`` once it holds nothing but digits, ``+-*/().`` and spaces.
What can come of such a text are numbers, tuples without elements, and errors.
"""

from __future__ import annotations

import ast
import warnings
from typing import Any

from ace_ray.parsing import Refused, operate

MAX_CHARS = 1_000


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
    except Refused as error:
        raise ValueError(str(error)) from None
    except (MemoryError, RecursionError):
        raise ValueError("the expression is nested too deeply") from None


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp):
        operand = _value(node.operand)
        return -operand if isinstance(node.op, ast.USub) else +operand
    if isinstance(node, ast.BinOp):
        left = _value(node.left)
        return operate(type(node.op), left, _value(node.right))
    if isinstance(node, ast.Call):
        called = _value(node.func)
        for argument in node.args:
            _value(argument)
        raise TypeError(f"{type(called).__name__!r} object is not callable")
    if isinstance(node, ast.Tuple) and not node.elts:
        return ()
    raise SyntaxError("invalid syntax")
