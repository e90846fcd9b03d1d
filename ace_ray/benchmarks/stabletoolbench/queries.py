"""Read and import the published queries: six groups, filtered by id.

``solvable_queries/test_instruction/<group>.json`` contains a list of queries. The optional
``solvable_queries/test_query_ids/<group>.json`` contains the ids to use, as a list or as the keys
of an object.

An import copies the queries, the ids, the licence, and the sources with official prompts if there
are any. The imported folder can be used in place of a checkout.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ace_ray.benchmarks import dataset
from ace_ray.benchmarks.stabletoolbench.api_schemas import Query, QueryId, ToolFolder
from ace_ray.benchmarks.stabletoolbench.callable_names import BENCHMARK, GROUPS
from ace_ray.benchmarks.stabletoolbench.prompts import SOURCES, read_texts
from ace_ray.errors import UserError
from ace_ray.types import Entry
from ace_ray.util import log
from ace_ray.util.local_files import path_of

MINI = Path(__file__).with_name("mini")
QUERIES = "solvable_queries"
GET_DATA = "run `ace-ray data import stabletoolbench PATH` with a checkout of StableToolBench"

OFFICIAL_COMMIT = "aa4ed9f4737ad98bd706663f01d63623c3427812"
# `dataset.files_hash` of the queries and ids of `OFFICIAL_COMMIT`.
OFFICIAL_QUERIES_SHA256 = "1e32a40b0df67aec9a74f2173f77775b9d0b3959eaa2a396716e420797dee1d6"
LICENSE = "LICENSE"
# Prompts of API simulators and judges, copied if a checkout has them.
OTHER_SOURCES = (
    "server/main.py",
    "server/main_mirrorapi.py",
    "server/main_mirrorapi_cache.py",
    "server/system_prompts.py",
    "toolbench/tooleval/fac_eval.py",
    "toolbench/tooleval/evaluators/tooleval_gpt-3.5-turbo_default/config.yaml",
    "toolbench/tooleval/evaluators/tooleval_gpt-3.5-turbo_default/template.txt",
)

_log = logging.getLogger(__name__)


def load(
    folder: Path, *, groups: Sequence[str] = GROUPS, tools: ToolFolder | None = None
) -> list[Entry]:
    """Read the queries of ``groups`` in the order of groups and files. ``folder`` is
    ``solvable_queries`` or contains it.

    Files of other groups may be missing. ``tools`` adds a tool directory's descriptions of APIs.
    Raises `UserError` for a missing file, and for an invalid query, such as one without APIs."""
    root = queries_folder(folder)
    return [entry for group in groups for entry in _load_group(root, group, tools)]


def unoffered_lines(folder: Path, entries: Iterable[Entry]) -> Iterator[str]:
    """Yield a line for each relevant API that its query does not offer."""
    root = queries_folder(folder)
    for entry in entries:
        offered = {(doc["tool"], doc["api"]) for doc in entry.data["apis"]}
        for tool, api in entry.gold["relevant"]:
            if (tool, api) not in offered:
                location = f"{root / files_of(entry.category)[0]}, query {entry.id}"
                yield f"{location}: the relevant API {tool} / {api} is not in its api_list"


def present_groups(folder: Path) -> list[str]:
    """Return the groups whose file of queries is in ``folder``. Raises `UserError` if none is."""
    root = queries_folder(folder)
    groups = [group for group in GROUPS if (root / files_of(group)[0]).is_file()]
    if not groups:
        problem = f"has no group of queries, such as {files_of(GROUPS[0])[0]}"
        fix = "give a checkout of StableToolBench, or its solvable_queries"
        raise UserError(problem, where=str(root), fix=fix)
    return groups


def absent_line(folder: Path, groups: Sequence[str]) -> str:
    """Return a line that names the groups not in ``groups``, which ``folder`` lacks; or ""."""
    absent = [group for group in GROUPS if group not in groups]
    return f"{folder} lacks the groups {', '.join(absent)}" if absent else ""


def files_of(group: str) -> tuple[str, str]:
    """Return the files of a group's queries and ids, relative to ``solvable_queries``."""
    return f"test_instruction/{group}.json", f"test_query_ids/{group}.json"


def queries_folder(folder: Path) -> Path:
    """Return ``folder`` or its ``solvable_queries``. Raises `UserError` if neither has queries."""
    for candidate in (folder, folder / QUERIES):
        if (candidate / "test_instruction").is_dir():
            return candidate
    if folder.is_file():
        raise UserError("is a file", where=str(folder), fix="unpack it and name the folder")
    problem = f"has no {QUERIES}/test_instruction in it" if folder.is_dir() else "no such folder"
    fix = "give a checkout of StableToolBench, or its solvable_queries"
    raise UserError(problem, where=str(folder), fix=fix)


