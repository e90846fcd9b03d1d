"""Model text to calls: the parser and its bounds."""

from __future__ import annotations

import time
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ace_ray.parsing.literals import Call, parse_calls, render
from ace_ray.parsing.syntax import MAX_CHARS, MAX_CODE, MAX_DEPTH, MAX_DIGITS, NotCalls

LITERALS = {
    "'x'": "x",
    '"it\'s"': "it's",
    "-5": -5,
    "+5": 5,
    "- 0.5": -0.5,
    "1e3": 1000.0,
    "0x1F": 31,
    "1_000": 1000,
    "True": True,
    "None": None,
    "[1, [2.5, 'a'], {}]": [1, [2.5, "a"], {}],
    "{'a': {'b': [True]}, 1: None}": {"a": {"b": [True]}, 1: None},
    "(1, 'a')": (1, "a"),
    r"'\u4f60\n'": "你\n",
    "'a' 'b'": "ab",
    "[1, 2,]": [1, 2],
}

NOT_LITERALS = [
    "true", "null", "foo", "foo.bar", "f()", "f(x=1)", "1 + 1", "not True", "~5", "--5", "-'a'",
    "b'x'", "1j", "...", "{1, 2}", "{**x}", "[*x]", "f'{1}'", "lambda: 1", "x[0]", "1 < 2",
    "1 if 2 else 3", "(y := 1)", "[x for x in y]", "{[]: 1}", "007",
]  # fmt: skip

NOT_CALLS = [
    "", "[", "F(a=1)", "(F(a=1),)", "{F(a=1)}", "[1]", "['F']", "[F]", "[F(1)]", "[F(*a)]",
    "[F(**a)]", "[F(a=1, a=2)]", "[F(a=1)](b=2)", "[F()()]", "[x[0](a=1)]", "[*F()]", "[F(a=)]",
    "[F(a=1) G(b=2)]", "[F(a=1)], ", "[F(class='x')]", "[F(a='x)]", "[F(a='\ud800')]",
    "[F(a='\0')]", " [F(a=1)]", "[F(a=1)]]",
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), LITERALS.items())
def test_literals_are_read(text: str, value: object) -> None:
    (call,) = parse_calls(f"[F(a={text})]")
    assert call == Call("F", {"a": value})
    assert type(call.args["a"]) is type(value)


@pytest.mark.parametrize("text", NOT_LITERALS)
def test_what_is_not_a_literal_is_refused(text: str) -> None:
    with pytest.raises(NotCalls):
        parse_calls(f"[F(a={text})]")


@pytest.mark.parametrize("text", NOT_CALLS)
def test_what_is_not_a_list_of_calls_is_refused(text: str) -> None:
    with pytest.raises(NotCalls):
        parse_calls(text)


def test_names_may_be_dotted_and_calls_may_be_many() -> None:
    calls = parse_calls("[a.b.c(x=1),\n G(), 查询(k='v')]")
    assert calls == [Call("a.b.c", {"x": 1}), Call("G", {}), Call("查询", {"k": "v"})]
    assert parse_calls("[]") == []


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@pytest.mark.nightly
@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.just("F"), st.dictionaries(st.just("k"), VALUES)), max_size=3))
def test_rendered_calls_are_read_back(calls: list[tuple[str, dict[str, object]]]) -> None:
    assert parse_calls(render(calls)) == [Call(*call) for call in calls]


def test_bounds_are_exact_and_ignore_strings_and_comments() -> None:
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


HOSTILE = {
    "open": "[" * 60_000,
    "parentheses": "(" * 5_000 + "1" + ")" * 5_000,
    "signs": "-" * 60_000 + "1",
    "nots": "not " * 15_000 + "1",
    "sum": "1+" * 30_000 + "1",
    "power": "1**" * 20_000 + "1",
    "dots": "a" + ".a" * 30_000,
    "calls": "a" + "()" * 30_000,
    "lambdas": "lambda:" * 9_000 + "1",
    "comparisons": "1<" * 30_000 + "1",
    "conditions": "1 if 1 else " * 5_000 + "1",
    "elements": "[" + "1," * 30_000 + "]",
    "broken elements": "[" + "1," * 30_000 + " 1 1]",
    "pairs": "{" + "1:1," * 15_000 + "}",
    "quotes": "'" * 60_001,
    "escaped quotes": "'''" + "\\'''" * 15_000,
    "hexadecimal": "0x" + "f" * 60_000,
    "fraction": "0." + "1" * 60_000,
    "f-strings": "f'{a}' " * 8_000,
    "word": "a" * 60_000,
    "many elements": "[" + "1," * 65_000 + "]",
    "empty elements": "[" + "[]," * 43_000 + "]",
    "many strings": "''" * 65_000,
    "long string": "'" + "x" * 4_000_000 + "'",
    "long lines": "'''" + "x\n" * 2_000_000 + "'''",
    "long escapes": "'" + "\\d" * 2_000_000 + "'",
    "long unterminated": "'''" + "x\n" * 2_000_000,
    "lambdas in a list": "[" + "lambda:0," * 14_000 + "]",
    "f-string": "f'" + "{a}" * 43_000 + "'",
}


@pytest.mark.nightly
@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_texts_end_soon(value: str) -> None:
    """None takes time out of proportion: a quadratic reading of these takes minutes."""
    started = time.process_time()
    for text in (value, f"[F(a={value})]"):
        try:
            parse_calls(text)
        except NotCalls:
            continue
    assert time.process_time() - started < 30


def test_odd_escapes_make_no_warning_and_no_error() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert parse_calls(r"[F(a='\d')]") == [Call("F", {"a": "\\d"})]
        with pytest.raises(NotCalls):
            parse_calls("[F(a=1or 2)]")
