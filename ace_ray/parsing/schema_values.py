"""Convert texts of XML parameters to JSON values, by a tool's JSON Schema.

The rules follow vLLM's ``extract_types_from_schema`` and ``coerce_to_schema_type``. Beyond vLLM,
``$ref``, ``const`` and ``nullable`` are followed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any

Json = Callable[[str], Any]
"""Parses JSON within bounds; raises `ValueError` for a text that is not one JSON value."""
_JSON_TYPES: dict[type, str] = {
    type(None): "null", bool: "boolean", int: "integer", float: "number", str: "string",
    list: "array", dict: "object",
}  # fmt: skip
_ALIASES = {
    "str": "string", "text": "string", "varchar": "string", "char": "string", "enum": "string",
    "int": "integer", "long": "integer", "float": "number", "double": "number", "bool": "boolean",
    "dict": "object", "list": "array",
}  # fmt: skip


def types_of(schema: Any, root: Mapping[str, Any]) -> set[str]:
    """Return the JSON types that a value may have.

    ``root`` is the schema that ``$ref`` points into. A schema without a type stands for a text.
    """
    types: set[str] = set()
    followed: set[str] = set()
    pending = [schema]
    while pending:
        part = pending.pop()
        if not isinstance(part, Mapping):
            types.add("string")
            continue
        kinds = part.get("type")
        own = {one for one in (kinds if isinstance(kinds, list) else [kinds]) if type(one) is str}
        examples = [*_list(part, "enum"), *([part["const"]] if "const" in part else ())]
        own |= {_JSON_TYPES[type(one)] for one in examples if type(one) in _JSON_TYPES}
        choices = [choice for key in ("anyOf", "oneOf", "allOf") for choice in _list(part, key)]
        ref = part.get("$ref")
        if isinstance(ref, str) and ref not in followed:
            choices.append(_referred(ref, root))
        if not own and not choices and not isinstance(ref, str):
            own = {"string"}
        followed.add(str(ref))  # each once, so that a cycle ends
        types |= own | ({"null"} if part.get("nullable") is True else set())
        pending += choices
    return {_ALIASES.get(one, one) for one in (kind.strip().lower() for kind in types)} or {
        "string"
    }


def _list(schema: Mapping[str, Any], key: str) -> list[Any]:
    value = schema.get(key)
    return value if isinstance(value, list) else []


def _referred(ref: str, root: Mapping[str, Any]) -> Any:
    """Follow a JSON pointer into ``root``; None where it leads nowhere."""
    if ref != "#" and not ref.startswith("#/"):
        return None
    found: Any = root
    for key in ref.split("/")[1:]:
        key = key.replace("~1", "/").replace("~0", "~")
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def typed(text: str, types: set[str], parse: Json) -> Any:
    """Return the value of ``text`` as the first of ``types`` that takes it, in vLLM's order.

    If none takes it, return it parsed as JSON, or else the text.
    """
    if "null" in types and text.lower() == "null":
        return None
    if types & {"integer", "number"} and (number := _number(text, types)) is not None:
        return number
    if "boolean" in types and (word := text.lower().strip()) in ("true", "1", "false", "0"):
        return word in ("true", "1")
    if "string" in types and not types & {"object", "array"}:
        return text
    try:
        value = parse(text)
        json.dumps(value, allow_nan=False)
    except ValueError:
        return text
    return value


def _number(text: str, types: set[str]) -> int | float | None:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        return None
    if not isfinite(number):
        return None
    if number == int(number) and ("number" in types or "string" not in types):
        return int(number)
    return number if "number" in types else None
