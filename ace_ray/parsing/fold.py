"""Compute operations on literals with the same result as Python, in bounded time and memory.

Some evaluators pass the binary operations in a model's text to ``eval``. `fold` computes the
operations that need only literals (``5 * 10**-12``, ``'a' + 'b'``, ``1 + [1, 2][0]``). It never
calls a function, reads an attribute or looks up the value of a name.
"""

from __future__ import annotations

import ast
import operator
import re
import sys
from collections.abc import Callable
from typing import Any

from ace_ray.parsing.syntax import MAX_DIGITS, NotCalls

# Maximum bits of an integer result. (A float overflows at 1,024 bits.)
MAX_BITS = 100_000
# Maximum size of the values in one operation, in characters, elements and 32-bit words.
MAX_SIZE = 100_000
# Maximum total size of the values in all operations of one text.
MAX_WORK = 1_000_000
# Maximum nesting of an operation. Upstream's decoders fail beyond it (recursion limit).
MAX_LEVELS = 329
# Number of characters that count as one unit of size when strings are concatenated.
_CHARS = 50

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
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda item, container: item in container,
    ast.NotIn: lambda item, container: item not in container,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.Not: operator.not_,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
    ast.Invert: operator.invert,
}
# A width or precision in a format string that has four digits or more, or is ``*``.
_WIDE = re.compile(r"[%)][#\- +.0-9]*(?:\*|[0-9]{4,})")
_NOT_COMPILED = (ast.Await, ast.Yield, ast.YieldFrom)
# Maximum size of a formatted field: width and precision under 1,000 each, 309 digits of a float.
_FIELD = 2_400
_FIELD_PER_SIZE = 12  # for the escapes in a repr
_UNPRINTABLE = 10**MAX_DIGITS
_PYTHON_ERRORS = (TypeError, ValueError, ArithmeticError, LookupError, MemoryError)


class Refused(Exception):
    """The operation is not computed, since it could run code or its result is too large."""


class Budget:
    """Counts the size of the values in all operations of one text, and limits it to `MAX_WORK`.

    ``known`` returns whether a name is defined where upstream evaluates the text."""

    __slots__ = ("known", "left")

    def __init__(self, known: Callable[[str], bool] = _NONE.__contains__) -> None:
        self.left = MAX_WORK
        self.known = known

    def charge(self, size: int) -> None:
        self.left -= size
        if size > MAX_SIZE or self.left < 0:
            raise Refused("arithmetic with too large a result")


class _Known:
    """Placeholder for the value of a name that upstream defines. Most operators raise TypeError, as
    for functions, classes and modules. Operators that may accept the value raise `Refused`."""

    def _refuse(self, *others: object) -> Any:
        raise Refused("an operation on a name that upstream defines")

    __eq__ = __ne__ = __or__ = __ror__ = __bool__ = __format__ = __str__ = __repr__ = _refuse
    __hash__ = _refuse


def operate(op: type[ast.operator], left: Any, right: Any) -> Any:
    """Compute ``left op right`` as Python does.

    Raises the errors that Python raises, and `Refused` for an integer of more than `MAX_BITS` bits.
    Callers must limit the size of strings, lists and other sequences themselves."""
    if isinstance(left, int) and isinstance(right, int):
        bits = 0
        if op is ast.Pow:
            bits = max(0, left.bit_length() - 1) * max(0, right)
        elif op is ast.LShift:
            bits = left.bit_length() + right if left else 0
        elif op is ast.Mult:
            bits = left.bit_length() + right.bit_length()
        if bits > MAX_BITS:
            raise Refused(f"an integer of more than {MAX_BITS:,} bits")
    return _BINARY[op](left, right)


def fold(node: ast.BinOp, budget: Budget) -> Any:
    """Compute a binary operation on literals. Operands are evaluated in Python's order.

    Raises:
        NotCalls: Python raises an error, or upstream cannot convert the tree to text: it is deeper
            than `MAX_LEVELS`, or has an integer of more than `MAX_DIGITS` digits.
        Refused: the result is too large, or Python would use an attribute, a call, a comprehension,
            ``:=``, or the value of a name that upstream defines.
    """
    _check_whole(node)
    try:
        return _value(node, budget)
    except NotCalls:
        raise
    except _PYTHON_ERRORS as error:
        raise NotCalls(f"{type(error).__name__} in arithmetic") from None


