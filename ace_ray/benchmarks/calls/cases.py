"""Read the user's file of cases, and check each line (docs/calls.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ace_ray.benchmarks.calls.rules import example
from ace_ray.benchmarks.context import arguments_of
from ace_ray.benchmarks.dataset import read_bounded, rows_by_id
from ace_ray.benchmarks.json_schema import Schema, schema_fault, schema_mistake
from ace_ray.errors import UserError
from ace_ray.types import Entry
from ace_ray.util.safe_loading import MOST_DEPTH, InvalidContent, check_depth
from ace_ray.util.suggestions import did_you_mean


def _list(items: Schema, **limits: int) -> Schema:
    return {"type": "array", "items": items, **limits}


def _object(required: Schema, optional: Schema, *, more: bool = True) -> Schema:
    keys = {"additionalProperties": more, "properties": {**required, **optional}}
    return {"type": "object", **keys, "required": [*required]}


_TEXT = {"type": "string", "minLength": 1}
_ROLES = {"enum": ["system", "user", "assistant", "tool"]}
_MADE = _object({"function": _object({"name": _TEXT, "arguments": _TEXT}, {})}, {})
_MESSAGE = _object(
    {"role": _ROLES, "content": {"type": ["string", "null"]}}, {"tool_calls": _list(_MADE)}
)
_TOOL = _object(
    {
        "type": {"const": "function"},
        "function": _object({"name": _TEXT}, {"parameters": {"type": "object"}}),
    },
    {},
)
_EXPECTED = _object({"name": _TEXT, "arguments": {"type": "object"}}, {}, more=False)
# The schema of a line without its id. Expected calls are few, since all pairs are compared.
_CASE = _object(
    {
        "messages": _list(_MESSAGE, minItems=1),
        "tools": _list(_TOOL),
        "expected": _list(_EXPECTED, maxItems=100),
    },
    {"category": {"type": "string"}, "order": {"enum": ["any", "listed"]}},
    more=False,
)


def read_cases(path: Path) -> Iterator[Entry]:
    """Yield the cases of a JSON-lines file. Raises `UserError` that names the line of a mistake."""
    for case_id, (location, case) in rows_by_id(read_bounded(path), path).items():
        try:
            check_depth(case, MOST_DEPTH)
            if fault := schema_fault(_CASE, case) or next(_faults(case), ""):
                raise InvalidContent(fault)
        except InvalidContent as error:
            raise UserError(str(error), location, "correct the line (docs/calls.md)") from error
        data = {"tools": case["tools"], "order": case.get("order", "any")}
        category, prompt = case.get("category", ""), case["messages"]
        yield Entry("", category, "", case_id, data, case["expected"], prompt=prompt)


def schemas_of(tools: Sequence[Mapping[str, Any]]) -> dict[str, Schema]:
    """Return the schema of each tool's arguments, by the tool's name."""
    functions = [tool["function"] for tool in tools]
    return {function["name"]: function.get("parameters", {}) for function in functions}


def _faults(case: Mapping[str, Any]) -> Iterator[str]:
    """Yield the mistakes of a case that its schema does not find, each with its field."""
    for number, message in enumerate(case["messages"]):
        for index, call in enumerate(message.get("tool_calls", ())):
            try:
                arguments_of(call["function"]["arguments"])
            except ValueError as error:
                yield f"messages.{number}.tool_calls.{index}.function.arguments: {error}"
    if (role := case["messages"][-1]["role"]) not in ("user", "tool"):
        yield f"messages.{len(case['messages']) - 1}.role: {role!r} ends the conversation"
    schemas = schemas_of(case["tools"])
    if len(schemas) < len(case["tools"]):
        yield "tools: two have the same name"
    for number, offered in enumerate(schemas.values()):
        if mistake := schema_mistake(offered):
            yield f"tools.{number}.function.parameters: {mistake}"
    for number, call in enumerate(case["expected"]):
        field, schema = f"expected.{number}", schemas.get(call["name"])
        if schema is None:
            hint = did_you_mean(call["name"], schemas, "add the tool to tools")
            yield f"{field}.name: {call['name']!r:.100} is not in tools; {hint}"
            return
        try:  # with and without optional arguments
            examples = [example(call["arguments"], index) for index in (0, -1)]
        except IndexError:
            yield f"{field}.arguments: a list of accepted values is empty"
            return
        if mistake := schema_mistake(schema, *examples):
            yield f"tools.function.parameters of {call['name']}: {mistake}"
        for arguments in examples:
            if fault := schema_fault(schema, arguments):
                yield f"{field}.arguments: {fault}"
