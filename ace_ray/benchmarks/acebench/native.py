"""Convert functions to tools for native tool calling, and the model's calls to text.

The model sees the functions as tools in its own chat template and calls them in its own syntax. A
tool parser reads the calls. This module writes these calls in the official syntax, so that both
rule sets judge them like a prompted answer. Results are comparable only with other native results.

The published schemas are not JSON Schema. Their type names come from Python and from upstream's
evaluator (``float``, ``dict``, ``list(string)``, ``objectArray``, ``enum``;
``model_eval/checker.py``). Some functions have their schema under another key than ``parameters``.
"""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.acebench.prompts import Prompts
from ace_ray.benchmarks.acebench.texts import NATIVE
from ace_ray.parsing.literals import render
from ace_ray.parsing.syntax import MAX_CODE, NotCalls, bounded_json
from ace_ray.types import ToolCall

# Answer text if calls cannot be written in the official syntax. No checker finds a call in it.
UNREADABLE = "a tool call that cannot be read"


def prompts() -> Prompts:
    """Return the prompt texts of native mode, which ace_ray wrote."""
    return Prompts("own", "native", NATIVE)


def answer_text(
    content: str, calls: Sequence[ToolCall], functions: Sequence[Mapping[str, Any]]
) -> str:
    """Return the model's answer as text, with the published function names. Never raises.

    Calls are written in the official syntax, ``[F(a='x'), G(b=1)]``, and ``content`` is dropped.
    If ``calls`` is empty, the answer is ``content``. If a call cannot be written (its arguments are
    not a JSON object, a name is not an identifier), the answer is `UNREADABLE`."""
    names = tool_names(functions)
    if not calls:
        return _restore_names(content, names)
    try:
        return render(
            (callable_name(names.get(call.name, call.name)), arguments_of(call.arguments))
            for call in calls
        )
    except ValueError:
        return UNREADABLE


def _restore_names(content: str, names: Mapping[str, str]) -> str:
    # The rules for special categories look for the published function names in the sentences.
    changed = {tool: name for tool, name in names.items() if tool != name}
    if not changed:
        return content
    pattern = rf"(?<![A-Za-z0-9_.])(?:{'|'.join(changed)})(?![A-Za-z0-9_])"
    return re.sub(pattern, lambda match: changed[match[0]], content)


_PARAMETERS = ("parameters", "arguments", "_arguments")
MAX_NAME = 64
# OpenAI's rule without the hyphen, which parsers of Python-like calls would read as a minus.
_PLAIN_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_NO_LETTERS = re.compile(r"[^A-Za-z0-9_]+")
# The evaluator checks "any" as a string. "number" includes integers.
_TYPES = {
    name: kind
    for kind, names in (
        ("string", "string str any"),
        ("integer", "integer int"),
        ("number", "number float"),
        ("boolean", "boolean bool"),
        ("array", "array list tuple list(string) list(enum) objectArray"),
        ("object", "object dict"),
        ("null", "null"),
    )
    for name in names.split()
}
_ITEMS = {"list(string)": {"type": "string"}, "objectArray": {"type": "object"}}
_NUMBER = (int, float)
# Schema keywords that are kept if their value has this type. Models do not use others.
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


def openai_tools(functions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Convert published functions to tools in OpenAI's format, in the same order.

    Each ``parameters`` is a JSON Schema (draft 2020-12) of an object. The descriptions of return
    values (``results``, ``tags``) are dropped: OpenAI's format has no field for them."""
    tools = []
    for name, function in zip(tool_names(functions), functions, strict=True):
        description = str(function.get("description", ""))
        if _letters(name) != _letters(function["name"]):
            description = f"{function['name']}: {description}"
        schema = _schema(next((function[key] for key in _PARAMETERS if key in function), {}))
        parameters = {**schema, "type": "object", "properties": schema.get("properties", {})}
        tools.append(
            {
                "type": "function",
                "function": {"name": name, "description": description, "parameters": parameters},
            }
        )
    return tools


def tool_names(functions: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return ``{tool name: published name}`` in the order of ``functions``.

    A tool name is an ASCII identifier of at most 64 characters, unique in the list. Published names
    that are valid are kept. In other names, dots, blanks and other characters become underscores. A
    name without ASCII letters and digits becomes ``api_<number>``; the description of its tool then
    begins with the published name."""
    published = [str(function["name"]) for function in functions]
    reserved_names = {name for name in published if _PLAIN_NAME.fullmatch(name)}
    names: dict[str, str] = {}
    for number, name in enumerate(published, 1):
        tool = name
        if tool not in reserved_names or tool in names:
            tool = _unique_name(_identifier(name, number), {*reserved_names, *names})
        names[tool] = name
    return names


def _identifier(name: str, number: int) -> str:
    plain = _NO_LETTERS.sub("_", name)
    if not plain.strip("_"):
        return f"api_{number}"
    plain = plain.strip("_") if plain != name else plain
    return (plain if plain[0].isalpha() else f"api_{plain}")[:MAX_NAME]


def _unique_name(name: str, reserved_names: set[str]) -> str:
    unique, number = name, 1
    while unique in reserved_names:
        number += 1
        suffix = f"_{number}"
        unique = name[: MAX_NAME - len(suffix)] + suffix
    return unique


def _letters(name: str) -> list[str]:
    return [character for character in name if character.isalnum()]


def _schema(published: Any) -> dict[str, Any]:
    """Convert a published schema; a value that is no object becomes {}."""
    schema: dict[str, Any] = {}
    if not isinstance(published, Mapping):
        return schema
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
    schema["items"] = _schema(published.get("items", _ITEMS.get(str(published.get("type")))))
    # Enum values that are not lists are the allowed values of the elements.
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
        schema["properties"] = {name: _schema(value) for name, value in inner.items()}
    required = published.get("required")
    if isinstance(required, list):
        # A required name without a schema cannot be offered, so it is not required.
        schema["required"] = [name for name in inner if name in required]
    patterns = published.get("patternProperties")
    if isinstance(patterns, Mapping):
        schema["patternProperties"] = {p: _schema(v) for p, v in patterns.items() if _is_regex(p)}
    values = published.get("additionalProperties")
    if isinstance(values, Mapping):
        schema["additionalProperties"] = _schema(values)
    elif isinstance(values, bool):
        schema["additionalProperties"] = values


def _type_of(choices: Sequence[Any]) -> str:
    """Return the JSON type of all ``choices``, or "" if they have several types."""
    kinds = {type(choice) for choice in choices}
    names = {str: "string", bool: "boolean", int: "integer", float: "number"}
    if kinds == {int, float}:
        return "number"
    return names.get(kinds.pop(), "") if len(kinds) == 1 else ""


def arguments_of(text: str) -> dict[str, Any]:
    """Return the keyword arguments of a call, given as JSON text.

    Raises `ValueError` for invalid JSON, NaN, infinities, numbers that overflow a float, and text
    that exceeds a limit of `ace_ray.parsing`: length, depth, or digits of an integer. Raises
    `NotCalls`, too, if the value is not an object or a name is not a valid keyword argument."""
    value = bounded_json(text, MAX_CODE)
    json.dumps(value, allow_nan=False)
    if not isinstance(value, dict):
        raise NotCalls("arguments that are not an object")
    if not all(map(_is_name, value)):
        raise NotCalls("an argument name that is not a valid keyword")
    return value


def callable_name(name: str) -> str:
    """Return ``name`` if it is a valid Python name, dots allowed. Raises `NotCalls` otherwise."""
    if not all(map(_is_name, name.split("."))):
        raise NotCalls("a function name that cannot be called")
    return name


def _is_name(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name)