def _check_whole(node: ast.expr) -> None:
    pending: list[tuple[ast.AST, int]] = [(node, 1)]
    while pending:
        inner, depth = pending.pop()
        if depth > MAX_LEVELS:
            raise NotCalls("an operation nested too deep")
        if isinstance(inner, ast.Constant):
            if type(inner.value) is int and inner.value >= _UNPRINTABLE:
                raise NotCalls(f"an integer of more than {MAX_DIGITS} digits")
            continue
        if isinstance(inner, _NOT_COMPILED):
            raise NotCalls(f"{type(inner).__name__} outside of a function")
        if isinstance(inner, ast.JoinedStr):
            _check_joined(inner)
        below = depth + (2 if isinstance(inner, ast.Dict) else 1)  # `unparse` needs more stack
        pending.extend((child, below) for child in ast.iter_child_nodes(inner))


def _check_joined(node: ast.JoinedStr) -> None:
    # Upstream converts the tree to text with `ast.unparse`, which may fail.
    try:
        ast.unparse(node)
    except (ValueError, RecursionError) as error:
        raise NotCalls(f"{type(error).__name__} in an f-string") from None


def _value(node: ast.expr, budget: Budget) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp):
        value = _value(node.operand, budget)
        if isinstance(node.op, ast.Invert) and isinstance(value, bool):
            value = int(value)  # the same result, without Python 3.12's warning
        return _UNARY[type(node.op)](value)
    if isinstance(node, ast.IfExp):
        return _value(node.body if _value(node.test, budget) else node.orelse, budget)
    folded: Callable[[Any, Budget], Any] = _FOLDED.get(type(node), _unsupported)
    return folded(node, budget)


def _size(value: object) -> int:
    if isinstance(value, (str, bytes)):
        return len(value)
    if isinstance(value, dict):
        return 1 + sum(_size(key) + _size(item) for key, item in value.items())
    if isinstance(value, (list, tuple, set)):
        return 1 + sum(map(_size, value))
    return value.bit_length() // 32 + 1 if isinstance(value, int) else 1


def _bool_op(node: ast.BoolOp, budget: Budget) -> Any:
    result = _value(node.values[0], budget)
    for item in node.values[1:]:
        if bool(result) is isinstance(node.op, ast.Or):
            break
        result = _value(item, budget)
    return result


def _items(node: ast.List | ast.Tuple | ast.Set, budget: Budget) -> Any:
    values: list[Any] = []
    for item in node.elts:
        if isinstance(item, ast.Starred):
            inner = _value(item.value, budget)
            budget.charge(_size(inner))
            values.extend(inner)
        else:
            values.append(_value(item, budget))
    if isinstance(node, ast.List):
        return values
    return tuple(values) if isinstance(node, ast.Tuple) else set(values)


def _subscript(node: ast.Subscript, budget: Budget) -> Any:
    container = _value(node.value, budget)
    index = _value(node.slice, budget)
    budget.charge(_size(container))
    if isinstance(container, _Known):
        raise Refused("a subscript of a name that upstream defines")
    return container[index]


def _slice(node: ast.Slice, budget: Budget) -> Any:
    bounds = (node.lower, node.upper, node.step)
    return slice(*[None if part is None else _value(part, budget) for part in bounds])


def _compare(node: ast.Compare, budget: Budget) -> Any:
    left = _value(node.left, budget)
    result: Any = True
    for op, comparator in zip(node.ops, node.comparators, strict=True):
        right = _value(comparator, budget)
        budget.charge(_size(left) + _size(right))
        if isinstance(left, _Known) or isinstance(right, _Known):
            raise Refused("a comparison with a name that upstream defines")
        result = _COMPARE[type(op)](left, right)
        if not result:
            break
        left = right
    return result


def _joined(node: ast.JoinedStr, budget: Budget) -> str:
    text = "".join([_value(part, budget) for part in node.values])
    budget.charge(len(text))
    return text


def _formatted_value(node: ast.FormattedValue, budget: Budget) -> str:
    value = _value(node.value, budget)
    if node.format_spec is not None or node.conversion != -1:
        raise Refused("an operation on an f-string with a format or conversion")
    budget.charge(_FIELD + _FIELD_PER_SIZE * _size(value))
    return format(value)


def _lambda(node: ast.Lambda, budget: Budget) -> Any:
    return _some_function


