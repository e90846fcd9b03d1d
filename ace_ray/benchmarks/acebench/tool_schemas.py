"""ACEBench functions as tools in OpenAI's form, and their names there and back.

The published schemas look like JSON Schema and are not: they use Python's type names and the
evaluator's own (``float``, ``dict``, ``list(string)``, ``objectArray``, ``enum``; upstream
``model_eval/checker.py``), and some functions keep them under another key than ``parameters``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

_PARAMETERS = ("parameters", "arguments", "_arguments")
MAX_NAME = 64
# OpenAI's rule without the hyphen, which the parsers of Python-like calls would take for a minus.
_PLAIN_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_NO_LETTERS = re.compile(r"[^A-Za-z0-9_]+")
# "any" is checked as a text; `number` has no own type for whole numbers.
_TYPES = {
    "string": "string",
    "str": "string",
    "any": "string",
    "integer": "integer",
    "int": "integer",
    "number": "number",
    "float": "number",
    "boolean": "boolean",
    "bool": "boolean",
    "array": "array",
    "list": "array",
    "tuple": "array",
    "list(string)": "array",
    "list(enum)": "array",
    "objectArray": "array",
    "object": "object",
    "dict": "object",
    "null": "null",
}
_ITEMS = {"list(string)": {"type": "string"}, "objectArray": {"type": "object"}}
_NUMBER = (int, float)
_KEPT: dict[str, type | tuple[type, ...]] = {
    "description": str,
    "enum": list,
    "format": str,
    "pattern": str,
    "minimum": _NUMBER,
    "maximum": _NUMBER,
    "exclusiveMinimum": _NUMBER,
    "exclusiveMaximum": _NUMBER,
    "multipleOf": _NUMBER,
    "minLength": int,
    "maxLength": int,
    "minItems": int,
    "maxItems": int,
    "contentEncoding": str,
    "contentMediaType": str,
    "unit": str,
}
"""Keywords that are passed on when their value is of this type; others say nothing to a model."""


def openai_tools(functions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Tools for a chat template, in the order of ``functions``, as an entry's data hold them.

    Each ``parameters`` is a JSON Schema (draft 2020-12) of an object. What a function returns
    (``results``, ``tags``) has no place in OpenAI's form and is left out.
    """
    tools = []
    for name, function in zip(tool_names(functions), functions, strict=True):
        description = str(function.get("description", ""))
        if _letters(name) != _letters(function["name"]):
            description = f"{function['name']}: {description}"
        published: Any = next((function[key] for key in _PARAMETERS if key in function), {})
        schema = _schema(published if isinstance(published, Mapping) else {})
        parameters = {**schema, "type": "object", "properties": schema.get("properties", {})}
        tools.append(
            {
                "type": "function",
                "function": {"name": name, "description": description, "parameters": parameters},
            }
        )
    return tools


def tool_names(functions: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The published name by tool name, in the order of ``functions``.

    A tool name is an ASCII identifier of at most 64 characters, unique in the list. Most published
    names are; of the others dots and blanks become underscores, and a name without ASCII letters
    becomes ``api_<number>`` (its tool's description then begins with the published name).
    """
    published = [str(function["name"]) for function in functions]
    taken = {name for name in published if _PLAIN_NAME.fullmatch(name)}
    names: dict[str, str] = {}
    for number, name in enumerate(published, 1):
        tool = name
        if tool not in taken or tool in names:
            tool = _unique(_plain(name, number), {*taken, *names})
        names[tool] = name
    return names


def _plain(name: str, number: int) -> str:
    plain = _NO_LETTERS.sub("_", name)
    if not plain.strip("_"):
        return f"api_{number}"
    plain = plain.strip("_") if plain != name else plain
    return (plain if plain[0].isalpha() else f"api_{plain}")[:MAX_NAME]


def _unique(name: str, taken: set[str]) -> str:
    unique, number = name, 1
    while unique in taken:
        number += 1
        suffix = f"_{number}"
        unique = name[: MAX_NAME - len(suffix)] + suffix
    return unique


def _letters(name: str) -> list[str]:
    return [character for character in name if character.isalnum()]


def _schema(published: Mapping[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    kind = published.get("type")
    if isinstance(kind, str) and kind in _TYPES:
        schema["type"] = _TYPES[kind]
    elif "properties" in published:
        schema["type"] = "object"
    elif "items" in published:
        schema["type"] = "array"
    schema |= {key: value for key, value in published.items() if _is_kept(key, value)}
    if "default" in published:
        schema["default"] = published["default"]
    if "example" in published:
        schema["examples"] = [published["example"]]
    if schema.get("type") == "array":
        _add_items(schema, published)
    if schema.get("type") == "object":
        _add_properties(schema, published)
    if "type" not in schema and (kind := _type_of(schema.get("enum", []))):
        schema["type"] = kind
    return schema


def _is_kept(key: str, value: Any) -> bool:
    if key not in _KEPT or not isinstance(value, _KEPT[key]) or isinstance(value, bool):
        return False
    return key != "pattern" or _is_regex(str(value))


def _is_regex(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True


def _add_items(schema: dict[str, Any], published: Mapping[str, Any]) -> None:
    items = published.get("items", _ITEMS.get(str(published.get("type"))))
    schema["items"] = _schema(items) if isinstance(items, Mapping) else {}
    # Choices that are no lists are those of the elements.
    enum = schema.get("enum")
    if enum is not None and not any(isinstance(choice, list) for choice in enum):
        del schema["enum"]
        schema["items"] = {**schema["items"], "enum": enum}
        if inner := _type_of(enum):
            schema["items"].setdefault("type", inner)


def _add_properties(schema: dict[str, Any], published: Mapping[str, Any]) -> None:
    properties = published.get("properties")
    inner = properties if isinstance(properties, Mapping) else {}
    if "properties" in published:
        schema["properties"] = {
            name: _schema(value if isinstance(value, Mapping) else {})
            for name, value in inner.items()
        }
    required = published.get("required")
    if isinstance(required, list):
        # A name without a description cannot be offered, so it is not asked for either.
        schema["required"] = [name for name in inner if name in required]
    patterns = published.get("patternProperties")
    if isinstance(patterns, Mapping):
        schema["patternProperties"] = {
            pattern: _schema(value if isinstance(value, Mapping) else {})
            for pattern, value in patterns.items()
            if _is_regex(pattern)
        }
    others = published.get("additionalProperties")
    if isinstance(others, Mapping):
        schema["additionalProperties"] = _schema(others)
    elif isinstance(others, bool):
        schema["additionalProperties"] = others


def _type_of(choices: Sequence[Any]) -> str:
    """The one type of all choices, "" if they have none in common."""
    kinds = {type(choice) for choice in choices}
    names = {str: "string", bool: "boolean", int: "integer", float: "number"}
    if kinds == {int, float}:
        return "number"
    return names.get(kinds.pop(), "") if len(kinds) == 1 else ""
