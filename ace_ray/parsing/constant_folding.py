"""Compute operations on numbers and strings with the same result as Python, within bounds.

Some evaluators pass the binary operations in a model's text to ``eval``. `fold` computes those that
need only numbers and strings (``5 * 10**-12``, ``'a' + 'b'``). Of 55,900 real answers, 11 have an
operation with other values, which is refused. No function is called, no attribute is read, and no
value of a name is used."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ace_ray.parsing.syntax import MAX_DIGITS, NotCalls

# Maximum bits of an integer result. (A float overflows at 1,024 bits.)
MAX_BITS = 100_000
# Maximum characters of a string result.
MAX_CHARS = 100_000
# Maximum total size of the results of one text, in characters and 32-bit words.
MAX_WORK = 1_000_000
# Maximum nesting of an operation. Upstream's decoders fail beyond it (recursion limit).
MAX_LEVELS = 329

_NONE = frozenset[str]()
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
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
    ast.Invert: lambda number: ~int(number) if isinstance(number, int) else ~number,
}
_UNPRINTABLE = 10**MAX_DIGITS


class Refusal(Exception):
    """The operation is not computed, since it could run code or its result is too large."""


class Budget:
    """Limits the total size of the results of all operations of one text to `MAX_WORK`.

    ``is_defined`` returns whether a name is defined where upstream evaluates the text."""

    __slots__ = ("is_defined", "remaining_work")

    def __init__(self, is_defined: Callable[[str], bool] = _NONE.__contains__) -> None:
        self.remaining_work = MAX_WORK
        self.is_defined = is_defined

    def charge(self, size: int) -> None:
        self.remaining_work -= size
        if size > MAX_CHARS or self.remaining_work < 0:
            raise Refusal("arithmetic with too large a result")


def operate(op: type[ast.operator], left: Any, right: Any) -> Any:
    """Compute ``left op right`` as Python does. Raises the errors that Python raises, and `Refusal`
    if the result is an integer of more than `MAX_BITS` bits. Callers must limit the size of
    strings, lists and other sequences themselves."""
    if isinstance(left, int) and isinstance(right, int):
        bits = 0
        if op is ast.Pow:
            bits = max(0, left.bit_length() - 1) * max(0, right)
        elif op is ast.LShift:
            bits = left.bit_length() + right if left else 0
        elif op is ast.Mult:
            bits = left.bit_length() + right.bit_length()
        if bits > MAX_BITS:
            raise Refusal(f"an integer of more than {MAX_BITS:,} bits")
    return _BINARY[op](left, right)


def fold(node: ast.BinOp, budget: Budget) -> Any:
    """Compute a binary operation on numbers and strings. Operands are evaluated in Python's order.

    Raises `NotCalls` if Python raises an error, or if upstream cannot convert the tree to text: it
    is deeper than `MAX_LEVELS`, or has an integer of more than `MAX_DIGITS` digits. Raises
    `Refusal` if the result is too large, or an operand is neither a number nor a string."""
    _check_tree(node)
    try:
        return _evaluate(node, budget)
    except NotCalls:  # a `ValueError` too
        raise
    except (TypeError, ValueError, ArithmeticError, MemoryError) as error:
        raise NotCalls(f"{type(error).__name__} in arithmetic") from None


def _check_tree(node: ast.expr) -> None:
    pending: list[tuple[ast.AST, int]] = [(node, 1)]
    while pending:
        inner, depth = pending.pop()
        if depth > MAX_LEVELS:
            raise NotCalls("an operation nested too deep")
        number = inner.value if isinstance(inner, ast.Constant) else None
        if type(number) is int and number >= _UNPRINTABLE:
            raise NotCalls(f"an integer of more than {MAX_DIGITS} digits")
        below = depth + (2 if isinstance(inner, ast.Dict) else 1)  # `unparse` needs more stack
        pending.extend((child, below) for child in ast.iter_child_nodes(inner))


def _evaluate(node: ast.expr, budget: Budget) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, (str, int, float, complex)):
        return node.value
    if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        return _UNARY[type(node.op)](_evaluate(node.operand, budget))
    if isinstance(node, ast.BinOp):
        left, right = _evaluate(node.left, budget), _evaluate(node.right, budget)
        return _result(type(node.op), left, right, budget)
    raise _operand_error(node, budget)


def _result(op: type[ast.operator], left: Any, right: Any, budget: Budget) -> Any:
    if op is ast.Mod and isinstance(left, str):
        raise Refusal("a % format")
    size = 0
    if isinstance(left, str) or isinstance(right, str):
        chars = [len(part) if isinstance(part, str) else 0 for part in (left, right)]
        size = sum(chars)
        if op is ast.Mult and (isinstance(left, int) or isinstance(right, int)):
            size *= max(0, left if isinstance(left, int) else right)
    budget.charge(size)
    value = operate(op, left, right)
    budget.charge(value.bit_length() // 32 + 1 if isinstance(value, int) else 1)
    return value


def _operand_error(node: ast.expr, budget: Budget) -> NotCalls | Refusal:
    """Return the error for an expression that is neither a number nor a string. A name that is not
    defined upstream is an error there; other expressions could run code."""
    bound = {
        n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    for name in _names(node):
        if name not in bound and not budget.is_defined(name):
            return NotCalls(f"NameError in arithmetic: {name[:80]} is not defined")
    return Refusal(f"an operation on an expression of type {type(node).__name__}")


def _names(node: ast.AST) -> Iterator[str]:
    """Yield the names that Python surely looks up when it evaluates ``node``: none in the body of a
    function, in a branch, or in an element of a comprehension."""
    pending = [node]
    while pending:
        node = pending.pop()
        parts: Iterable[ast.AST | None] = ast.iter_child_nodes(node)
        match node:
            case ast.Name(id=name):
                yield name
            case ast.Lambda(args=arguments):
                parts = [*arguments.defaults, *arguments.kw_defaults]
            case ast.BoolOp(op=op, values=values):
                # Up to the first value that ends the operation, or may end it.
                truths = [bool(v.value) if isinstance(v, ast.Constant) else None for v in values]
                is_end = [truth in (None, isinstance(op, ast.Or)) for truth in truths]
                parts = values[: [*is_end, True].index(True) + 1]
            case ast.IfExp(test=test):
                parts = [test]
            case ast.Compare(left=left, comparators=[right, *_]):
                parts = [left, right]
            case ast.ListComp(generators=[loop, *_]) | ast.SetComp(generators=[loop, *_]):
                parts = [loop.iter]
            case ast.DictComp(generators=[loop, *_]) | ast.GeneratorExp(generators=[loop, *_]):
                parts = [loop.iter]
        pending += filter(None, parts)
