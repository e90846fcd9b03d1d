"""Convert published functions to what a model sees: text in a prompt, or tools of a chat template.

The rules are upstream's: ``utils.py`` (``populate_test_cases_with_predefined_functions``,
``_func_doc_language_specific_pre_processing``) and ``model_handler/utils.py``
(``format_function_doc``). In native mode, the published types ("gorilla") become JSON Schema, as
in upstream's ``convert_to_tool`` and ``constants/type_mappings.py``. The loader has checked the
form of the functions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.bfcl.categories import Documented, Language
from ace_ray.benchmarks.bfcl.texts import OWN_HINTS, Hints, fill

Function = Mapping[str, Any]

_PYTHON_TYPES = {"string": "str", "number": "float", "integer": "int", "boolean": "bool"}
_LISTS: Mapping[Language, tuple[str, ...]] = {
    "java": ("ArrayList", "Array"),
    "javascript": ("array",),
}
_ARGUMENT_INDENT = 8


def split_functions(
    docs: Mapping[str, Sequence[Function]],
    classes: Iterable[str],
    held_out: Mapping[str, Sequence[str]],
) -> tuple[list[Function], dict[int, list[Function]]]:
    """Return the functions of ``classes`` that are offered from the start, and the functions that
    ``held_out`` names, by the number of the turn from which on they are offered."""
    functions = [function for name in classes for function in docs[name]]
    later: dict[int, list[Function]] = {}
    for turn, names in held_out.items():
        later[int(turn)] = []
        for name in names:
            function = next((doc for doc in functions if doc["name"] == name), None)
            if function is not None:
                functions.remove(function)
                later[int(turn)].append(function)
    return functions, later


def add_hints(
    functions: Iterable[Function], language: Language, hints: Hints = OWN_HINTS
) -> list[Function]:
    """Return copies of the functions with hints about the language of the calls.

    In Java and JavaScript every parameter becomes a string that contains source code."""
    hinted_functions: list[Function] = []
    for function in functions:
        changed = {**function, "description": function["description"] + hints.language[language]}
        if language != "python":
            parameters = function["parameters"]
            properties = {
                name: _string_schema(schema, language, hints)
                for name, schema in parameters["properties"].items()
            }
            changed["parameters"] = {**parameters, "properties": properties}
        hinted_functions.append(changed)
    return hinted_functions


def render_docs(functions: Sequence[Function], form: Documented) -> str:
    """Return the documentation of the functions as a string in ``form``."""
    if form == "json":
        return json.dumps(functions, indent=4)
    if form == "xml":
        return "\n".join(_xml(function) for function in functions)
    return "\n\n".join(part for function in functions for part in (_python(function), "\n"))


def _string_schema(schema: Mapping[str, Any], language: Language, hints: Hints) -> dict[str, Any]:
    kind, changed = schema["type"], dict(schema)
    text = str(schema.get("description", ""))
    text += hints.any[language] if kind == "any" else fill(hints.typed[language], type=kind)
    if kind in _LISTS[language]:
        text += fill(hints.items[language], type=changed.pop("items")["type"])
    if kind == "dict" and language == "javascript" and "properties" in changed:
        text += fill(hints.properties, schema=json.dumps(changed.pop("properties")))
    # keep the order of the keys: the prompt shows them in this order
    return {**changed, "description": text, "type": "string"}


def _xml(function: Function) -> str:
    parameters = function["parameters"]
    inside = [
        _xml_parameter(name, schema, parameters.get("required"), " " * 4)
        for name, schema in parameters["properties"].items()
    ]
    return (
        f'<function name="{function["name"]}">\n'
        f"  <desc>{function['description']}</desc>\n"
        f"  <params>\n{''.join(inside)}  </params>\n</function>\n"
    )


def _xml_parameter(
    name: str, schema: Mapping[str, Any], required: Sequence[str] | None, space: str
) -> str:
    kind = schema.get("type", "string")
    items, values = schema.get("items", {}), schema.get("additionalProperties")
    if "type" in items:
        kind = f"{kind}[{items['type']}]"
    elif isinstance(values, Mapping):
        kind = f"{kind}[{values.get('type', 'string')}]"
    # without a list of required parameters, all are required
    needed = "true" if required is None or name in required else "false"
    attributes = f'name="{name}" type="{kind}" required="{needed}"'
    if "default" in schema:
        attributes += f' default="{schema["default"]!r}"'
    inside = ""
    if "properties" in schema:
        parts = [
            _xml_parameter(inner, inner_schema, schema.get("required"), f"{space}    ")
            for inner, inner_schema in schema["properties"].items()
        ]
        inside = f"{space}  <params>\n{''.join(parts)}{space}  </params>\n"
    # upstream removes all commas from the tag, even those in a default
    return (
        f"{space}<param {attributes.replace(',', '')}>\n"
        f"{space}  <desc>{_description(schema)}</desc>\n{inside}{space}</param>\n"
    )


def _python(function: Function) -> str:
    head = f'# Function: {function["name"]}\n    """\n    {function["description"]}\n\n'
    arguments = _python_parameters(function["parameters"]["properties"], _ARGUMENT_INDENT)
    return head + (f"    Args:\n{arguments}" if arguments else "") + '    """\n'


