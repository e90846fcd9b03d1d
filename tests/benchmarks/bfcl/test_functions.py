"""Functions as a model sees them: documented in a prompt, as tools, and held out."""

from __future__ import annotations

import ast
import json
from typing import Any

from ace_ray.benchmarks.bfcl.categories import SINGLE_TURN
from ace_ray.benchmarks.bfcl.data.loader import load
from ace_ray.benchmarks.bfcl.functions import (
    documented,
    offered,
    openai_tools,
    tool_name,
    with_hints,
)
from ace_ray.benchmarks.bfcl.prompts import own
from ace_ray.benchmarks.bfcl.texts import OWN_HINTS
from tests.benchmarks.bfcl.synthetic_bfcl import COPY, DOCS

ENTRIES = {entry.id: entry for entry in load(COPY, SINGLE_TURN)}


def functions_of(entry_id: str) -> list[dict[str, Any]]:
    return list(ENTRIES[entry_id].data["function"])


def test_the_documents_of_functions() -> None:
    (function,) = functions_of("simple_python_3")
    xml = documented([function], "xml")
    assert xml.startswith(
        '<function name="huts.reserve">\n  <desc>Reserves beds in a mountain hut.'
    )
    assert '    <param name="guests" type="array[dict]" required="true">\n' in xml
    # inside a dictionary without a list of required entries all are
    assert (
        '        <param name="day" type="string" required="true">\n'
        "          <desc>Day of the week.</desc>\n        </param>\n"
    ) in xml
    python = documented([function, function], "python")
    assert python.startswith('# Function: huts.reserve\n    """\n    Reserves beds')
    assert "        guests (list[dict]): Who sleeps there.\n" in python
    assert "            hour (int): Hour of the day, 0 to 23.\n" in python
    assert python.count("\n\n\n") == 3
    (walk,) = functions_of("simple_python_2")
    choice = "How fast one walks. Enum values: ['slow', 'normal', 'fast']."
    assert f"pace (str, default='normal'): {choice}\n" in documented([walk], "python")
    assert (
        f'<param name="pace" type="string" required="false" default="\'normal\'">\n'
        f"      <desc>{choice}</desc>"
    ) in documented([walk], "xml")


def test_types_of_java_and_javascript_move_into_the_descriptions() -> None:
    (function,) = functions_of("simple_java_2")
    before = json.dumps(function)
    (shown,) = with_hints([function], "java")
    assert json.dumps(function) == before
    parcels = shown["parameters"]["properties"]["parcels"]
    assert list(parcels) == ["type", "description"]
    assert parcels["type"] == "string"
    assert "type ArrayList" in parcels["description"]
    assert parcels["description"].endswith(" type String.")
    (function,) = functions_of("simple_javascript_1")
    (shown,) = with_hints([function], "javascript")
    properties = shown["parameters"]["properties"]
    assert properties["table"]["description"].endswith(OWN_HINTS.any["javascript"])
    assert "items" not in properties["rows"]
    nested = {"type": "dict", "description": "d", "properties": {"a": {"type": "integer"}}}
    function = {"name": "f", "description": "", "parameters": {"properties": {"x": nested}}}
    (shown,) = with_hints([function], "javascript")
    x = shown["parameters"]["properties"]["x"]
    assert "properties" not in x
    assert x["description"].endswith('{"a": {"type": "integer"}}')
    (shown,) = with_hints([function], "java")
    assert "properties" in shown["parameters"]["properties"]["x"]


def test_held_out_functions_come_later() -> None:
    functions, later = offered(DOCS, ["Bakery"], {"2": ["total", "list_orders"], "3": ["no"]})
    names = [function["name"] for function in functions]
    assert names == ["add_order", "cancel_order", "set_price", "get_price", "close_day"]
    assert [one["name"] for one in later["2"]] == ["total", "list_orders"]
    assert later["3"] == []
    assert len(DOCS["Bakery"]) == 7
    text = own().more_functions(later["2"])
    shown, _, said = text.rpartition("\n")
    assert ast.literal_eval(shown) == later["2"]
    assert said == own().more_functions(None)


def function(**properties: Any) -> dict[str, Any]:
    parameters = {"type": "dict", "properties": properties, "required": []}
    return {"name": "a.b.c", "description": "d", "parameters": parameters, "response": {"x": 1}}


def test_types_of_tools_are_those_of_json_schema() -> None:
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
    before = json.dumps(published)
    (tool,) = openai_tools([published])
    assert json.dumps(published) == before
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


def test_hints_can_be_left_out_and_java_parameters_are_strings() -> None:
    (tool,) = openai_tools([function()], hinted=False)
    assert tool["function"]["description"] == "d"
    (tool,) = openai_tools([function(n={"type": "long", "description": "n"})], "java")
    shown = tool["function"]["parameters"]["properties"]["n"]
    assert shown["type"] == "string"
    assert "type long" in shown["description"]
