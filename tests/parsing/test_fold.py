"""Operations on literals: computed as Python computes them, or refused."""

from __future__ import annotations

import ast

import pytest

from ace_ray.parsing.fold import MAX_LEVELS, Budget, Refused, fold
from ace_ray.parsing.syntax import NotCalls, expression

FOLDED = {
    "'a' + 'b' 'c'": "abc",
    "'%s is %d' % ('x', 5)": "x is 5",
    "1 + (0 and 1 / 0)": 1,
    "'a' + f'{1 + 1}b'": "a2b",
    "{**{'a': 1}} | {'b': 2}": {"a": 1, "b": 2},
    "1 + ((lambda: 0) is not None)": 2,
    "10**5000 // 10**4999": 10,
    # What is not reached is not looked at.
    "1 + (2 or print(x)) + (3 if 1 else 9 ** 9 ** 9)": 6,
}
RAISES = [
    "1 + 'a'", "1 / 0", "[] * []", "1 @ 2", "'%d' % 'x'", "'%z' % 1", "{[]: 1} | {}", "-'a' + 1",
    "'a' * 99999999999999999999", "1 + {1}", "1 + [1][1]", "1 + 2[0]", "1 + {**[1]}", "[*1] + []",
    "1 / 0 + 'a' * 1000000000", "0 ** -1", "10.0 ** 400", "1 << -1", "'x' ** 2", "'%d' % 10**5000",
    "1 + 10**400 * 1.0", "1 / 0 + open('x')", "1 / 0 + x", f"0x{'f' * 4000} + f()",
    "+".join(["f()"] * 6_000)[:-3],
]  # fmt: skip
TOO_LARGE = [
    "'a' * 1000000000", "[0] * 10**9", "['a' * 60000][0] * 2", "'a' + f'{\"a\" * 50000!a}'",
    "'a' + f'{1:9999d}'", "[[0] * 50000] * 50000", "'%999999999d' % 1", "'%*d' % (10, 1)",
    "'%.5000f' % 1", "9 ** 9 ** 9", "1 << (10 ** 10)", "2**99999 * 2**99999", "(1 << 100_000) + 1",
    "+".join(["2**99999 // 3**31000"] * 250),
]  # fmt: skip
KNOWN = {"print", "list", "json", "__name__", "LIMIT"}.__contains__


def operation(text: str) -> ast.BinOp:
    node = expression(text)
    assert isinstance(node, ast.BinOp)
    return node


def test_harmless_arithmetic_is_computed() -> None:
    for text, value in FOLDED.items():
        for budget in (Budget(), Budget(KNOWN)):
            folded = fold(operation(text), budget)
            assert (folded, type(folded)) == (value, type(value)), text


def test_an_exception_of_python_means_that_there_are_no_calls() -> None:
    for text in RAISES:
        with pytest.raises(NotCalls):
            fold(operation(text), Budget())


def test_a_value_that_is_too_large_is_refused() -> None:
    for text in TOO_LARGE:
        with pytest.raises(Refused):
            fold(operation(text), Budget())
    budget = Budget()
    node = operation("'a' * 90000")
    for _ in range(11):
        assert len(fold(node, budget)) == 90_000
    with pytest.raises(Refused):
        fold(node, budget)


def test_a_long_sum_is_computed_up_to_its_bound() -> None:
    assert fold(operation("+".join(["1"] * MAX_LEVELS)), Budget()) == MAX_LEVELS
    with pytest.raises(NotCalls, match="nested"):
        fold(operation("+".join(["1"] * (MAX_LEVELS + 1))), Budget())


NAMES = {
    "x + 1": "", "f(1) + 2": "", "1 + x[0]": "", "print(x) + 1": "", "1 / 0 + print(1)": "",
    "list + 1": "", "1 + (y := x)": "", "1 + [y for y in x]": "", "5(1) + 2": "", "'a'.b + 'c'": "",
    "1 + (yield)": "", "1 + (await x)": "", "{x: 1} | {}": "", "-list + 1": "", "2 ** 3 + x": "",
    "1 + (2 > 1 > x)": "", "'a' + __import__('os')": "", "[list] * 2 + [x, json.y]": "",
    "print(1) + x": "call", "LIMIT * 2": "name that", "'%s' % list": "name that",
    "1 + (not list)": "name that", "1 + (list == 1)": "comparison", "json.x + 1": "attribute",
    "'a'.upper() + 'b'": "attribute", "1 + list[0]": "subscript", "__name__ + 'a'": "name that",
    "1 + (y := 2)": "NamedExpr", "1 + (lambda: 2)()": "call", "1 + [y for y in 'a']": "ListComp",
    "1 + {list: 2}[3]": "name that",
}  # fmt: skip


def test_names_decide_what_is_reached_first() -> None:
    for text, reason in NAMES.items():
        with pytest.raises(Refused if reason else NotCalls, match=reason or None):
            fold(operation(text), Budget(KNOWN))
