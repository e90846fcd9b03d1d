"""A tool directory: one JSON file a tool, with a description and the tool's APIs.

Layout, as published: ``<Category>/<standard tool name>.json`` with ``tool_description`` and
``api_list[{name, url, description, required_parameters, optional_parameters}]``; the rest is not
read. It is optional: queries carry all but the tools' descriptions themselves.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ace_ray.benchmarks.dataset import json_value, read_bounded
from ace_ray.benchmarks.stabletoolbench.data.shapes import Doc, parameters_of, text_of
from ace_ray.benchmarks.stabletoolbench.names import api_name, standardize, standardize_category
from ace_ray.errors import UserError
from ace_ray.local_files import folder_of

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
        self._lacking: dict[str, None] = {}

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
        found = {**doc, "tool_description": tool["description"]}
        api = tool["apis"].get(api_name(doc["api"]))
        if api is None:
            self._lack(f"{tool['path']}: the tool has no API {doc['api']!r}")
            return found
        return {**found, **api}

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
            texts = ("description", "url")
            said = {key: api[key] for key in texts if isinstance(api.get(key), str)}
            for key in ("required", "optional"):
                if api.get(f"{key}_parameters") is not None:
                    said[key] = parameters_of(where, api, f"{key}_parameters")
            apis.setdefault(api_name(title), said)
        return {"path": where, "description": _text(value.get("tool_description")), "apis": apis}

    def _lack(self, line: str) -> None:
        self._lacking[line] = None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
