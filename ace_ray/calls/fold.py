"""Arithmetic on literals, as Python would do it, in bounded time and memory.

Some evaluators run binary operations of a model's text through ``eval``. Where their verdict is
wanted for harmless ones (``4 + 1``, ``'a' + 'b'``, ``60 * 60``), this folds exactly those.
"""

from __future__ import annotations

import ast
import operator
import re
import sys
from collections.abc import Callable
from typing import Any

from ace_ray.calls.syntax import MAX_DIGITS, NotCalls

MAX_SIZE = 100_000
"""Largest value made by one operation: characters, elements and 32-bit words, summed up."""
MAX_WORK = 1_000_000
"""Most that all operations of one text may make together."""

_Sized = tuple[Any, int]
_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.MatMult: operator.matmul,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.Not: operator.not_,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
    ast.Invert: operator.invert,
}
# A width or precision of four digits, or one taken from the arguments, in a format string.
_WIDE = re.compile(r"[%)][#\- +.0-9]*(?:\*|[0-9]{4,})")
_UNPRINTABLE = 10**MAX_DIGITS
_PYTHON_ERRORS = (TypeError, ValueError, ArithmeticError, LookupError, MemoryError)


class Refused(Exception):
    """An operation that is not folded: it could run code, or is too large."""


class Budget:
    """What is left of `MAX_WORK` for one text."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MAX_WORK

    def charge(self, size: int) -> None:
        self.left -= size
        if size > MAX_SIZE or self.left < 0:
            raise Refused("arithmetic with too large a result")


def fold(node: ast.BinOp, budget: Budget, max_depth: int = MAX_DIGITS) -> Any:
    """The value of a binary operation on literals.

    Operands are numbers, strings, bytes, lists, tuples and dicts; nested operations and signs are
    folded too, left to right. Raises `NotCalls` where Python would raise while evaluating, or where
    the expression cannot be written back as text (trees deeper than ``max_depth``, integers beyond
    `MAX_DIGITS`); `Refused` on reaching a name, a call, a power or shift of numbers, any other
    kind of expression, or too large a result.
    """
    _check_writable(node, max_depth)
    try:
        return _sized(node, budget)[0]
    except _PYTHON_ERRORS as error:
        raise NotCalls(f"{type(error).__name__} in arithmetic") from None


def _check_writable(node: ast.expr, max_depth: int) -> None:
    pending: list[tuple[ast.AST, int]] = [(node, 1)]
    while pending:
        inner, depth = pending.pop()
        if depth > max_depth:
            raise NotCalls("an operation nested too deep")
        if isinstance(inner, ast.Constant):
            if type(inner.value) is int and inner.value >= _UNPRINTABLE:
                raise NotCalls(f"an integer of more than {MAX_DIGITS} digits")
        else:
            pending.extend((child, depth + 1) for child in ast.iter_child_nodes(inner))


def _sized(node: ast.expr, budget: Budget) -> _Sized:
    if isinstance(node, ast.BinOp):
        return _operation(node, budget)
    if isinstance(node, ast.Constant):
        return node.value, _size(node.value)
    if isinstance(node, ast.UnaryOp):
        value, size = _sized(node.operand, budget)
        if isinstance(node.op, ast.Invert) and isinstance(value, bool):
            value = int(value)  # the same result, without Python 3.12's warning
        return _UNARY[type(node.op)](value), size
    if isinstance(node, (ast.List, ast.Tuple)):
        items = [_sized(item, budget) for item in node.elts]
        values = [value for value, _ in items]
        size = 1 + sum(size for _, size in items)
        return (values if isinstance(node, ast.List) else tuple(values)), size
    if isinstance(node, ast.Dict):
        return _dict(node, budget)
    raise Refused(f"{type(node).__name__} in an operation")


def _size(value: object) -> int:
    if isinstance(value, (str, bytes)):
        return len(value)
    return value.bit_length() // 32 + 1 if isinstance(value, int) else 1


def _dict(node: ast.Dict, budget: Budget) -> _Sized:
    pairs: dict[Any, Any] = {}
    total = 1
    for key_node, value_node in zip(node.keys, node.values, strict=True):
        if key_node is None:
            raise Refused("** in an operation")
        key, key_size = _sized(key_node, budget)
        pairs[key], value_size = _sized(value_node, budget)
        total += key_size + value_size
    return pairs, total


def _operation(node: ast.BinOp, budget: Budget) -> _Sized:
    # A long sum is a tree that is deep on its left: walk down that side without recursion.
    chain = [node]
    while isinstance(chain[-1].left, ast.BinOp):
        chain.append(chain[-1].left)
    left = _sized(chain[-1].left, budget)
    for step in reversed(chain):
        left = _apply(type(step.op), left, _sized(step.right, budget), budget)
    return left


def _apply(op: type[ast.operator], left: _Sized, right: _Sized, budget: Budget) -> _Sized:
    (a, a_size), (b, b_size) = left, right
    size = a_size + b_size
    if op in (ast.Pow, ast.LShift, ast.RShift):
        numbers = (int, float, complex) if op is ast.Pow else int
        if isinstance(a, numbers) and isinstance(b, numbers):
            raise Refused("a power or a shift")
        raise TypeError("a power or a shift of other things than numbers")
    if op is ast.Mult:
        size = max(size, _repeated(a, a_size, b), _repeated(b, b_size, a))
    elif op is ast.Mod and isinstance(a, (str, bytes)):
        size = _formatted(a, b_size)
    budget.charge(size)
    return _BINARY[op](a, b), size


def _repeated(sequence: object, size: int, times: object) -> int:
    if not isinstance(sequence, (str, bytes, list, tuple)) or not isinstance(times, int):
        return 0
    if not sequence or times > sys.maxsize:  # Python raises for the latter before it makes anything
        return 0
    return size * times


def _formatted(template: str | bytes, args_size: int) -> int:
    text = template if isinstance(template, str) else template.decode("latin-1")
    if _WIDE.search(text):
        raise Refused("a format with a wide field")
    # Each field: under 1,000 of width and of precision, 309 digits of a float, escapes of a repr.
    return len(text) + text.count("%") * (2_400 + 12 * args_size)
