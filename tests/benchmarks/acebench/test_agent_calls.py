"""Which messages are calls: the official decoders' reading, and the fixed one."""

from __future__ import annotations

from typing import Any

import pytest

from ace_ray.benchmarks.acebench.agent_calls import AgentCall, agent_calls

LOOPS = ("multi_turn", "multi_step")


def official(text: str, loop: str = "multi_step") -> list[AgentCall] | None:
    return agent_calls(text, loop=loop, protocol="official")  # type: ignore[arg-type]


def fixed(text: str) -> list[AgentCall] | None:
    found = agent_calls(text, loop="multi_turn", protocol="fixed")
    assert found == agent_calls(text, loop="multi_step", protocol="fixed")
    return found


def arguments(text: str) -> dict[str, Any]:
    """Those of the only call of ``f(<text>)``, which has no problem."""
    found = official(f"[f({text})]")
    assert found is not None
    [call] = found
    assert (call.name, call.problem) == ("f", "")
    return call.arguments


def problem(text: str) -> str:
    found = official(f"[f({text})]")
    assert found is not None
    return found[0].problem


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    "text",
    [
        "[f(a='x')]",
        " [f(a='x')]",
        "[[f(a='x')]]",
        "['f(a='x')']",
        "[(f(a='x'),)]",
        "[f(a='x'),]",
        '[f( a = "x" )]',
    ],
)
def test_forms_that_are_one_call(loop: str, text: str) -> None:
    assert official(text, loop) == [AgentCall("f", {"a": "x"})]


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "[f(]",
        "  [f()]",
        "[f()].",
        "```[f()]```",
        "Sure: [f()]",
        "[f(), x]",
        "[f(a='it's')]",
        "[" * 300 + "f()" + "]" * 300 + ")",
        "[f(a=x.y)]",
        "[f(a=lambda: 1)]",
        "[f(a={'k': 1})]",
        "[f(a='x' + 1)]",
        "[f(a=1 + unknown(b=2))]",
        "[f(a=0x" + "f" * 4000 + ")]",
    ],
)
def test_what_the_official_decoders_do_not_take(loop: str, text: str) -> None:
    assert official(text, loop) is None


def test_one_line_must_hold_both_brackets_in_multi_turn_only() -> None:
    for text in ("f(a=1)", "f(a=1)]", "[f(a=1,\nb=2)]", "]f()["):
        assert official(text, "multi_turn") is None
    assert official("f(a=1)") == [AgentCall("f", {"a": 1})]
    assert official("[f(a=1,\nb=2)]") == [AgentCall("f", {"a": 1, "b": 2})]
    assert official("[f(a=[1],\nb=2)]", "multi_turn") == [AgentCall("f", {"a": [1], "b": 2})]


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("text", ["[hello]", "['hello']", "[1 + 1]", "[x.y]", "[{'a': 1}]"])
def test_another_expression_is_an_empty_batch(loop: str, text: str) -> None:
    assert official(text, loop) == []


