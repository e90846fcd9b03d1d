"""Readers of the formats in which models are known to write calls, and values of XML parameters."""

import json
from typing import Any

import pytest

from ace_ray.parsing.formats import MAX_CALLS, READERS, parse_known_formats
from ace_ray.parsing.literals import Call
from ace_ray.parsing.syntax import MAX_CODE, MAX_DEPTH

E, F, G = Call("e", {}), Call("f", {"a": 1}), Call("g", {"b": ["x", None], "c": {"d": True}})
F_JSON, G_JSON = ({"name": call.name, "arguments": call.args} for call in (F, G))
F_TEXT, G_TEXT = json.dumps(F_JSON), json.dumps(G_JSON, indent=2)
BOTH, F_BODY = f"[{F_TEXT}, {G_TEXT}]", '{"a": 1}'
XML_F = "<function=f>\n<parameter=a>\n1\n</parameter>\n</function>"
XML_G = (
    '<function=g><parameter=b>["x", null]</parameter><parameter=c>{"d": true}</parameter>'
    "</function>"
)
OPENAI = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}

READ: list[tuple[str, str, list[Call]]] = [
    ("hermes", f"Well.<tool_call>{F_TEXT}</tool_call> and <tool_call>{G_TEXT}</tool_call>", [F, G]),
    ("functionary", f"Well.<function=f>{F_BODY}</function> and <function=e></function>", [F, E]),
    (
        "functionary",
        '<function=f>{"a": "</function>"}</function>',
        [Call("f", {"a": "</function>"})],
    ),
    ("qwen3_coder", XML_F + XML_G + "<function=e></function>", [F, G, E]),
    ("mistral", f"[TOOL_CALLS]{BOTH}", [F, G]),
    ("mistral", f"[TOOL_CALLS]f[ARGS]{F_BODY}[TOOL_CALLS]f[CALL_ID]abc123[ARGS]{F_BODY}", [F, F]),
    ("fenced_json", f"I call it:\n\n```json\n{BOTH}\n```\nThat is all.", [F, G]),
    ("fenced_json", f"```json\n{json.dumps({'tool_calls': [OPENAI, OPENAI]})}\n```", [F, F]),
    ("fenced_python", "```python\n[f(a=1), g(b=('x', None), c={'d': True})]\n```", [F, G]),
    ("llama3_json", f"<|python_tag|>{F_TEXT}; {G_TEXT}<|eom_id|>", [F, G]),
    ("pythonic", "[f(a=1), g(b=['x', null], c={'d': true})]", [F, G]),
    # Parameters stand in for arguments that are null.
    ("hermes", '<tool_call>{"name": "f", "arguments": null, "parameters": {"a": 1}}', [F]),
]


@pytest.mark.parametrize(("reader", "text", "calls"), READ, ids=[reader for reader, _, _ in READ])
def test_a_known_format_is_read_by_the_reader_of_its_name(reader, text, calls) -> None:
    assert parse_known_formats(text) == (reader, calls)


def test_each_reader_has_a_text() -> None:
    assert {reader for reader, _, _ in READ} == set(READERS)


NO_CALLS = [
    "",
    "No function fits.",
    f"<tool_call>{F_TEXT}</tool_call><tool_call>{{'name'</tool_call>",
    '```json\n{"name": "f", "arguments": {"a": NaN}}\n```',
    '{"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}}',
    "[f(a=__import__('os').system('true'))]",
    # Calls whose arguments would be lost.
    '<function=f>{"a": 1</function>',
    '<tool_call>{"name": "f", "args": {"a": 1}}</tool_call>',
]


def test_a_text_without_a_complete_call_is_not_read() -> None:
    for text in NO_CALLS:
        assert parse_known_formats(text) is None, text


