"""Import recorded answers from JSON files into a cache, and export them.

The layout is upstream's: ``<category>/<tool>_for_<category>/<api>.json``, or
``<category>/<tool>/<api>.json``. Each file is one object. A key is a call's arguments as Python
prints them; its value is ``{"error", "response"}``.
"""

from __future__ import annotations

import json
import logging
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import Any

from ace_ray.benchmarks.dataset import read_inside
from ace_ray.benchmarks.stabletoolbench.apis.answers import UnusableJson, answer_text, parse_json
from ace_ray.benchmarks.stabletoolbench.apis.cache import (
    RECORDED,
    names_key,
    open_database,
    recorded_key,
)
from ace_ray.benchmarks.stabletoolbench.callable_names import (
    api_name,
    standardize,
    standardize_category,
)
from ace_ray.errors import UserError

MAX_FILE_BYTES = 32 << 20
MAX_NAME_BYTES = 255
_log = logging.getLogger(__name__)


def import_answers(source: Path, folder: Path) -> int:
    """Import the JSON files in ``source`` into the cache ``folder``; return the number of calls.

    An answer replaces an earlier import for the same call. A value without error and response is
    skipped; upstream has such values because it stores any text of a simulator. Raises `UserError`
    for a file that cannot be read; nothing is imported then."""
    imported: set[tuple[str, str]] = set()
    skipped = 0
    with closing(open_database(folder, "readwrite")) as database, database:
        for path in sorted(source.glob("*/*/*.json")):
            relative = path.relative_to(source)
            api, answers = _api_of(*relative.parts), _json_object(source, relative)
            texts = {
                key: answer_text(answer["error"], answer["response"])
                for key, answer in answers.items()
                if isinstance(answer, dict) and {"error", "response"} <= set(answer)
            }
            rows = [
                (api, recorded_key(k), RECORDED, json.dumps(k), text) for k, text in texts.items()
            ]
            database.executemany("INSERT OR REPLACE INTO answers VALUES (?,?,?,?,?,0)", rows)
            imported |= {row[:2] for row in rows}
            skipped += len(answers) - len(rows)
    if skipped:
        _log.warning("%s: %d values without error and response are skipped", source, skipped)
    if not imported:
        problem = "contains no <category>/<tool>/<api>.json with answers"
        raise UserError(problem, where=str(source), fix="name a folder of recorded answers")
    return len(imported)


def export_answers(folder: Path, target: Path) -> int:
    """Write the answers in the cache ``folder`` as JSON files, and return their number.

    ``target`` is a new or empty folder. If a call has several answers, the imported one is written,
    or else the oldest. APIs whose names are not file names are left out, with a warning. Raises
    `UserError` if there are no answers, or ``target`` is not empty or cannot be written."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UserError("is not an empty folder", where=str(target), fix="name a new folder")
    exported, left_out = 0, []
    with closing(open_database(folder, "read")) as database:
        rows = database.execute(
            "SELECT api, given, answer FROM answers WHERE failed = 0 "
            f"ORDER BY api, maker <> '{RECORDED}', rowid"
        )
        for api, answers in groupby(rows, key=lambda row: str(row[0])):
            parts = _file_of(api)
            if not parts:
                left_out.append(api)
                continue
            path = target.joinpath(*parts)
            first: dict[str, Any] = {}
            for _, request, answer in answers:
                first.setdefault(json.loads(request), json.loads(answer))
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps(first, indent=1), encoding="utf-8")
            except OSError as error:
                problem = f"cannot be written: {error.strerror}"
                raise UserError(problem, where=str(path), fix="name another folder") from error
            exported += len(first)
    if left_out:
        text = "%d APIs are left out, since their names are not file names; the first: %.200s"
        _log.warning(text, len(left_out), left_out[0])
    if not exported:
        raise UserError("has no answers to export", where=str(folder), fix="import or record some")
    return exported


def _api_of(category: str, tool: str, file: str) -> str:
    """Return the key of the API that a file is about (`names_key`)."""
    tool, api = tool.removesuffix(f"_for_{category}"), file.removesuffix(".json")
    return names_key(standardize_category(category), standardize(tool), api_name(api))


def _file_of(api: str) -> tuple[str, str, str] | None:
    """Return the folders and the file of an API, from which an import reads the same API. None if
    there are none: names come from data and may be ``..`` or too long."""
    category, tool, name = json.loads(api)
    parts = (category, f"{tool}_for_{category}", f"{name}.json")
    usable = all(part.isprintable() and len(part.encode()) <= MAX_NAME_BYTES for part in parts)
    return parts if usable and category.strip(".") and _api_of(*parts) == api else None


def _json_object(root: Path, relative: Path) -> dict[str, Any]:
    raw = read_inside(root, relative.as_posix(), MAX_FILE_BYTES)
    try:
        tree = parse_json(raw.decode("utf-8"), MAX_FILE_BYTES)
    except (UnusableJson, UnicodeDecodeError) as error:
        problem = f"is not JSON that can be used: {error}"
        raise UserError(problem, where=str(root / relative)) from None
    if not isinstance(tree, dict):
        raise UserError(f"is a {type(tree).__name__}, not an object", where=str(root / relative))
    return tree
