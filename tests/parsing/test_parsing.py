"""Model text to calls: the parser and its bounds."""

import warnings
from typing import Any

import pytest

from ace_ray.parsing import syntax
from ace_ray.parsing.literals import Call, parse_calls, render
from ace_ray.parsing.syntax import MAX_CHARS, MAX_CODE, MAX_DEPTH, MAX_DIGITS, NotCalls

LITERALS = {
    '"it\'s"': "it's",
    "- 0.5": -0.5,
    "0x1F": 31,
    "None": None,
    "[1, [2.5, 'a'], {},]": [1, [2.5, "a"], {}],
    "{'a': {'b': [True]}, 1: None}": {"a": {"b": [True]}, 1: None},
    "(1, 'a')": (1, "a"),
    r"'\u4f60\n' 'a'": "你\na",
}
NOT_LITERALS = [
    "true", "foo.bar", "f(x=1)", "1 + 1", "not True", "~5", "--5", "-'a'", "-True", "b'x'", "1j",
    "...", "{1, 2}", "{**x}", "[*x]", "f'{1}'", "lambda: 1", "x[0]", "1 < 2", "1 if 2 else 3",
    "{[]: 1}", "007",
]  # fmt: skip
NOT_CALLS = [
    "", "[", "F(a=1)", "(F(a=1),)", "[1]", "['F']", "[F]", "[F(1)]", "[F(*a)]", "[F(**a)]",
    "[F(a=1, a=2)]", "[F()()]", "[x[0](a=1)]", "[*F()]", "[F(a=1) G(b=2)]", "[F(a=1)], ",
    "[F(class='x')]", "[F(a='x)]", "[F(a='\ud800')]", "[F(a='\0')]", " [F(a=1)]", "[F(a=1)]]",
]  # fmt: skip


def test_literals_are_read() -> None:
    for text, value in LITERALS.items():
        (call,) = parse_calls(f"[F(a={text})]")
        assert call == Call("F", {"a": value})
        assert type(call.args["a"]) is type(value)


def test_everything_else_is_refused() -> None:
    for text in (*(f"[F(a={value})]" for value in NOT_LITERALS), *NOT_CALLS):
        with pytest.raises(NotCalls):
            parse_calls(text)


def test_names_may_be_dotted_and_calls_may_be_many() -> None:
    calls = parse_calls("[a.b.c(x=1),\n G(), 查询(k='v')]")
    assert calls == [Call("a.b.c", {"x": 1}), Call("G", {}), Call("查询", {"k": "v"})]
    assert parse_calls("[]") == []
    values: dict[str, Any] = {"k": [None, True, -3, 0.1, "it's \"\n", {"": []}], "x": "é\u2028"}
    assert parse_calls(render([("F", values), ("a.b", {})])) == [Call("F", values), Call("a.b", {})]


def test_bounds_are_exact_and_ignore_strings_and_comments() -> None:
    with pytest.raises(NotCalls, match="longer than 3"):
        syntax.bounded_json("[12]", 3)
    deep = "[" * (MAX_DEPTH - 2) + "]" * (MAX_DEPTH - 2)
    assert parse_calls(f"[F(a={deep})]")
    with pytest.raises(NotCalls, match=f"more than {MAX_DEPTH}"):
        parse_calls(f"[F(a=[{deep}])]")
    brackets = "(" * 500
    assert parse_calls(f"[F(a='{brackets}', b='''{brackets}''' # {brackets}\n)]")
    digits = "7" * MAX_DIGITS
    assert parse_calls(f"[F(a={digits})]") == [Call("F", {"a": int(digits)})]
    with pytest.raises(NotCalls, match="digits"):
        parse_calls(f"[F(a={digits}7)]")
    assert parse_calls(f"[F(a='{digits}7', b=0.{digits}7)]")


def test_length_counts_outside_of_strings_and_much_more_inside() -> None:
    assert parse_calls("[F(a=1)" + " " * (MAX_CODE - 8) + "]")
    with pytest.raises(NotCalls, match="outside of strings"):
        parse_calls("[F(a=1)" + " " * (MAX_CODE - 7) + "]")
    for quotes in ("'", '"', "'''", '"""'):
        inside = "(x\\" * 300_000
        (call,) = parse_calls(f"[F(a={quotes}{inside}n{quotes})]")
        assert len(call.args["a"]) >= 900_000
    with pytest.raises(NotCalls, match="outside of strings"):
        parse_calls(f"[F(a=f'{'{1}' * MAX_CODE}')]")
    with pytest.raises(NotCalls, match=f"longer than {MAX_CHARS}"):
        parse_calls(f"[F(a='{'x' * MAX_CHARS}')]")


def test_odd_escapes_make_no_warning_and_no_error() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert parse_calls(r"[F(a='\d')]") == [Call("F", {"a": "\\d"})]
        with pytest.raises(NotCalls):
            parse_calls("[F(a=1or 2)]")
