"""Operations on literals: computed as Python computes them, or refused."""

from __future__ import annotations

import ast

import pytest

from ace_ray.parsing.fold import MAX_LEVELS, Budget, Refused, fold
from ace_ray.parsing.syntax import NotCalls, expression

FOLDED = {
    "4 + 1": 5,
    "7 % 4": 3,
    "6 & 3 | 8 ^ 1": 11,
    "'a' + 'b' 'c'": "abc",
    "'ab' * 3": "ababab",
    "{'a': 1 + 1} | {'b': [2]}": {"a": 2, "b": [2]},
    "'%s is %d' % ('x', 5)": "x is 5",
    "'%(a)05.1f' % {'a': 2}": "002.0",
    "'' * 1000000000": "",
    "1 + [1, 2][0]": 2,
    "'' + 'abcd'[1:3]": "bc",
    "1 + (2 if True else 3)": 3,
    "1 + (0 and 1 / 0)": 1,
    "1 + (2 > 1)": 2,
    "1 + ('a' in 'ba')": 2,
    "'a' + f'{1 + 1}b'": "a2b",
    "[*(1, 2)] + [3]": [1, 2, 3],
    "{**{'a': 1}} | {'b': 2}": {"a": 1, "b": 2},
    "1 + ((lambda: 0) is not None)": 2,
    "'%s' + 'x' * 0": "%s",
    "5 * 10**(-12)": 5e-12,
    "2 ** -99999": 0.0,
    "10**5000 // 10**4999": 10,
    "0 << 10**30": 0,
}
RAISES = [
    "1 + 'a'", "1 / 0", "'a' - 1", "[] * []", "1 @ 2", "{} + {}", "'%d' % 'x'", "'%z' % 1",
    "{[]: 1} | {}", "-'a' + 1", "'a' * 99999999999999999999", "1 + {1}", "1 + (lambda: 0)",
    "1 + [1][1]", "1 + 2[0]", "1 + (1 < 'a')", "1 + {**[1]}", "[*1] + []", "1 + {[]}",
    "1 / 0 + 'a' * 1000000000", "1 + [1][0:1, 2]",
    "0 ** -1", "10.0 ** 400", "2 ** 0.5 ** -(10**400)", "1 << -1", "1.0 << 2", "'x' ** 2",
    "1 + 10**400 * 1.0", "'%d' % 10**5000", "1 / 0 + open('x')", "'a' - 1 + exit()", "1 / 0 + x",
    f"0x{'f' * 4000} + f()", "+".join(["f()"] * 6_000)[:-3],
]  # fmt: skip
REFUSED = [
    "'a' * 1000000000", "[0] * 10**9", "['a' * 60000][0] * 2", "'a' + f'{\"a\" * 50000!a}'",
    "'a' + f'{1:9999d}'", "'a' + f'{1:{99999}}'", "[[0] * 50000] * 50000", "'%999999999d' % 1",
    "'%*d' % (10, 1)", "'%.5000f' % 1", "'%(a)9999s' % {'a': 1}", "9 ** 9 ** 9",
    "10 ** (10 ** 8) + 1", "1 << (10 ** 10)", "2**99999 * 2**99999", "(1 << 100_000) + 1",
    "+".join(["2**99999 // 3**31000"] * 250),
]  # fmt: skip


def operation(text: str) -> ast.BinOp:
    node = expression(text)
    assert isinstance(node, ast.BinOp)
    return node


@pytest.mark.parametrize(("text", "value"), FOLDED.items())
def test_harmless_arithmetic_is_done(text: str, value: object) -> None:
    folded = fold(operation(text), Budget())
    assert folded == value
    assert type(folded) is type(value)


@pytest.mark.parametrize("text", RAISES, ids=lambda text: text[:30])
def test_what_python_would_raise_for_is_an_error(text: str) -> None:
    with pytest.raises(NotCalls):
        fold(operation(text), Budget())


@pytest.mark.parametrize("text", REFUSED)
def test_a_value_that_is_too_large_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        fold(operation(text), Budget())


def test_many_large_results_are_refused_together() -> None:
    budget = Budget()
    node = operation("'a' * 90000")
    for _ in range(11):
        assert len(fold(node, budget)) == 90_000
    with pytest.raises(Refused):
        fold(node, budget)


def test_a_long_sum_is_folded_up_to_its_bound() -> None:
    assert fold(operation("+".join(["1"] * MAX_LEVELS)), Budget()) == MAX_LEVELS
    with pytest.raises(NotCalls, match="nested"):
        fold(operation("+".join(["1"] * (MAX_LEVELS + 1))), Budget())


KNOWN = {"print", "list", "json", "__name__", "LIMIT"}.__contains__
NAMES = {
    "x + 1": "", "1 + x": "", "f(1) + 2": "", "x.y - 1": "", "1 + x[0]": "", "print(x) + 1": "",
    "1 / 0 + print(1)": "", "'a' - 1 + print(1)": "", "list + 1": "", "1 + (y := x)": "",
    "1 + [y for y in x]": "", "'x' ** 2": "", "5(1) + 2": "", "'a'.b + 'c'": "", "1 + (yield)": "",
    "1 + (await x)": "", "{x: 1} | {}": "", "1 + (2 > 1 > x)": "", "-list + 1": "",
    "1 + (lambda: x)": "",
    "2 ** 3 + x": "", "'a' + __import__('os')": "",
    "print(1) + x": "Call", "LIMIT * 2": "known name", "'%s' % list": "known name",
    "list | None": "known name", "[list] * 2 + [x, json.y]": "",  "1 + (not list)": "known name",
    "1 + (list == 1)": "comparison", "1 + (1 in [list])": "known name", "f'{list}' + 'a'": "known",
    "json.x + 1": "Attribute", "'a'.upper() + 'b'": "Attribute", "1 + list[0]": "subscript",
    "__name__ + 'a'": "known name", "1 + (y := 2)": "NamedExpr", "1 + (lambda: 2)()": "Call",
    "1 + [y for y in 'a']": "ListComp", "1 + {list: 2}[3]": "known name",
}  # fmt: skip


@pytest.mark.parametrize(("text", "reason"), NAMES.items())
def test_names_decide_what_is_reached_first(text: str, reason: str) -> None:
    expected = Refused if reason else NotCalls
    with pytest.raises(expected, match=reason or None):
        fold(operation(text), Budget(KNOWN))


@pytest.mark.parametrize(("text", "value"), FOLDED.items())
def test_without_names_nothing_changes(text: str, value: object) -> None:
    assert fold(operation(text), Budget(KNOWN)) == value


def test_what_is_not_reached_is_not_looked_at() -> None:
    node = operation("1 + (2 or print(x)) + (3 if 1 else 9 ** 9 ** 9)")
    assert fold(node, Budget(KNOWN)) == 6
