"""Native tool calling: the functions as tools of a chat template, in OpenAI's form.

The published types are upstream's own ("gorilla" types); they become JSON Schema after upstream's
``convert_to_tool`` and ``constants/type_mappings.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.bfcl.categories import Language
from ace_ray.benchmarks.bfcl.docs import Function
from ace_ray.benchmarks.bfcl.docs import hinted as with_hints
from ace_ray.benchmarks.bfcl.texts import OWN_HINTS, Hints

_TYPES = {
    "integer": "integer",
    "number": "number",
    "float": "number",
    "string": "string",
    "boolean": "boolean",
    "bool": "boolean",
    "array": "array",
    "list": "array",
    "dict": "object",
    "object": "object",
    "tuple": "array",
    "any": "string",
    "byte": "integer",
    "short": "integer",
    "long": "integer",
    "double": "number",
    "char": "string",
    "ArrayList": "array",
    "Array": "array",
    "HashMap": "object",
    "Hashtable": "object",
    "Queue": "array",
    "Stack": "array",
    "Any": "string",
    "String": "string",
    "Bigint": "integer",
}
"""All others become "string"."""


def tool_name(name: str) -> str:
    """The name of a function's tool: dots become underscores, which OpenAI's form requires."""
    return name.replace(".", "_")


def openai_tools(
    functions: Sequence[Function],
    language: Language = "python",
    hints: Hints = OWN_HINTS,
    *,
    hinted: bool = True,
) -> list[dict[str, Any]]:
    """Tools for a chat template, in the order of ``functions``; these stay as they are.

    Each ``parameters`` is a JSON Schema of an object. What a function returns (``response``) stays
    beside it, as upstream has it for OpenAI's form.
    """
    shown = with_hints(functions, language, hints) if hinted else list(functions)
    tools = []
    for function in shown:
        parameters = function["parameters"]
        properties = _properties(parameters["properties"], hints)
        schema = {**parameters, "type": "object", "properties": properties}
        tool = {**function, "name": tool_name(function["name"]), "parameters": schema}
        tools.append({"type": "function", "function": tool})
    return tools


def _properties(properties: Mapping[str, Any], hints: Hints) -> dict[str, Any]:
    return {name: _schema(schema, hints) for name, schema in properties.items()}


def _schema(published: Mapping[str, Any], hints: Hints) -> dict[str, Any]:
    kind = published.get("type")
    schema = {**published, "type": _TYPES.get(str(kind), "string")}
    if kind == "float":
        schema["format"] = "float"
        schema["description"] = str(published.get("description", "")) + hints.float_type
    if "properties" in published:
        schema["properties"] = _properties(published["properties"], hints)
    elif "items" in published:
        schema["items"] = _items(published["items"], hints)
    return schema


def _items(published: Mapping[str, Any], hints: Hints) -> dict[str, Any]:
    """Elements get no note on floats, and their ``properties`` do."""
    schema = dict(published)
    if "type" in published:
        schema["type"] = _TYPES.get(published["type"], "string")
    if "properties" in published:
        schema["properties"] = _properties(published["properties"], hints)
    elif "items" in published:
        schema["items"] = _items(published["items"], hints)
    return schema
