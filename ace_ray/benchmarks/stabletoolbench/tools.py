"""Build the functions that an agent is offered: APIs with callable names and schemas, and Finish.

The rules follow upstream's ``rapidapi_multithread.py``. A function has optional parameters only if
it has required ones, too. The list ``required`` begins with an empty string. Numbers have the type
integer. A call reaches the first function whose name ends in the called name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ace_ray.benchmarks.stabletoolbench import callable_names
from ace_ray.benchmarks.stabletoolbench.api_schemas import Doc
from ace_ray.benchmarks.stabletoolbench.prompts import OWN, Texts
from ace_ray.types import Entry, digest

Schema = dict[str, Any]

# Upstream's status code for a call of an unknown function, and ace_ray's error.
UNKNOWN, UNKNOWN_FUNCTION = 1, "unknown function"
MAX_DESCRIPTION = 256
MAX_TOOL_DESCRIPTION = 512

_TYPES = {"NUMBER": "integer", "STRING": "string", "BOOLEAN": "boolean"}


@dataclass(frozen=True)
class Api:
    """An API that the agent may call.

    ``doc`` has the published names. ``std_*`` are standard names, which caches use as keys.
    ``name``, ``description`` and ``parameters`` describe the function to the agent.
    """

    doc: Doc
    std_category: str
    std_tool: str
    std_api: str
    name: str
    description: str
    parameters: dict[str, Any]


def apis_of(entry: Entry, texts: Texts = OWN) -> list[Api]:
    """Return the APIs of the entry's query in published order; function names may repeat."""
    docs = entry.data["apis"]
    return [_api(doc, texts, callable_names.function_name(doc["api"], doc["tool"])) for doc in docs]


def distinct_apis(docs: Sequence[Doc], texts: Texts = OWN) -> list[Api]:
    """Return the APIs of ``docs``, all different, each with a unique function name."""
    usual_names = [callable_names.function_name(doc["api"], doc["tool"]) for doc in docs]
    counts = Counter(usual_names)
    return [
        _api(doc, texts, unique_name(doc) if counts[name] > 1 else name)
        for doc, name in zip(docs, usual_names, strict=True)
    ]


def unique_name(doc: Doc) -> str:
    """Return the function name of an API in a pool where another API has its usual name: the first
    characters of ``<api>_for_<tool>``, and a hash of the published names."""
    category, tool, api = published_names(doc)
    mark = f"_{digest(category, tool, api)[:6]}"
    name = f"{callable_names.api_name(api)}_for_{callable_names.standardize(tool)}"
    return name[: callable_names.MAX_NAME - len(mark)] + mark


def published_names(doc: Doc) -> tuple[str, str, str]:
    return doc["category"], doc["tool"], doc["api"]


def schemas(apis: Sequence[Api], texts: Texts = OWN) -> list[Schema]:
    """Return the functions as tools in OpenAI's form. The last is Finish, which ends an attempt
    with or without an answer."""
    offered = [_schema(api.name, api.description, api.parameters) for api in apis]
    parameters = {
        "type": "object",
        "properties": {
            "return_type": {
                "type": "string",
                "enum": [callable_names.GIVE_ANSWER, callable_names.GIVE_UP],
            },
            "final_answer": {"type": "string", "description": texts.finish_answer},
        },
        "required": ["return_type"],
    }
    return [*offered, _schema(callable_names.FINISH, texts.finish, parameters)]


def find(apis: Sequence[Api], called_name: str, *, exact: bool = False) -> Api | None:
    """Return the first API whose function name ends in ``called_name``, or None. An empty name
    finds the first API. If ``exact``, the name must be equal."""
    if exact:
        return next((api for api in apis if api.name == called_name), None)
    return next((api for api in apis if api.name.endswith(called_name)), None)


def call_record(name: str, api: Api | None, arguments: str) -> dict[str, Any]:
    """Return the first fields of a stored call; ``api`` is None for an unknown function."""
    published: Doc = api.doc if api else {"tool": None, "api": None}
    fields = {"name": name, "tool": published["tool"], "api": published["api"]}
    return fields | {"arguments": arguments}


def tool_lines(apis: Sequence[Api]) -> str:
    """Return a numbered line for each tool, with at most 512 characters of its description."""
    described = {api.std_tool: api.doc["tool_description"] for api in apis}
    lines = []
    for number, (tool, text) in enumerate(described.items(), start=1):
        line = text[:MAX_TOOL_DESCRIPTION].replace("\n", "").strip()
        lines.append(f"{number}.{tool}: {line or 'None'}\n")
    return "".join(lines)


def _schema(name: str, description: str, parameters: dict[str, Any]) -> Schema:
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


def _api(doc: Doc, texts: Texts, name: str) -> Api:
    std_tool = callable_names.standardize(doc["tool"])
    text = texts.function.replace("{tool}", std_tool)
    if description := doc["description"].strip():
        if doc["api"]:
            description = description.replace(doc["api"], name)
        text += texts.function_says.replace("{description}", description[:MAX_DESCRIPTION])
    return Api(
        doc=doc,
        std_category=callable_names.standardize_category(doc["category"]),
        std_tool=std_tool,
        std_api=callable_names.api_name(doc["api"]),
        name=name,
        description=text.strip(),
        parameters=_parameters(doc),
    )


def _parameters(doc: Doc) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    listed: dict[str, list[str]] = {"required": [""], "optional": [""]}
    for kind in listed if doc["required"] else ():
        for parameter in doc[kind]:
            name = callable_names.api_name(parameter["name"])
            schema = {
                "type": _TYPES.get(parameter["type"], "string"),
                "description": parameter["description"][:MAX_DESCRIPTION],
            }
            if str(parameter["default"]):
                schema["example_value"] = parameter["default"]
            properties[name] = schema
            listed[kind].append(name)
    return {"type": "object", "properties": properties, **listed}
