"""The functions an agent is offered: APIs under callable names, with JSON schemas, and Finish.

Under ``official`` they are what upstream's ``rapidapi_multithread.py`` makes of them: optional
parameters are shown only beside a required one, ``required`` begins with an empty text, numbers are
integers, and a call goes to the first function whose name ends in the called name. ``fixed`` mends
that: all parameters, JSON Schema's types, unique names, exact matches.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ace_ray.benchmarks.stabletoolbench.data.shapes import Doc
from ace_ray.benchmarks.stabletoolbench.names import (
    FINISH,
    MAX_NAME,
    api_name,
    function_name,
    standardize,
    standardize_category,
)
from ace_ray.benchmarks.stabletoolbench.prompts import OWN, Texts
from ace_ray.records import Entry

Rules = Literal["official", "fixed"]
Schema = dict[str, Any]

GIVE_ANSWER, GIVE_UP = "give_answer", "give_up_and_restart"
MAX_DESCRIPTION = 256
MAX_TOOL_DESCRIPTION = 512

_OFFICIAL_TYPES = {"NUMBER": "integer", "STRING": "string", "BOOLEAN": "boolean"}
_TYPES = {
    "NUMBER": "number",
    "INTEGER": "integer",
    "BOOLEAN": "boolean",
    "ARRAY": "array",
    "OBJECT": "object",
}
_FITS: dict[str, tuple[type, ...]] = {
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}
_NOT_CALLABLE = re.compile(r"[^a-zA-Z0-9_-]")


@dataclass(frozen=True)
class Api:
    """One API as the agent may call it.

    ``category, tool, api`` are published names, ``std_*`` the standard ones that caches are keyed
    by; ``name``, ``description`` and ``parameters`` are the function's, the rest is the
    API's own documentation for a simulator (``url`` only from a tool directory).
    """

    category: str
    tool: str
    api: str
    std_category: str
    std_tool: str
    std_api: str
    name: str
    description: str
    parameters: dict[str, Any]
    api_description: str
    tool_description: str
    method: str
    url: str
    required: list[dict[str, Any]]
    optional: list[dict[str, Any]]
    template: Any


def apis_of(
    entry: Entry, rules: Rules, texts: Texts = OWN, docs: Sequence[Doc] | None = None
) -> list[Api]:
    """The entry's APIs in published order; ``docs`` are others offered in their place."""
    taken: set[str] = {FINISH}
    apis = []
    for doc in entry.data["apis"] if docs is None else docs:
        name = function_name(doc["api"], doc["tool"])
        if rules == "fixed":
            name = _unique(name, taken)
        apis.append(_api(doc, name, rules, texts))
    return apis


def schemas(apis: Sequence[Api], rules: Rules, texts: Texts = OWN) -> list[Schema]:
    """The functions as tools in OpenAI's form, Finish last."""
    offered = [_schema(api.name, api.description, api.parameters) for api in apis]
    return [*offered, finish_schema(texts)]


def finish_schema(texts: Texts = OWN) -> Schema:
    """The function that ends an attempt, with an answer or without."""
    parameters = {
        "type": "object",
        "properties": {
            "return_type": {"type": "string", "enum": [GIVE_ANSWER, GIVE_UP]},
            "final_answer": {"type": "string", "description": texts.finish_answer},
        },
        "required": ["return_type"],
    }
    return _schema(FINISH, texts.finish, parameters)


def find(apis: Sequence[Api], called_name: str, rules: Rules) -> Api | None:
    """The API that a call of ``called_name`` reaches, None when there is none.

    ``official`` takes the first whose function name ends in it, so that "" reaches the first of
    all; of functions with one name the first is reached.
    """
    if rules == "official":
        return next((api for api in apis if api.name.endswith(called_name)), None)
    return next((api for api in apis if api.name == called_name), None)


def tool_lines(apis: Sequence[Api]) -> str:
    """One numbered line for each tool, with at most 512 characters of its description."""
    described = {api.std_tool: api.tool_description for api in apis}
    return "".join(
        f"{number}.{tool}: {_one_line(text) or 'None'}\n"
        for number, (tool, text) in enumerate(described.items(), start=1)
    )


def _one_line(text: str) -> str:
    return text[:MAX_TOOL_DESCRIPTION].replace("\n", "").strip()


def _schema(name: str, description: str, parameters: dict[str, Any]) -> Schema:
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


def _unique(name: str, taken: set[str]) -> str:
    """A name that tool calling takes (ASCII, not empty) and that nothing else has."""
    name = _NOT_CALLABLE.sub("_", name)
    candidate, number = name, 2
    while candidate in taken:
        suffix = f"_{number}"
        candidate = name[-(MAX_NAME - len(suffix)) :] + suffix
        number += 1
    taken.add(candidate)
    return candidate


def _api(doc: Doc, name: str, rules: Rules, texts: Texts) -> Api:
    std_tool = standardize(doc["tool"])
    shown = texts.function.replace("{tool}", std_tool)
    if description := doc["description"].strip():
        if doc["api"]:
            description = description.replace(doc["api"], name)
        shown += texts.function_says.replace("{description}", description[:MAX_DESCRIPTION])
    build = _official_parameters if rules == "official" else _fixed_parameters
    return Api(
        category=doc["category"],
        tool=doc["tool"],
        api=doc["api"],
        std_category=standardize_category(doc["category"]),
        std_tool=std_tool,
        std_api=api_name(doc["api"]),
        name=name,
        description=shown.strip(),
        parameters=build(doc),
        api_description=doc["description"],
        tool_description=doc["tool_description"],
        method=doc["method"],
        url=doc["url"],
        required=doc["required"],
        optional=doc["optional"],
        template=doc["template"],
    )


def _official_parameters(doc: Doc) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    names: dict[str, list[str]] = {"required": [""], "optional": [""]}
    for kind in names if doc["required"] else ():
        for parameter in doc[kind]:
            name = api_name(parameter["name"])
            shown = {
                "type": _OFFICIAL_TYPES.get(parameter["type"], "string"),
                "description": parameter["description"][:MAX_DESCRIPTION],
            }
            if str(parameter["default"]):
                shown["example_value"] = parameter["default"]
            properties[name] = shown
            names[kind].append(name)
    return {"type": "object", "properties": properties, **names}


def _fixed_parameters(doc: Doc) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    required: dict[str, None] = {}
    for kind in ("required", "optional"):
        for parameter in doc[kind]:
            name = api_name(parameter["name"])
            if name in properties:  # published twice
                continue
            properties[name] = _fixed_parameter(parameter)
            if kind == "required":
                required[name] = None
    return {"type": "object", "properties": properties, "required": list(required)}


def _fixed_parameter(parameter: Mapping[str, Any]) -> dict[str, Any]:
    kind = _TYPES.get(parameter["type"].upper(), "string")
    shown: dict[str, Any] = {
        "type": kind,
        "description": parameter["description"][:MAX_DESCRIPTION],
    }
    default = parameter["default"]
    if default is not None and str(default):
        example = _typed(default, kind)
        if example is not None:
            shown["examples"] = [example]
    return shown


def _typed(value: Any, kind: str) -> Any:
    """``value`` in the schema's type; None where it has none."""
    if kind == "string":
        return value if isinstance(value, str) else json.dumps(value)
    if isinstance(value, str):
        try:
            value = json.loads(value.lower() if kind == "boolean" else value)
        except (ValueError, RecursionError):
            return None
    if isinstance(value, bool) and kind != "boolean":
        return None
    return value if isinstance(value, _FITS[kind]) else None
