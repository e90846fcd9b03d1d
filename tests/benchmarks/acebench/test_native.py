"""Native tool calling: schemas and names of tools, and calls written in the official syntax."""

from typing import Any

import pytest

from ace_ray.benchmarks.acebench import native
from ace_ray.types import ToolCall


def parameters(published: Any, key: str = "parameters") -> Any:
    """Return the schema of one function."""
    (tool,) = native.openai_tools([{"name": "F", "description": "d", key: published}])
    return tool["function"]["parameters"]


def param(published: Any) -> Any:
    return parameters({"type": "object", "properties": {"p": published}})["properties"]["p"]


def test_a_tool_has_openais_form() -> None:
    schema = {"type": "object", "properties": {"p": {"type": "string"}}, "required": ["p"]}
    offered = {"name": "F", "description": "d", "parameters": schema}
    for key in ("parameters", "arguments", "_arguments"):
        function = {"name": "F", "description": "d", "results": {}, "tags": []}
        tools = native.openai_tools([{**function, key: {**schema, "type": "dict"}}])
        assert tools == [{"type": "function", "function": offered}]
    nothing = {"type": "object", "properties": {}}
    assert parameters({}) == parameters(None) == parameters("x") == nothing
    # A required name without a description is not required.
    published = {"properties": {"a": {}, "b": {}}, "required": ["c", "b", "b"]}
    assert parameters(published)["required"] == ["b"]


def test_types_and_choices_become_json_schema() -> None:
    types: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"type": "tuple"}, {"type": "array", "items": {}}),
        ({"type": "list(string)"}, {"type": "array", "items": {"type": "string"}}),
        ({"type": "unheard of"}, {}),
        ({"type": "enum", "enum": ["a", "b"]}, {"type": "string", "enum": ["a", "b"]}),
        ({"type": "enum", "enum": [1, 2.5]}, {"type": "number", "enum": [1, 2.5]}),
        (
            {"type": "list(enum)", "enum": ["a"]},
            {"type": "array", "items": {"type": "string", "enum": ["a"]}},
        ),
        ({"type": "array", "enum": [["a"]]}, {"type": "array", "items": {}, "enum": [["a"]]}),
    ]
    for published, expected in types:
        assert param(published) == expected


def test_nested_schemas_and_keywords_are_converted() -> None:
    published = {
        "properties": {"rows": {"items": {"type": "dict", "properties": {"n": {"type": "float"}}}}},
        "patternProperties": {"^x": {"type": "int"}, "[": {"type": "int"}},
        "additionalProperties": {"type": "list", "items": {"type": "bool"}},
    }
    row = {"type": "object", "properties": {"n": {"type": "number"}}}
    assert param(published) == {
        "type": "object",
        "properties": {"rows": {"type": "array", "items": row}},
        "patternProperties": {"^x": {"type": "integer"}},
        "additionalProperties": {"type": "array", "items": {"type": "boolean"}},
    }
    schema = {"type": "integer", "description": "d", "minimum": 1, "maximum": 2.5, "default": None}
    dropped = {"minLength": True, "format": 5, "pattern": "[", "results": {}, "optional": True}
    assert param({**schema, **dropped, "example": 3}) == {**schema, "examples": [3]}


def test_names_become_unique_identifiers() -> None:
    cases: list[tuple[list[str], list[str]]] = [
        (["a.b.c", "a b", "a-b"], ["a_b_c", "a_b", "a_b_2"]),
        (["a.b", "a_b"], ["a_b_2", "a_b"]),
        (["5G.x", "_x"], ["api_5G_x", "api__x"]),
        (["分析", "URL解析", "分析_工具"], ["api_1", "URL", "api_3"]),
        (["n" * 65, "n" * 66], ["n" * 64, "n" * 62 + "_2"]),
    ]
    for published, tools in cases:
        names = native.tool_names([{"name": name} for name in published])
        assert list(names.items()) == list(zip(tools, published, strict=True))
    # A name that lost letters stands in the description.
    functions = [{"name": name, "description": "d"} for name in ("分析", "a.b", "x" * 70)]
    descriptions = [tool["function"]["description"] for tool in native.openai_tools(functions)]
    assert descriptions == ["分析: d", "d", "x" * 70 + ": d"]


def answer(*calls: tuple[str, str], content: str = "") -> str:
    functions = [{"name": name} for name in ("a.b", "F", "分析")]
    return native.answer_text(content, [ToolCall(*call) for call in calls], functions)


def test_calls_are_written_in_the_official_syntax() -> None:
    arguments = '{"s": "it\'s", "n": -1, "x": 2.50, "t": true, "z": null, "d": {"k": [1, "é"]}}'
    assert answer(("F", arguments)) == (
        "[F(s=\"it's\", n=-1, x=2.5, t=True, z=None, d={'k': [1, 'é']})]"
    )
    assert answer(("F", "{}"), ("F", '{"a": "\\ud800"}')) == "[F(), F(a='\\ud800')]"
    # Published names come back, in calls and in sentences.
    assert answer(("a_b", "{}"), ("api_3", "{}"), ("x", "{}")) == "[a.b(), 分析(), x()]"
    content = "Missing necessary parameters (x) for the api (a_b), not a_b_c or x.a_b or my_a_b"
    assert answer(content=content) == content.replace("(a_b)", "(a.b)")
    # A text is the answer only without calls.
    assert answer(("F", "{}"), content=content) == "[F()]"


def test_one_call_that_cannot_be_written_spoils_the_answer() -> None:
    wrong = ["", "[1]", '{"class": 1}', '{"a=1), G(b": 1}', "\ud800"]
    for call in [*(("F", text) for text in wrong), ("F G", "{}"), ("__import__('os').x", "{}")]:
        assert answer(call) == answer(("F", "{}"), call, content="[F()]") == native.UNREADABLE


def test_arguments_of_a_call_are_bounded() -> None:
    def parsed(value: str) -> Any:
        return native.arguments_of(f'{{"a": {value}}}')["a"]

    assert parsed("[" * 199 + "]" * 199)
    assert parsed('"[[[[\\"' + "[" * 500 + '"').count("[") == 504
    assert parsed("-" + "9" * 4_300) == 1 - 10**4_300
    for value in ("[" * 200 + "]" * 200, "9" * 4_301, " " * 131_073, "", "1 2", "NaN", "1e999"):
        with pytest.raises(ValueError):
            parsed(value)