def _some_function() -> None:
    """Placeholder for the value of a lambda. It is never called."""


def _name(node: ast.Name, budget: Budget) -> _Known:
    if not budget.known(node.id):
        raise NotCalls(f"NameError in arithmetic: {node.id[:80]} is not defined")
    if node.id.startswith("__") or node.id.isupper():  # may be a string, list or number
        raise Refused("an operation on a name that upstream defines")
    return _Known()


def _attribute(node: ast.Attribute, budget: Budget) -> Any:
    value = _value(node.value, budget)
    if isinstance(value, _Known) or node.attr in dir(type(value)):
        raise Refused("an operation that reads an attribute")
    raise NotCalls("AttributeError in arithmetic")


def _call(node: ast.Call, budget: Budget) -> Any:
    called = _value(node.func, budget)
    for argument in node.args:
        _value(argument.value if isinstance(argument, ast.Starred) else argument, budget)
    for keyword in node.keywords:
        _value(keyword.value, budget)
    if isinstance(called, _Known) or called is _some_function:
        raise Refused("an operation on the result of a call")
    raise NotCalls("TypeError in arithmetic: the called value is not a function")


def _unsupported(node: ast.expr, budget: Budget) -> Any:
    """Raise `NotCalls` if ``node`` contains an undefined name, else `Refused`."""
    names = [inner for inner in ast.walk(node) if isinstance(inner, ast.Name)]
    bound = {name.id for name in names if isinstance(name.ctx, ast.Store)}
    for name in names:
        if name.id not in bound:
            _name(name, budget)
    raise Refused(f"an operation on an expression of type {type(node).__name__}")


def _dict(node: ast.Dict, budget: Budget) -> dict[Any, Any]:
    pairs: dict[Any, Any] = {}
    for key_node, value_node in zip(node.keys, node.values, strict=True):
        if key_node is None:
            inner = _value(value_node, budget)
            if not isinstance(inner, dict):
                raise TypeError("the value after ** is not a dict")
            budget.charge(_size(inner))
            pairs.update(inner)
        else:
            key = _value(key_node, budget)
            pairs[key] = _value(value_node, budget)
    return pairs


def _operation(node: ast.BinOp, budget: Budget) -> Any:
    # A long sum is a tree that is deep on its left: walk down that side without recursion.
    chain = [node]
    while isinstance(chain[-1].left, ast.BinOp):
        chain.append(chain[-1].left)
    left = _value(chain[-1].left, budget)
    for step in reversed(chain):
        left = _apply(type(step.op), left, _value(step.right, budget), budget)
    return left


def _apply(op: type[ast.operator], a: Any, b: Any, budget: Budget) -> Any:
    size = _size(a) + _size(b)
    if isinstance(a, int) and isinstance(b, int):
        value = operate(op, a, b)
        budget.charge(size + _size(value))
        return value
    if op is ast.Mult:
        size = max(size, _repeated(a, b), _repeated(b, a))
    elif op is ast.Mod and isinstance(a, (str, bytes)):
        size = _formatted(a, _size(b))
    joined = op is ast.Add and isinstance(a, (str, bytes))
    budget.charge(size // _CHARS if joined else size)
    return operate(op, a, b)


def _repeated(sequence: object, times: object) -> int:
    if not isinstance(sequence, (str, bytes, list, tuple)) or not isinstance(times, int):
        return 0
    if not sequence or times > sys.maxsize:  # Python raises before it allocates memory
        return 0
    return _size(sequence) * times


def _formatted(template: str | bytes, args_size: int) -> int:
    text = template if isinstance(template, str) else template.decode("latin-1")
    if _WIDE.search(text):
        raise Refused("a % format with a width or precision that is * or has four digits")
    return len(text) + text.count("%") * (_FIELD + _FIELD_PER_SIZE * args_size)


_FOLDED: dict[type[ast.expr], Callable[[Any, Budget], Any]] = {
    ast.BinOp: _operation,
    ast.BoolOp: _bool_op,
    ast.List: _items,
    ast.Tuple: _items,
    ast.Set: _items,
    ast.Dict: _dict,
    ast.Subscript: _subscript,
    ast.Slice: _slice,
    ast.Compare: _compare,
    ast.JoinedStr: _joined,
    ast.FormattedValue: _formatted_value,
    ast.Lambda: _lambda,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Call: _call,
}
