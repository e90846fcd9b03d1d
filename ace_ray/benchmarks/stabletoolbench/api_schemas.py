"""Published form of queries, APIs and tools, and the form of an API in an entry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import AliasChoices, BeforeValidator, Field

from ace_ray.benchmarks.dataset import PartialModel, json_value, parse_tree, read_bounded
from ace_ray.benchmarks.stabletoolbench.callable_names import (
    api_name,
    standardize,
    standardize_category,
)
from ace_ray.errors import UserError
from ace_ray.util.local_files import path_of

# An API in an entry: ``category, tool, api, description, tool_description, method, required,
# optional, template``. Names are as published. Parameters are
# ``{name, type, description, default}``. ``template`` is the published form of a response, or None.
Doc = dict[str, Any]


# The description is null in some tool files.
_Description = Annotated[str, BeforeValidator(lambda v: v if isinstance(v, str) else "")]


class _Parameter(PartialModel):
    name: str
    type: str = "STRING"
    description: _Description = ""
    default: Any = ""


class _Request(PartialModel):
    """Fields that an API has in a query and in a tool directory."""

    method: str = "GET"
    required_parameters: list[_Parameter] | None = None
    optional_parameters: list[_Parameter] | None = None
    template_response: Any = None

    def doc_of(
        self, category: str, tool: str, api: str, description: str, tool_description: str
    ) -> Doc:
        return {
            "category": category,
            "tool": tool,
            "api": api,
            "description": description,
            "tool_description": tool_description,
            "method": self.method,
            "required": [parameter.model_dump() for parameter in self.required_parameters or ()],
            "optional": [parameter.model_dump() for parameter in self.optional_parameters or ()],
            "template": self.template_response,
        }


class _Api(_Request):
    category_name: str
    tool_name: str
    api_name: str
    api_description: str = ""
    required_parameters: list[_Parameter] = Field(default_factory=list)
    optional_parameters: list[_Parameter] = Field(default_factory=list)

    def doc(self) -> Doc:
        names = self.category_name, self.tool_name, self.api_name
        return self.doc_of(*names, self.api_description, "")


class QueryId(PartialModel):
    """The id of a published query."""

    query_id: int | Annotated[str, Field(min_length=1)]


class Query(QueryId):
    """A published query; ``relevant`` lists the [tool, api] pairs that answer it."""

    query: str
    api_list: list[_Api] = Field(default_factory=list)
    relevant: list[Annotated[list[str], Field(min_length=2, max_length=2)]] = Field(
        alias="relevant APIs"
    )


class _ToolApi(_Request):
    name: str = Field(validation_alias=AliasChoices("name", "api_name"))
    description: Any = Field(None, validation_alias=AliasChoices("description", "api_description"))


class _Tool(PartialModel):
    tool_name: str = ""
    tool_description: _Description = ""
    api_list: list[_ToolApi] = Field(default_factory=list)


TOOL_LIMIT_BYTES = 4 << 20


def _tool_of(path: Path) -> _Tool:
    """Read a file with a tool, or one API of a tool. Raises `UserError` if it has neither."""
    tree = json_value(read_bounded(path, TOOL_LIMIT_BYTES), str(path))
    if isinstance(tree, dict) and "api_list" not in tree:
        if not {"name", "api_name"} & set(tree):
            problem = "describes neither a tool (api_list) nor an API (name)"
            raise UserError(problem, where=str(path), fix="correct or remove the file")
        parse_tree(_ToolApi, tree, str(path))  # an error names the API's key
        tree = {**tree, "api_list": [tree]}
    return parse_tree(_Tool, tree, str(path))


class ToolFolder:
    """Adds a tool directory's descriptions to APIs, and records what the directory lacks.

    A tool is ``<Category>/<tool>.json``, or the folder ``<Category>/<tool>`` of API files."""

    def __init__(self, folder: Path) -> None:
        """Open the tool directory: ``folder``, or its ``tools`` or ``toolenv/tools``. Raises
        `UserError` if the directory lacks subfolders."""
        folder = path_of(folder, "the tool directory")
        if not folder.is_dir():
            raise UserError("no such folder", where=str(folder), fix="name a tool directory")
        roots = (folder / "toolenv/tools", folder / "tools", folder)
        self.root = next(root for root in roots if root.is_dir())
        self._categories = {path.name: path for path in self.root.iterdir() if path.is_dir()}
        if not self._categories:
            fix = "name the folder that holds <Category>/<tool>.json, or <Category>/<tool>/"
            raise UserError("has no folders of categories in it", where=str(self.root), fix=fix)
        self._files: dict[Path, dict[str, list[Path]]] = {}
        self._tools: dict[tuple[str, str], dict[str, Any] | None] = {}
        # A line for each requested tool or API that is missing, in the order of the requests.
        self.lacking: dict[str, None] = {}

    def enrich(self, doc: Doc) -> Doc:
        """Return ``doc`` with the directory's descriptions and parameters, as upstream does. Fields
        that the directory lacks, or has as null, stay unchanged. Raises `UserError` if the tool's
        file is malformed."""
        key = (doc["category"], doc["tool"])
        if key not in self._tools:
            self._tools[key] = self._read(*key)
        tool = self._tools[key]
        if tool is None:
            return doc
        enriched = {**doc, "tool_description": tool["description"]}
        api = tool["apis"].get(api_name(doc["api"]))
        if api is None:
            self.lacking[f"{tool['path']}: the tool has no API {doc['api']!r}"] = None
            return enriched
        return {**enriched, **api}

    def docs(self) -> Iterator[Doc]:
        """Yield every API of the directory. Raises `UserError` for a malformed file."""
        for category, folder in sorted(self._categories.items()):
            for path in (path for paths in self._files_in(folder).values() for path in paths):
                tool = _tool_of(path)
                name = tool.tool_name or _published_name(path, folder)
                for api in tool.api_list:
                    description = api.description if isinstance(api.description, str) else ""
                    names = category, name, api.name
                    yield api.doc_of(*names, description, tool.tool_description)

    def _read(self, category: str, name: str) -> dict[str, Any] | None:
        # Look the category up in the listing, so that its name cannot lead outside the folder.
        names = (category, standardize_category(category))
        folder = next((self._categories[n] for n in names if n in self._categories), None)
        paths = self._files_in(folder).get(standardize(name)) if folder else None
        if not paths:
            self.lacking[f"{self.root} lacks the tool {name!r} ({category})"] = None
            return None
        tools = [_tool_of(path) for path in paths]
        apis: dict[str, dict[str, Any]] = {}
        for api in (api for tool in tools for api in tool.api_list):
            parameters = {"required": api.required_parameters, "optional": api.optional_parameters}
            fields: dict[str, Any] = {
                key: [parameter.model_dump() for parameter in group]
                for key, group in parameters.items()
                if group is not None
            }
            if isinstance(api.description, str):
                fields["description"] = api.description
            apis.setdefault(api_name(api.name), fields)
        path = paths[0] if paths[0].parent == folder else paths[0].parent
        description = next((t.tool_description for t in tools if t.tool_description), "")
        return {"path": str(path), "description": description, "apis": apis}

    def _files_in(self, category: Path) -> dict[str, list[Path]]:
        """Return the files of each tool of a category, by the tool's standard name."""
        if category not in self._files:
            layouts: list[dict[str, list[Path]]] = [{}, {}]
            for files, pattern in zip(layouts, ("*.json", "*/*.json"), strict=True):
                for path in sorted(category.glob(pattern)):
                    files.setdefault(standardize(_published_name(path, category)), []).append(path)
            self._files[category] = layouts[1] | layouts[0]
        return self._files[category]


def _published_name(path: Path, category: Path) -> str:
    """Return the name of the tool to which ``path``, its file or an API's file, belongs."""
    return path.stem if path.parent == category else path.parent.name
