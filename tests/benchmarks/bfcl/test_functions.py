"""Tools of native mode: valid JSON Schemas under names that OpenAI's form allows."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest

from ace_ray.benchmarks.bfcl.categories import SINGLE_TURN, language_of
from ace_ray.benchmarks.bfcl.data.loader import function_docs, load
from ace_ray.benchmarks.bfcl.data.upstream_package import UpstreamPackage
from ace_ray.benchmarks.bfcl.functions import openai_tools, tool_name
from ace_ray.benchmarks.bfcl.texts import OWN_HINTS

TYPES = {"string", "number", "integer", "boolean", "array", "object"}


def check_schema(schema: Any, where: str) -> None:
    """The parts of JSON Schema that occur in the data."""
    assert schema["type"] in TYPES, where
    assert isinstance(schema.get("description", ""), str), where
    assert isinstance(schema.get("enum", []), list), where
    names = schema.get("required", [])
    assert isinstance(names, list), where
    assert len(set(names)) == len(names), where
    for name, inner in schema.get("properties", {}).items():
        check_schema(inner, f"{where}.{name}")
    if schema.get("items"):
        check_schema(schema["items"], f"{where}[]")


def check_tools(tools: Sequence[dict[str, Any]], where: str) -> None:
    for tool in tools:
        assert tool.keys() == {"type", "function"}
        function = tool["function"]
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", function["name"]), where
        assert function["parameters"]["type"] == "object"
        check_schema(function["parameters"], f"{where}:{function['name']}")


def check_copy(copy: UpstreamPackage) -> None:
    for entry in load(copy, SINGLE_TURN):
        check_tools(openai_tools(entry.data["function"], language_of(entry.category)), entry.id)
    for name, docs in function_docs(copy).items():
        check_tools(openai_tools(docs), name)


def test_tools_of_the_mini_set() -> None:
    check_copy(UpstreamPackage.locate("mini"))


def test_the_published_functions_stay_as_they_are() -> None:
    for entry in load(UpstreamPackage.locate("mini"), SINGLE_TURN):
        before = json.dumps(entry.data)
        openai_tools(entry.data["function"], language_of(entry.category))
        assert json.dumps(entry.data) == before


@pytest.mark.nightly
def test_tools_of_the_published_data(bfcl_copy: UpstreamPackage) -> None:
    check_copy(bfcl_copy)


def function(**properties: Any) -> dict[str, Any]:
    parameters = {"type": "dict", "properties": properties, "required": []}
    return {"name": "a.b.c", "description": "d", "parameters": parameters, "response": {"x": 1}}


def test_types_become_those_of_json_schema() -> None:
    published = function(
        amount={"type": "float", "description": "How much."},
        point={"type": "tuple", "description": "p", "items": {"type": "float"}},
        rows={
            "type": "array",
            "description": "r",
            "items": {"type": "array", "items": {"type": "Bigint"}},
        },
        odd={"type": "Boolean", "description": "o"},
        map={
            "type": "dict",
            "description": "m",
            "properties": {"x": {"type": "float", "description": "x"}},
        },
        many={
            "type": "array",
            "description": "m",
            "items": {"type": "dict", "properties": {"y": {"type": "any", "description": "y"}}},
        },
    )
    (tool,) = openai_tools([published])
    shown = tool["function"]
    assert shown["name"] == tool_name("a.b.c") == "a_b_c"
    assert shown["description"] == "d" + OWN_HINTS.language["python"]
    assert shown["response"] == {"x": 1}
    properties = shown["parameters"]["properties"]
    note = OWN_HINTS.float_type
    assert properties["amount"] == {
        "type": "number",
        "description": f"How much.{note}",
        "format": "float",
    }
    # elements get no note, as upstream has it
    assert properties["point"]["items"] == {"type": "number"}
    assert properties["rows"]["items"] == {"type": "array", "items": {"type": "integer"}}
    assert properties["odd"]["type"] == "string"
    inner = properties["map"]["properties"]["x"]
    assert (properties["map"]["type"], inner["type"]) == ("object", "number")
    assert inner["description"] == f"x{note}"
    assert properties["many"]["items"]["properties"]["y"]["type"] == "string"


@pytest.mark.parametrize("hinted", [True, False])
def test_hints_can_be_left_out(hinted: bool) -> None:
    (tool,) = openai_tools([function()], hinted=hinted)
    assert (tool["function"]["description"] != "d") == hinted


def test_in_java_every_parameter_is_a_string() -> None:
    (tool,) = openai_tools([function(n={"type": "long", "description": "n"})], "java")
    shown = tool["function"]["parameters"]["properties"]["n"]
    assert shown["type"] == "string"
    assert "type long" in shown["description"]
