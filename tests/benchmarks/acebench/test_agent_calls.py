"""Which messages are calls: the official decoders' reading, and the fixed one."""

from typing import Any

from ace_ray.benchmarks.acebench.agent_calls import AgentCall, agent_calls

LOOPS = ("multi_turn", "multi_step")


def official(text: str, loop: str = "multi_step") -> list[AgentCall] | None:
    return agent_calls(text, loop=loop, protocol="official")  # type: ignore[arg-type]


def fixed(text: str) -> list[AgentCall] | None:
    calls = agent_calls(text, loop="multi_turn", protocol="fixed")
    assert calls == agent_calls(text, loop="multi_step", protocol="fixed")
    return calls


ONE_CALL = ["[f(a='x')]", " [[f(a='x')]]", "['f(a='x')']", "[(f(a='x'),)]", "[f(a='x'),]"]


def test_the_official_decoders_read_the_whole_message() -> None:
    no_call = [
        "",
        "[f()].",
        "[f(), x]",
        "[f(a='it's')]",
        "[" * 300 + "f()" + "]" * 300 + ")",
        "[f(a={'k': 1})]",
        "[f(a=1 + (0 or unknown))]",
        "[f(a=0x" + "f" * 4000 + ")]",
    ]
    for loop in LOOPS:
        for text in ONE_CALL:
            assert official(text, loop) == [AgentCall("f", {"a": "x"})], text
        for text in no_call:
            assert official(text, loop) is None, text
        for text in ("[hello]", "['hello']", "[1 + 1]", "[x.y]", "[{'a': 1}]"):
            assert official(text, loop) == [], text


def test_calls_over_several_lines_and_with_odd_names() -> None:
    # In multi_turn one line must hold both brackets.
    for text in ("f(a=1)", "f(a=1)]", "[f(a=1,\nb=2)]", "]f()["):
        assert official(text, "multi_turn") is None
    assert official("f(a=1)") == [AgentCall("f", {"a": 1})]
    assert official("[f(a=1,\nb=2)]") == [AgentCall("f", {"a": 1, "b": 2})]
    assert official("[f(a=[1],\nb=2)]", "multi_turn") == [AgentCall("f", {"a": [1], "b": 2})]
    calls = official("[f(a=1), g(), f(a=2)]")
    assert calls == [AgentCall("f", {"a": 1}), AgentCall("g"), AgentCall("f", {"a": 2})]
    problem = "name 'Api' is not defined"
    assert official("[Api.send(a=1)]") == [AgentCall("Api.send", {"a": 1}, problem, "send")]


def test_arguments_are_read_as_the_official_decoders_read_them() -> None:
    evaluated = [
        "a=g(b=1)",
        "a={'print': {'end': 'x'}, 'other': 1}",
        "a=1 + __import__('os').system('x')",
        "a=1e999",
        "a=[{1: 2}]",
        "**x",
    ]
    arguments: dict[str, dict[str, Any]] = {
        "1, a=1, a=2": {"a": 2},  # positional arguments are dropped
        "a=true, b=None, c=...": {"a": "true", "b": None, "c": "..."},
        "a=4 + 1, b='x' 'y' + 'z'": {"a": 5, "b": "xyz"},
        "a=(1, (2,)), b=[{'k': 1, 'l': {}}]": {"a": [1, [2]], "b": [{"k": 1, "l": {}}]},
        "a=[g(b=1)]": {"a": [{"g": {"b": 1}}]},
    }
    for text, expected in arguments.items():
        assert official(f"[f({text})]") == [AgentCall("f", expected)]
    for text in evaluated:
        first, second = official(f"[g(b=1), f({text}, z=1)]") or []
        assert first == AgentCall("g", {"b": 1})
        assert second.problem, text
        assert second.arguments == {"z": 1}


def test_fixed_finds_the_first_list_of_calls_of_twenty() -> None:
    texts = [
        "Sure, I will (as [you] asked) do it:\n```python\n[f(\n  a='x'\n)]\n```\nDone [1].",
        'it\'s [f(a = "x")], and later [g()]',
        "[f(a=unfinished [f(a='x')]",
        "[[f(a='x')]",
    ]
    for text in texts:
        assert fixed(text) == [AgentCall("f", {"a": "x"})], text
    for text in ("", "f()", "[hello]", "[]", "[f(), x]", "[f(", "[f']()"):
        assert fixed(text) is None, text
    assert fixed("[f(, " * 19 + "[f()]") == [AgentCall("f")]
    assert fixed("[f(, " * 20 + "[f()]") is None


def test_fixed_takes_literal_arguments_and_reports_others() -> None:
    assert fixed(r"""[f(a='[x] it\'s', b="]", c={'k': [1, -2.5, None]}, d=(1,))]""") == [
        AgentCall("f", {"a": "[x] it's", "b": "]", "c": {"k": [1, -2.5, None]}, "d": [1]})
    ]
    for text, words in {
        "1": "positional",
        "a=true": "a: Name",
        "a=1, a=2": "repeated",
        "**x": "**",
        "a={1: 2}": "JSON",
    }.items():
        [call] = fixed(f"[f({text})]") or []
        assert words in call.problem
