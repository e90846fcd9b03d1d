"""Texts of Java and JavaScript as values of a documented type."""

import pytest

from ace_ray.benchmarks.bfcl.check.source_values import MAX_CHARS, java_value, javascript_value
from tests.limits import cpu_limit

DIGITS = "9" * 5000


@pytest.mark.parametrize(
    ("text", "kind", "items", "value"),
    [
        ("5", "integer", None, 5),
        ("5L", "long", None, 5),
        ("3.5f", "float", None, 3.5),
        ("1e-2", "double", None, 0.01),
        ("true", "boolean", None, True),
        ("'c'", "char", None, "'c'"),
        ("new int[]{1, 2}", "Array", None, [1, 2]),
        ("new long[] { 1L, 2 }", "Array", "long", [1, "2"]),
        ("new Object[]{1,\"a\", true,,2.5f}", "Array", None, [1, "a", True, 2.5]),
        ("new int[]{1,\n2}", "Array", None, "new int[]{1,\n2}"),
        ("{1, 2}", "Array", None, "{1, 2}"),
        ('new ArrayList<>(Arrays.asList("a", "b"))', "ArrayList", "String", ["a", "b"]),
        ('new ArrayList<String>() {{ add("a"); add("b"); }}', "ArrayList", "String", ["a", "b"]),
        ("new ArrayList<>() {{ }}", "ArrayList", None, []),
        ("Arrays.asList(1)", "ArrayList", None, "Arrays.asList(1)"),
        ('new HashMap<String, Object>() {{ put("a", 1); put("b", true); }}', "HashMap", None,
         {"a": 1, "b": True}),
        ("new HashMap<\n>()", "HashMap", None, "new HashMap<\n>()"),
        ('new HashMap<>() {{ put("a", 5L) }}', "HashMap", None, {"a": 5}),
        ('new HashMap<>() {{ put("a",\n 1) }}', "HashMap", None, {"a": 1}),
    ],
)  # fmt: skip
def test_java_texts_become_values_of_their_type(text, kind, items, value):
    found = java_value(text, kind, items)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("kind", ["Set", "Hashtable", "Queue", "Stack"])
def test_collections_that_upstream_does_not_convert(kind):
    with pytest.raises(NotImplementedError):
        java_value("x", kind)


@pytest.mark.parametrize(
    ("text", "kind", "items", "value"),
    [
        ("'x'", "String", None, "x"),
        ("5", "integer", None, 5),
        ("5", "float", None, 5.0),
        ("5n", "Bigint", None, 5),
        ("true", "Boolean", None, True),
        ("[1, 'two', true]", "array", None, [1, "two", True]),
        ("['a', \"b\"]", "array", "String", ["a", "b"]),
        ("[1, 2", "array", None, "[1, 2"),
        ("[1,\n2]", "array", None, "[1,\n2]"),
        ("[[1, 2], ['a']]", "array", None, [[1, 2], ["a"]]),
        ("[\n[1],\n[2]\n]", "array", None, [[1], [2]]),
        ("[[1], [[2]]]", "array", None, [[1], ["[2"]]),
        ("new Array([1], [2])", "array", None, [[1], [2]]),
        ("[1]", "array", "object", "[1]"),
        ("{'a': 1, b: 'x, y', c: [1, 2]}", "dict", None, {"a": 1, "b": "x, y", "c": [1, 2]}),
        ("{a: {b: 1}}", "dict", None, {"a": "{b: 1"}),
        ("{\na: 1}", "dict", None, "{\na: 1}"),
    ],
)
def test_javascript_texts_become_values_of_their_type(text, kind, items, value):
    found = javascript_value(text, kind, items)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("value_of", "text", "kind"),
    [
        (java_value, DIGITS, "integer"),
        (java_value, DIGITS + "L", "long"),
        (java_value, "1", "object"),
        (javascript_value, DIGITS, "integer"),
        (javascript_value, "1", "object"),
    ],
)
def test_too_many_digits_and_unknown_types(value_of, text, kind):
    with pytest.raises(ValueError, match=r"."):
        value_of(text, kind)


def test_too_many_digits_in_an_array_leave_it_a_text():
    assert javascript_value(f"[{DIGITS}]", "array", "integer").startswith("[9")


@pytest.mark.parametrize(
    ("value_of", "kind", "text"),
    [
        (java_value, "ArrayList", "new ArrayList<>() {{ " + "add(" * 250 + "}}"),
        (java_value, "Array", "new a[]{" * 128),
        (java_value, "HashMap", "new HashMap<" * 42 + ">(){" * 128),
        (java_value, "HashMap", "new HashMap<>() {" + 'put("' * 100 + '",' * 250 + "}"),
        (javascript_value, "dict", "{" + "a:," * 340 + "}"),
        (javascript_value, "array", "[[" + "],[" * 340),
    ],
)
def test_the_worst_collections_take_little_time(value_of, kind, text):
    assert len(text) <= MAX_CHARS
    with cpu_limit(text[:20]):
        value_of(text, kind)
    assert value_of(text + "x" * MAX_CHARS, kind) == text + "x" * MAX_CHARS