def test_several_calls_and_names() -> None:
    found = official("[f(a=1), g(), f(a=2)]")
    assert found == [AgentCall("f", {"a": 1}), AgentCall("g"), AgentCall("f", {"a": 2})]
    [dotted] = official("[Api.send(a=1)]") or []
    assert (dotted.name, dotted.problem) == ("Api.send", "name 'Api' is not defined")
    assert [call.name for call in official("[x().send(), (1)(), 查询()]") or []] == [
        "send",
        "",
        "查询",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1, a=2", {"a": 2}),  # positional arguments are dropped
        ("a=1, a=2", {"a": 2}),
        ("a=true, b=null, c=user1", {"a": "true", "b": "null", "c": "user1"}),
        ("a=True, b=None, c=...", {"a": True, "b": None, "c": "..."}),
        ("a=+5, b=~5, c=not True, d=-2.5", {"a": -5, "b": -5, "c": -1, "d": -2.5}),
        ("a=4 + 1, b='x' 'y' + 'z', c=[1] * 2", {"a": 5, "b": "xyz", "c": [1, 1]}),
        ("a=(1, (2,)), b=[{'k': 1, 'l': {}}]", {"a": [1, [2]], "b": [{"k": 1, "l": {}}]}),
        (
            "a=g(), b=g(1), c=x[0], d=x['a':]",
            {"a": "g()", "b": "g(1)", "c": "x[0]", "d": "x['a':]"},
        ),
        ("a=[g(b=1)]", {"a": [{"g": {"b": 1}}]}),
        ("a='\\ud800'", {"a": "\ud800"}),
    ],
)
def test_arguments_as_the_official_decoders_read_them(text: str, expected: dict[str, Any]) -> None:
    assert arguments(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "a=g(b=1)",
        "a={'print': {'end': 'x'}, 'other': 1}",
        "a=1 + __import__('os').system('x')",
        "a=9**9**9",
        "a=1e999",
        "a=b'x'",
        "a=[{1: 2}]",
        "**x",
        "a=__name__ + 'x'",
    ],
)
def test_what_would_be_evaluated_is_a_call_with_a_problem(text: str) -> None:
    assert problem(text)
    found = official(f"[g(b=1), f({text}, z=1)]")
    assert found is not None
    assert found[0] == AgentCall("g", {"b": 1})
    assert found[1].arguments == {"z": 1}


def test_a_name_that_would_not_be_reached_is_no_name_error() -> None:
    assert arguments("a=1 + (2 or unknown)") == {"a": 3}
    assert official("[f(a=1 + (0 or unknown))]") is None


@pytest.mark.parametrize(
    "text",
    [
        "[f(a='x')]",
        "Sure, I will (as [you] asked) do it:\n```python\n[f(\n  a='x'\n)]\n```\nDone [1].",
        'it\'s [f(a = "x")], and later [g()]',
        "[see note] [ f (a='x') ]",
        "[f(a=unfinished [f(a='x')]",
        "[not(a) list] [f(a='x')]",
    ],
)
def test_fixed_finds_the_first_list_of_calls(text: str) -> None:
    assert fixed(text) == [AgentCall("f", {"a": "x"})]


@pytest.mark.parametrize(
    "text", ["", "f()", "[hello]", "[]", "[f(), x]", "[f(", "[[f()]", "[f']()"]
)
def test_fixed_takes_only_lists_of_calls(text: str) -> None:
    assert fixed(text) == ([AgentCall("f")] if text == "[[f()]" else None)


def test_fixed_takes_brackets_and_quotes_in_texts() -> None:
    assert fixed(r"[f(a='[x] it\'s', b=\"]\")]".replace('\\"', '"')) == [
        AgentCall("f", {"a": "[x] it's", "b": "]"})
    ]
    assert fixed("[f(a={'k': [1, -2.5, None]}, b=(1,))]") == [
        AgentCall("f", {"a": {"k": [1, -2.5, None]}, "b": [1]})
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1", "positional"),
        ("a=true", "a: Name"),
        ("a=1 + 1", "a: BinOp"),
        ("a=g(b=1)", "a: Call"),
        ("a=1, a=2", "repeated"),
        ("**x", "**"),
        ("a={1: 2}", "JSON"),
        ("a=1e999", "JSON"),
    ],
)
def test_fixed_reports_what_is_not_literal(text: str, words: str) -> None:
    [call] = fixed(f"[f({text})]") or []
    assert words in call.problem


@pytest.mark.nightly
@pytest.mark.parametrize("protocol", ["official", "fixed"])
@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        "[f(a=" + "(" * 5_000 + "1" + ")" * 5_000 + ")]",
        "[f(a=" + "+".join(["1"] * 20_000) + ")]",
        "[f(a=" + "g(a=" * 90 + "1" + ")" * 90 + ")]",
        "[f(a='" + "[" * 1_000_000 + "')]",
        "\x00[f()]",
        "[f(a='\ud800')]",
        "[f(a=" + "unknown+" * 5_000 + "1)]",
    ],
    ids=range(8),
)
def test_hostile_messages_end(protocol: Any, text: str) -> None:
    for loop in LOOPS:
        found = agent_calls(text, loop=loop, protocol=protocol)  # type: ignore[arg-type]
        assert found is None or isinstance(found, list)