def locate(name: str) -> Path:
    """Return the folder for the config key ``data``: ``mini``, ``imported[:<version>]``, or the
    path of ``solvable_queries`` or its parent folder. Raises `UserError` if there is none."""
    return dataset.locate(name, BENCHMARK, mini=MINI, get_data=GET_DATA, check=queries_folder)


def _load_group(folder: Path, group: str, tools: ToolFolder | None) -> Iterator[Entry]:
    query_file, ids_file = (folder / name for name in files_of(group))
    if not query_file.is_file():
        problem = f"the group {group} is missing: no such file"
        raise UserError(problem, where=str(query_file), fix="get the file, or leave the group out")
    rows = _queries(query_file)
    ids = dict.fromkeys(_ids(ids_file) if ids_file.is_file() else rows)
    if unknown := [row_id for row_id in ids if row_id not in rows]:
        more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
        problem = f"names queries that do not exist: {', '.join(unknown[:5])}{more}"
        fix = f"remove these ids, or add the queries to {query_file}"
        raise UserError(problem, where=str(ids_file), fix=fix)
    for row_id in (row_id for row_id in rows if row_id in ids):
        location = f"{query_file}, query {row_id}"
        query = dataset.parse_tree(Query, rows[row_id], location)
        if not query.api_list:
            problem = "the query has no APIs, so it cannot be evaluated"
            fix = "remove the query and its id from the data"
            raise UserError(problem, where=location, fix=fix)
        docs = [api.doc() for api in query.api_list]
        if tools is not None:
            docs = [tools.enrich(doc) for doc in docs]
        relevant = [list(pair) for pair in dict.fromkeys(map(tuple, query.relevant))]
        data = {"query": query.query, "apis": docs}
        yield Entry(BENCHMARK, group, "en", row_id, data, {"relevant": relevant}, row_id)


def _queries(path: Path) -> dict[str, dict[str, Any]]:
    value = _json(path)
    if not isinstance(value, list):
        raise UserError(f"contains a {type(value).__name__}", where=str(path), fix="give a list")
    rows: dict[str, dict[str, Any]] = {}
    for number, row in enumerate(value, start=1):
        location = f"{path}, query {number} of the list"
        row_id = str(dataset.parse_tree(QueryId, row, location).query_id)
        if row_id in rows:
            raise UserError(f"the query_id {row_id} appears twice", where=str(path))
        rows[row_id] = row
    return rows


def _ids(path: Path) -> list[str]:
    value = _json(path)
    if isinstance(value, dict):
        value = list(value)
    if not isinstance(value, list) or any(
        isinstance(query_id, bool) or not isinstance(query_id, (int, str)) for query_id in value
    ):
        fix = "write a list of ids, or an object with ids as its keys"
        raise UserError("contains no query ids", where=str(path), fix=fix)
    return [str(query_id) for query_id in value]


def _json(path: Path) -> Any:
    return dataset.json_value(
        dataset.read_bounded(path), path, "get the file again, it may have been cut off"
    )


def import_queries(path: Path) -> Path:
    """Import the groups in ``path``, and return the folder of the import.

    ``path`` is ``solvable_queries`` or a folder that contains it, such as a checkout. Importing the
    same content again changes nothing. Raises `UserError` if a file is missing or invalid."""
    path = path_of(path, "data").resolve()
    queries = queries_folder(path)
    groups = present_groups(path)
    entries = load(path, groups=groups)
    rows = Counter(entry.category for entry in entries)
    files = {
        f"{QUERIES}/{name}": dataset.read_inside(queries, name)
        for group in groups
        for name in files_of(group)
        if (queries / name).exists()
    }
    official = dataset.files_hash(files) == OFFICIAL_QUERIES_SHA256
    files |= _read_extras(path)
    target = dataset.store_version(
        files,
        BENCHMARK,
        counted=f"{rows.total():,} queries",
        official_queries=official,
        commit=OFFICIAL_COMMIT if official else None,
        source={"path": str(path)},
        rows={group: rows[group] for group in groups},
    )
    if line := absent_line(queries, groups):
        log.info(line)
    for line in unoffered_lines(path, entries):
        log.info(line)
    if not official:
        log.info(f"the queries differ from those of commit {OFFICIAL_COMMIT[:12]}: {path}")
    if SOURCES[0] not in files:
        log.info(f"no official prompts are imported, since {path} is not a checkout")
    return target


def _read_extras(path: Path) -> dict[str, bytes]:
    """Return the licence of a checkout, and its prompt files if it has the agent's prompts."""
    root = path.parent if path.name == QUERIES else path
    names = [LICENSE]
    if any((root / name).exists() for name in SOURCES):
        read_texts(root)  # raises now, not in a run, if the prompts are unreadable
        names += [*SOURCES, *OTHER_SOURCES]
    return {name: dataset.read_inside(root, name) for name in names if (root / name).exists()}
