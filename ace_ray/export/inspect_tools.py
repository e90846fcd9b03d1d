"""Tools as Inspect describes them (``ToolInfo``): of a JSON schema only what its reader takes.

A key of another type than its own would make Inspect refuse the whole log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ace_ray.benchmarks.transcript import Tool

_TYPES = frozenset(("string", "integer", "number", "boolean", "array", "object", "null"))
_TEXTS = ("format", "description", "pattern")
_COUNTS = ("minLength", "maxLength")
_NUMBERS = ("minimum", "maximum")
_LISTS = ("enum", "examples")


def tool_info(tool: Tool) -> dict[str, Any]:
    schema = _schema(tool.schema)
    kept = ("properties", "required", "additionalProperties")
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": {"type": "object", **{k: schema[k] for k in kept if k in schema}},
    }


def _schema(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {}
    kept: dict[str, Any] = {}
    kind = value.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    if all(isinstance(one, str) and one in _TYPES for one in kinds):
        kept["type"] = kind
    kept |= {name: value[name] for name in _TEXTS if isinstance(value.get(name), str)}
    kept |= {name: value[name] for name in _COUNTS if _is(value.get(name), int)}
    kept |= {name: value[name] for name in _NUMBERS if _is(value.get(name), (int, float))}
    kept |= {name: value[name] for name in _LISTS if isinstance(value.get(name), list)}
    if "default" in value:
        kept["default"] = value["default"]
    required = value.get("required")
    if isinstance(required, list) and all(isinstance(one, str) for one in required):
        kept["required"] = required
    for name in ("items", "additionalProperties"):
        if isinstance(value.get(name), Mapping):
            kept[name] = _schema(value[name])
    if isinstance(value.get("additionalProperties"), bool):
        kept["additionalProperties"] = value["additionalProperties"]
    if isinstance(value.get("properties"), Mapping):
        kept["properties"] = {str(k): _schema(v) for k, v in value["properties"].items()}
    if isinstance(value.get("anyOf"), list):
        kept["anyOf"] = [_schema(one) for one in value["anyOf"]]
    return kept


def _is(value: Any, kind: type | tuple[type, ...]) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)
