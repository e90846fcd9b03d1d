"""Texts of Java and JavaScript as values of a documented type."""

import pytest

from ace_ray.benchmarks.bfcl.check.source_values import (
    MAX_CHARS,
    MAX_LIST_CHARS,
    java_value,
    javascript_value,
)
from tests.limits import cpu_limit


def test_simple_texts_become_values():
    for value_of, values in (
        (java_value, {("5", "integer"): 5, ("5L", "long"): 5, ("5", "long"): "5"}),
        (java_value, {("3.5f", "float"): 3.5, ("3.5", "float"): "3.5", ("1e-2", "double"): 0.01}),
        (java_value, {("true", "boolean"): True, ("'c'", "char"): "'c'"}),
        (javascript_value, {("'x'", "String"): "x", ("x", "String"): "x"}),
        (javascript_value, {("5", "integer"): 5, ("5", "float"): 5.0, ("5n", "Bigint"): 5}),
        (javascript_value, {("true", "Boolean"): True, ("5", "any"): "5"}),
    ):
        for (text, kind), value in values.items():
            parsed = value_of(text, kind)
            assert (parsed, type(parsed)) == (value, type(value)), text


@pytest.mark.parametrize(
    ("text", "kind", "items", "value"),
    [
        ('new Object[]{1,"a", true,,2.5f, 3L}', "Array", None, [1, "a", True, 2.5, 3]),
        ("new long[] { 1L, 2 }", "Array", "long", [1, "2"]),
        ('new ArrayList<>(Arrays.asList("a", "b"))', "ArrayList", "String", ["a", "b"]),
        ('new ArrayList<String>() {{ add("a"); add("b"); }}', "ArrayList", "String", ["a", "b"]),
        ("new ArrayList<>() {{ }}", "ArrayList", None, []),
        ('new HashMap<>() {{ put("a",\n 1); put("b", true); }}', "HashMap", None,
         {"a": 1, "b": True}),
        ("[1, 'two', true]", "array", None, [1, "two", True]),
        ("[[1, 2], ['a']]", "array", None, [[1, 2], ["a"]]),
        ("[[1], [[2]]]", "array", None, [[1], ["[2"]]),
        ("new Array([1], [2])", "array", None, [[1], [2]]),
        ("[1]", "array", "object", "[1]"),
        ("{'a': 1, b: 'x, y', c: [1, 2]}", "dict", None, {"a": 1, "b": "x, y", "c": [1, 2]}),
    ],
)  # fmt: skip
def test_collections_become_values(text, kind, items, value):
    value_of = javascript_value if kind.islower() else java_value
    assert value_of(text, kind, items) == value


@pytest.mark.parametrize(
    ("value_of", "kind", "text", "max_chars"),
    [
        (java_value, "HashMap", "new HashMap<>() {" + 'put("' * 100 + '",' * 250 + "}", MAX_CHARS),
        (java_value, "ArrayList", "new ArrayList<>(){{" + "add(" * 2_000 + "}}", MAX_LIST_CHARS),
        (javascript_value, "array", "[[" + "],[" * 340, MAX_LIST_CHARS),
    ],
    ids=["map of Java", "list of Java", "list of JavaScript"],
)
def test_long_collections_take_little_time_and_stay_texts(value_of, kind, text, max_chars):
    assert len(text) <= max_chars
    with cpu_limit(text[:20]):
        value_of(text, kind)
    assert value_of(text + "x" * max_chars, kind) == text + "x" * max_chars


def test_long_lists_become_values():
    # Upstream converts lists of any length; a text of Java has at most as many characters.
    long = ", ".join(['"a"'] * 1_000)
    assert java_value(f"new String[]{{{long}}}", "Array", "String") == ['"a"'] * 1_000
    assert javascript_value(f"[{long}]", "array") == ["a"] * 1_000
