import pytest

from ace_ray.benchmarks.bfcl.check.javascript import javascript_value


@pytest.mark.parametrize(
    ("text", "kind", "items", "value"),
    [
        ("'x'", "String", None, "x"),
        ("x", "String", None, "x"),
        ("5", "integer", None, 5),
        ("5.0", "integer", None, "5.0"),
        ("5", "float", None, 5.0),
        ("1e3", "float", None, "1e3"),
        ("5n", "Bigint", None, 5),
        ("5", "Bigint", None, "5"),
        ("true", "Boolean", None, True),
        ("5", "any", None, "5"),
        ("[1, 'two', true]", "array", None, [1, "two", True]),
        ("new Array(1, 2)", "array", None, [1, 2]),
        ("['a', \"b\"]", "array", "String", ["a", "b"]),
        ("['1', 2]", "array", "integer", ["'1'", 2]),
        ("[]", "array", "integer", []),
        ("[1, 2", "array", None, "[1, 2"),
        ("[1,\n2]", "array", None, "[1,\n2]"),
        ("[[1, 2], ['a']]", "array", None, [[1, 2], ["a"]]),
        ("[\n[1],\n[2]\n]", "array", None, [[1], [2]]),
        ("[[]]", "array", None, [[""]]),
        ("[[1], [[2]]]", "array", None, [[1], ["[2"]]),
        ("new Array([1], [2])", "array", None, [[1], [2]]),
        ("[1]", "array", "object", "[1]"),
        ("{}", "dict", None, {}),
        ("{'a': 1, b: 'x, y', c: [1, 2]}", "dict", None, {"a": 1, "b": "x, y", "c": [1, 2]}),
        ("{a: {b: 1}}", "dict", None, {"a": "{b: 1"}),
        ("{\na: 1}", "dict", None, "{\na: 1}"),
        ("{a}", "dict", None, {}),
    ],
)
def test_texts_become_values_of_their_type(text, kind, items, value):
    found = javascript_value(text, kind, items)
    assert (found, type(found)) == (value, type(value))


def test_too_many_digits_and_unknown_types():
    for text, kind in (("9" * 5000, "integer"), ("1", "object")):
        with pytest.raises(ValueError, match=r"."):
            javascript_value(text, kind)
    assert javascript_value("[" + "9" * 5000 + "]", "array", "integer").startswith("[9")
