"""What a query and its APIs must look like, and how they are kept in an entry."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ace_ray.benchmarks.dataset import json_value, read_bounded
from ace_ray.benchmarks.stabletoolbench.names import api_name, standardize, standardize_category
from ace_ray.errors import UserError
from ace_ray.util.local_files import folder_of

Doc = dict[str, Any]
"""One API as an entry holds it: ``category, tool, api, description, tool_description, method,
required, optional, template``; names as published, parameters ``{name, type, description,
default}``, ``template`` the published shape of a response or None."""


def query_id(where: str, row: Mapping[str, Any]) -> str:
    """The id of a published query, a whole number or a text. Raises `UserError`."""
    value = row.get("query_id")
    if isinstance(value, bool) or not isinstance(value, (int, str)) or value == "":
        raise UserError(
            '"query_id" is missing' if value is None else f'"query_id" is {value!r:.40}',
            where=where,
            fix="it must be a whole number or a text",
        )
    return str(value)


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
    value = row.get(key, default)
    if not isinstance(value, str):
        what = f'"{key}" is missing' if value is None else f'"{key}" is {value!r:.40}, not a text'
        raise UserError(what, where=where, fix=f'give "{key}" as a text')
    return value


def parameters_of(where: str, row: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """The parameters under ``key``, each with all four fields. Raises `UserError`."""
    parameters = row.get(key, [])
    if not isinstance(parameters, list) or not all(isinstance(one, dict) for one in parameters):
        raise UserError(f'"{key}" is no list of objects', where=where)
    return [
        {
            "name": text_of(f"{where}, {key}", one, "name"),
            "type": text_of(f"{where}, {key}", one, "type", "STRING"),
            "description": _described(one.get("description")),
            "default": one.get("default", ""),
        }
        for one in parameters
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
        "required": parameters_of(where, api, "required_parameters"),
        "optional": parameters_of(where, api, "optional_parameters"),
        "template": api.get("template_response"),
    }


TOOL_LIMIT_BYTES = 4 << 20


class ToolFolder:
    """Adds to APIs what a directory says of them, and notes what it lacks."""

    def __init__(self, folder: Path) -> None:
        """``folder`` is the directory, or holds it as ``tools`` or ``toolenv/tools``. Raises
        `UserError` when there is no folder in it."""
        folder = folder_of(folder, "the tool directory")
        if not folder.is_dir():
            raise UserError("no such folder", where=str(folder), fix="name a tool directory")
        for inner in ("toolenv/tools", "tools"):
            if (folder / inner).is_dir():
                folder = folder / inner
                break
        self.root = folder
        self._categories = {path.name: path for path in folder.iterdir() if path.is_dir()}
        if not self._categories:
            raise UserError(
                "has no folders of categories in it",
                where=str(folder),
                fix="name the folder that holds <Category>/<tool>.json",
            )
        self._tools: dict[tuple[str, str], dict[str, Any] | None] = {}
        self._lacking: dict[str, None] = {}  # in the order in which they were asked for

    @property
    def lacking(self) -> list[str]:
        """One line each for the tools and APIs that were asked for and are not here."""
        return list(self._lacking)

    def enrich(self, doc: Doc) -> Doc:
        """``doc`` with the tool's description, and with the API's texts and parameters as they
        stand here; upstream takes them from here too. What is missing, or null, stays as it is.

        Raises `UserError` when the tool's file is not what it should be.
        """
        tool = self._tool(doc["category"], doc["tool"])
        if tool is None:
            return doc
        enriched = {**doc, "tool_description": tool["description"]}
        api = tool["apis"].get(api_name(doc["api"]))
        if api is None:
            self._lack(f"{tool['path']}: the tool has no API {doc['api']!r}")
            return enriched
        return {**enriched, **api}

    def _tool(self, category: str, name: str) -> dict[str, Any] | None:
        key = (category, name)
        if key not in self._tools:
            self._tools[key] = self._read(category, name)
        return self._tools[key]

    def _read(self, category: str, name: str) -> dict[str, Any] | None:
        # A category is looked up in the listing, so that none leads out of the folder.
        folder = self._categories.get(category) or self._categories.get(
            standardize_category(category)
        )
        path = (folder or self.root / standardize_category(category)) / f"{standardize(name)}.json"
        if folder is None or not path.is_file():
            self._lack(f"{self.root} lacks the tool {name!r} ({category})")
            return None
        where = str(path)
        value = json_value(read_bounded(path, TOOL_LIMIT_BYTES), where)
        if not isinstance(value, dict) or not isinstance(value.get("api_list", []), list):
            raise UserError('is no tool: an object with "api_list"', where=where)
        apis: dict[str, dict[str, Any]] = {}
        for api in value.get("api_list", []):
            if not isinstance(api, dict):
                raise UserError("has an API that is no object", where=where)
            title = text_of(where, api, "name")
            fields: dict[str, Any] = {}
            if isinstance(api.get("description"), str):
                fields["description"] = api["description"]
            for key in ("required", "optional"):
                if api.get(f"{key}_parameters") is not None:
                    fields[key] = parameters_of(where, api, f"{key}_parameters")
            apis.setdefault(api_name(title), fields)
        return {
            "path": where,
            "description": _described(value.get("tool_description")),
            "apis": apis,
        }

    def _lack(self, line: str) -> None:
        self._lacking[line] = None