TOOLS = [
    {"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {}}}}},
    {"type": "function", "function": {"name": "bare"}},
]


def test_a_call_may_lack_its_arguments() -> None:
    forms = ('{"name": "%s", "arguments": null}', '{"function": {"name": "%s", "arguments": ""}}')
    for text, name in ((form % name, name) for form in forms for name in ("f", "bare")):
        for marked in (f"<tool_call>\n{text}\n</tool_call>", f"[TOOL_CALLS][{text}]"):
            assert (parse_known_formats(marked) or ("", []))[1] == [Call(name, {})]
        for bare in (text, f"```json\n{text}\n```"):
            assert parse_known_formats(bare) is None  # a person's name, perhaps
            assert (parse_known_formats(bare, TOOLS) or ("", []))[1] == [Call(name, {})]


def test_numbers_of_calls_names_and_characters_are_bounded() -> None:
    assert len((parse_known_formats(f"[{'f(),' * MAX_CALLS}]") or ("", []))[1]) == MAX_CALLS
    assert parse_known_formats(f"[{'f(),' * (MAX_CALLS + 1)}]") is None
    assert parse_known_formats("```json\n" + F_TEXT * (MAX_CALLS + 1)) is None
    assert len((parse_known_formats(f"{F_TEXT} and " * MAX_CALLS) or ("", []))[1]) == MAX_CALLS
    assert parse_known_formats(f"{F_TEXT} and " * (MAX_CALLS + 1)) is None
    assert parse_known_formats(f"{'f' * 257}(a=1)") is None
    assert parse_known_formats(" " * MAX_CODE + F_TEXT) is None


def test_depth_and_digits_are_bounded() -> None:
    def nested(depth: int) -> str:
        return f'{{"name": "f", "arguments": {{"a": {"[" * depth}{"]" * depth}}}}}'

    assert parse_known_formats(nested(MAX_DEPTH - 2))
    assert parse_known_formats(nested(MAX_DEPTH - 1)) is None
    assert parse_known_formats(nested(40_000)) is None
    # A quote in prose begins no text of JSON.
    assert parse_known_formats(f'{F_TEXT} of 5" {nested(MAX_DEPTH - 2)}')
    assert parse_known_formats(f'{F_TEXT} of 5" {nested(MAX_DEPTH - 1)}') is None
    assert parse_known_formats(f'{{"name": "f", "arguments": {{"a": {"9" * 5_000}}}}}') is None
    assert parse_known_formats(f"f(a={'9' * 5_000})") is None


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
    parsed = parse_known_formats(
        f"<function=f>\n<parameter=a>\n{text}\n</parameter>\n</function>", [tool]
    )
    assert parsed is not None
    ((_, args),) = parsed.calls
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


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("5", {"$ref": "#/$defs/Loop"}, 5),
        ("5", {"enum": [1, 5]}, 5),
        ("3.0", {"type": "integer"}, 3),
        ("5", {"$ref": "other.json#/a"}, "5"),
        ("5", True, "5"),
        ("null", {"type": "string", "nullable": True}, None),
        ("1e999", {"type": "number"}, "1e999"),
        ("[1e999]", {"type": "array"}, "[1e999]"),
    ],
    ids=["loop", "enum", "integer", "other file", "any", "null", "infinity", "list"],
)
def test_values_get_the_types_of_the_schema(text: str, schema: Any, value: Any) -> None:
    parsed = read(text, schema)
    assert (parsed, type(parsed)) == (value, type(value))


def test_digits_of_a_text_are_no_number() -> None:
    for schema in TEXTS:
        assert read("12139", schema) == "12139"
        assert read("[1]", schema) == "[1]"


def test_odd_parameters_of_a_tool_are_read() -> None:
    odd: Any
    for odd in (None, [], {"properties": None}, {"properties": {"a": None}}):
        tool = {"type": "function", "function": {"name": "f", "parameters": odd}}
        assert (
            parse_known_formats("<function=f>\n<parameter=a>\n12\n</parameter>", [tool, {}])
            is not None
        )


def test_a_schema_of_any_depth_is_read() -> None:
    deep: Any = TEXT
    for _ in range(5_000):
        deep = {"anyOf": [deep, {"$ref": "#/$defs/Loop"}]}
    assert read("x", deep) == "x"
    assert read("12", {"$ref": "#/" + "a/" * 100_000}) == "12"