def _python_parameters(properties: Mapping[str, Any], indent: int) -> str:
    lines = []
    for name, schema in properties.items():
        default = f", default={schema['default']!r}" if "default" in schema else ""
        kind = _python_type(schema)
        lines.append(f"{' ' * indent}{name} ({kind}{default}): {_description(schema)}\n")
        lines.append(_python_parameters(schema.get("properties", {}), indent + 4))
    return "".join(lines)


def _python_type(schema: Mapping[str, Any]) -> str:
    kind = str(schema.get("type", "string"))
    if kind in ("array", "list", "tuple") and "items" in schema:
        return f"list[{_python_type(schema['items'])}]"
    if kind in ("object", "dict"):
        values = schema.get("additionalProperties")
        return f"dict[str, {_python_type(values)}]" if isinstance(values, Mapping) else "dict"
    return _PYTHON_TYPES.get(kind, kind)


def _description(schema: Mapping[str, Any]) -> str:
    text = str(schema.get("description", ""))
    return f"{text} Enum values: {schema['enum']}." if "enum" in schema else text


# JSON Schema type of each of upstream's types. Types that are not listed become "string".
_TYPES = {
    name: kind
    for kind, names in (
        ("integer", "integer byte short long Bigint"),
        ("number", "number float double"),
        ("boolean", "boolean bool"),
        ("array", "array list tuple ArrayList Array Queue Stack"),
        ("object", "dict object HashMap Hashtable"),
    )
    for name in names.split()
}


def tool_name(name: str) -> str:
    """Return the tool name of a function: dots, which OpenAI does not allow, become underscores."""
    return name.replace(".", "_")


def openai_tools(
    functions: Sequence[Function],
    language: Language = "python",
    hints: Hints = OWN_HINTS,
    *,
    hinted: bool = True,
) -> list[dict[str, Any]]:
    """Return copies of ``functions`` as tools for a chat template, in the same order.

    The ``parameters`` of a tool are the JSON Schema of an object. As in upstream, ``response``, the
    description of a function's result, is kept. ``hinted``: add hints about the language."""
    docs = add_hints(functions, language, hints) if hinted else list(functions)
    tools = []
    for function in docs:
        parameters = function["parameters"]
        properties = _properties(parameters["properties"], hints)
        schema = {**parameters, "type": "object", "properties": properties}
        tool = {**function, "name": tool_name(function["name"]), "parameters": schema}
        tools.append({"type": "function", "function": tool})
    return tools


def _properties(properties: Mapping[str, Any], hints: Hints) -> dict[str, Any]:
    schemas = {}
    for name, published in properties.items():
        kind = published.get("type")
        schemas[name] = schema = _schema({**published, "type": kind}, hints)
        if kind == "float":
            schema["format"] = "float"
            schema["description"] = str(published.get("description", "")) + hints.float_type
    return schemas


def _schema(published: Mapping[str, Any], hints: Hints) -> dict[str, Any]:
    """Convert a published schema to JSON Schema, without the note about floats."""
    schema = dict(published)
    if "type" in published:
        schema["type"] = _TYPES.get(str(published["type"]), "string")
    if "properties" in published:
        schema["properties"] = _properties(published["properties"], hints)
    elif "items" in published:
        schema["items"] = _schema(published["items"], hints)
    return schema
