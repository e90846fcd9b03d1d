"""Operations on numbers and strings: computed as Python computes them, or refused."""

import ast

import pytest

from ace_ray.parsing.constant_folding import MAX_LEVELS, Budget, Refusal, fold
from ace_ray.parsing.syntax import NotCalls, expression

FOLDED = {
    "'a' + 'b' 'c'": "abc", "'ab' * 2": "abab", "5 * 10**-12": 5e-12, "7 // 2 + -3": 0,
    "10**5000 // 10**4999": 10, "~True + 1": -1, "1j * 1j": -1 + 0j, "'a' * -1": "",
}  # fmt: skip
RAISES = [
    "1 + 'a'", "1 / 0", "1 @ 2", "-'a' + 1", "0 ** -1", "10.0 ** 400", "1 << -1", "'x' ** 2",
    "1 + 10**400 * 1.0", "1 / 0 + open('x')", "2025 - Q2", f"0x{'f' * 4000} + f()", "x + 1",
    "f(1) + 2", "print(x) + 1", "1 + (y := x)", "1 + [y for y in x]", "1 / 0 + 'a' * 1000000000",
    "+".join(["f()"] * 6_000)[:-3], "1 + (0 or x)",
]  # fmt: skip
REFUSED = [
    "'a' * 1000000000", "'a' * 100_001", "9 ** 9 ** 9", "1 << (10 ** 10)", "2**99999 * 2**99999",
    "(1 << 100_000) + 1", "+".join(["2**99999 // 3**31000"] * 250), "'%s' % 1", "[1] + [2]",
    "[0] * 10**9", "print(1) + 1", "print(1) + x", "'a'.upper() + 'b'", "1 + (2 > 1)",
    "1 + [y for y in 'a']", "1 + (lambda: x)()", "{'a': 1} | {}", "'a' + f'{1}'", "None + 1",
    "'a' + ('b' or g())", "1 + (2 if 1 else x)", "1 + (1 < 2 < x)", "1 + [x for y in 'a']",
]  # fmt: skip
KNOWN = {"print", "open"}.__contains__


def operation(text: str) -> ast.BinOp:
    node = expression(text)
    assert isinstance(node, ast.BinOp)
    return node


@pytest.mark.parametrize("text", FOLDED)
def test_an_operation_on_numbers_or_strings_is_computed(text: str) -> None:
    folded = fold(operation(text), Budget(KNOWN))
    assert (folded, type(folded)) == (FOLDED[text], type(FOLDED[text]))


@pytest.mark.parametrize("text", RAISES, ids=lambda text: text[:30])
def test_an_exception_of_python_means_that_there_are_no_calls(text: str) -> None:
    with pytest.raises(NotCalls):
        fold(operation(text), Budget(KNOWN))


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text[:30])
def test_code_and_large_results_are_refused(text: str) -> None:
    with pytest.raises(Refusal):
        fold(operation(text), Budget(KNOWN))


def test_the_results_of_one_text_are_bounded_together() -> None:
    budget, node = Budget(), operation("'a' * 90000")
    for _ in range(11):
        assert len(fold(node, budget)) == 90_000
    with pytest.raises(Refusal):
        fold(node, budget)


def test_a_long_sum_is_computed_up_to_its_bound() -> None:
    assert fold(operation("+".join(["1"] * MAX_LEVELS)), Budget()) == MAX_LEVELS
    with pytest.raises(NotCalls, match="nested"):
        fold(operation("+".join(["1"] * (MAX_LEVELS + 1))), Budget())
