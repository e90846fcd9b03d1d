"""What a query and its APIs must look like, and how they are kept in an entry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ace_ray.errors import UserError

Doc = dict[str, Any]
"""One API as an entry holds it: ``category, tool, api, description, tool_description, method, url,
required, optional, template``; names as published, parameters ``{name, type, description,
default}``, ``template`` the published shape of a response or None."""


def query_id(where: str, row: Mapping[str, Any]) -> str:
    """The id of a published query, a whole number or a text. Raises `UserError`."""
    found = row.get("query_id")
    if isinstance(found, bool) or not isinstance(found, (int, str)) or found == "":
        raise UserError(
            '"query_id" is missing' if found is None else f'"query_id" is {found!r:.40}',
            where=where,
            fix="it must be a whole number or a text",
        )
    return str(found)


def docs_of(where: str, row: Mapping[str, Any]) -> list[Doc]:
    """The query's APIs. Raises `UserError` unless all have the published shape."""
    apis = row.get("api_list", [])
    if not isinstance(apis, list):
        raise UserError('"api_list" has the wrong shape', where=where, fix="it must be a list")
    return [_doc(f"{where}, API {number}", api) for number, api in enumerate(apis, start=1)]


def relevant_of(where: str, row: Mapping[str, Any]) -> list[list[str]]:
    """``[[tool, api], ...]`` that answer the query, each once, in published order."""
    pairs = row.get("relevant APIs")
    if not isinstance(pairs, list) or not all(
        isinstance(pair, list) and len(pair) == 2 and all(isinstance(name, str) for name in pair)
        for pair in pairs
    ):
        raise UserError(
            '"relevant APIs" is missing' if pairs is None else '"relevant APIs" has another shape',
            where=where,
            fix="it must be a list of [tool_name, api_name]",
        )
    return [list(pair) for pair in dict.fromkeys(map(tuple, pairs))]


def text_of(where: str, row: Mapping[str, Any], key: str, default: str | None = None) -> str:
    """``row[key]``, which must be a text. Raises `UserError`; a ``default`` stands for none."""
    found = row.get(key, default)
    if not isinstance(found, str):
        what = f'"{key}" is missing' if found is None else f'"{key}" is {found!r:.40}, not a text'
        raise UserError(what, where=where, fix=f'give "{key}" as a text')
    return found


def parameters_of(where: str, row: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """The parameters under ``key``, each with all four fields. Raises `UserError`."""
    found = row.get(key, [])
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise UserError(f'"{key}" is no list of objects', where=where)
    return [
        {
            "name": text_of(f"{where}, {key}", one, "name"),
            "type": text_of(f"{where}, {key}", one, "type", "STRING"),
            "description": _described(one.get("description")),
            "default": one.get("default", ""),
        }
        for one in found
    ]


def _described(value: Any) -> str:
    # Some tool files say null.
    return value if isinstance(value, str) else ""


def _doc(where: str, api: Any) -> Doc:
    if not isinstance(api, dict):
        raise UserError(f"is {api!r:.40}, not an object", where=where)
    return {
        "category": text_of(where, api, "category_name"),
        "tool": text_of(where, api, "tool_name"),
        "api": text_of(where, api, "api_name"),
        "description": text_of(where, api, "api_description", ""),
        "tool_description": "",
        "method": text_of(where, api, "method", "GET"),
        "url": "",
        "required": parameters_of(where, api, "required_parameters"),
        "optional": parameters_of(where, api, "optional_parameters"),
        "template": api.get("template_response"),
    }
