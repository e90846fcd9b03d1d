"""Values of XML parameters, by the JSON Schema of a tool."""

from __future__ import annotations

from typing import Any

import pytest

from ace_ray.parsing.known import known_calls

TEXT = {"type": "string"}
DEFS = {
    "Text": TEXT,
    "Count": {"type": "integer"},
    "Loop": {"anyOf": [{"$ref": "#/$defs/Loop"}, {"$ref": "#/$defs/Count"}]},
    "Nothing": {"$ref": "#/$defs/Nothing"},
}


def read(text: str, schema: Any) -> Any:
    """Return the value that is read for a parameter of the schema."""
    parameters = {"properties": {"a": schema}, "$defs": DEFS, "definitions": DEFS}
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
    found = known_calls(f"<function=f>\n<parameter=a>\n{text}\n</parameter>\n</function>", [tool])
    assert found is not None
    assert found.reader == "qwen3_coder"
    ((name, args),) = found.calls
    assert name == "f"
    return args["a"]


TEXTS: list[dict[str, Any]] = [
    {"anyOf": [TEXT, {"type": "null"}]},
    {"oneOf": [{"type": "null"}, {"$ref": "#/definitions/Text"}]},
    {"type": ["string", "null"]},
    {"allOf": [{"$ref": "#/$defs/Text"}]},
    {"enum": ["12139", "02139"]},
    {"const": "12139"},
    {"$ref": "#/$defs/Nothing"},
]
VALUES: list[tuple[str, Any, Any]] = [
    ("5", {"$ref": "#/$defs/Loop"}, 5),
    ("5", {"enum": [1, 5]}, 5),
    ("3.0", {"type": "integer"}, 3),
    ("5", {"$ref": "other.json#/a"}, "5"),
    ("5", True, "5"),
    ("null", {"type": "string", "nullable": True}, None),
    ("1e999", {"type": "number"}, "1e999"),
    ("[1e999]", {"type": "array"}, "[1e999]"),
]


def test_values_get_the_types_of_the_schema() -> None:
    for schema in TEXTS:  # a text, but no number
        assert read("12139", schema) == "12139"
        assert read("[1]", schema) == "[1]"
    for text, schema, value in VALUES:
        found = read(text, schema)
        assert (found, type(found)) == (value, type(value)), schema


@pytest.mark.usefixtures("vllm")
def test_unions_are_read_as_vllm_reads_them() -> None:
    utils = pytest.importorskip("vllm.tool_parsers.utils")
    kinds = ["string", "integer", "number", "boolean", "object", "array", "null", "str", "any"]
    texts = ["12", "3.5", "abc", "null", "TRUE", "1", "[1]", '{"a": 1}', '"q"', "1_0", "NaN", ""]
    for first in kinds:
        for second in kinds:
            schema = {"anyOf": [{"type": first}, {"type": second}]}
            types = utils.extract_types_from_schema(schema)
            for text in texts:
                theirs = utils.coerce_to_schema_type(text, types)
                assert repr(read(text, schema)) == repr(theirs), (schema, text)


def test_a_schema_of_any_depth_is_read() -> None:
    deep: Any = TEXT
    for _ in range(5_000):
        deep = {"anyOf": [deep, {"$ref": "#/$defs/Loop"}]}
    assert read("x", deep) == "x"
    assert read("12", {"$ref": "#/" + "a/" * 100_000}) == "12"
