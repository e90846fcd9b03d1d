"""Read ACEBench outputs of another program: a JSON-lines file or an official result folder."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ace_ray.benchmarks.acebench.data.loader import load
from ace_ray.benchmarks.acebench.options import AGENT, CATEGORIES, LANGUAGES
from ace_ray.benchmarks.dataset import Row
from ace_ray.benchmarks.external_outputs import (
    Entries,
    Output,
    Placed,
    quote,
    read_json_lines,
    read_rows,
    require_known,
    single_answer,
    text_of,
    unique_outputs,
    value_of,
)
from ace_ray.errors import UserError
from ace_ray.types import Entry, Episode

# Stored state of an episode whose single answer is null.
NO_OUTPUT = {"output": None}
_RESULT_FILE = re.compile(r"data_(.+)_result\.json")
_LANGUAGE_FOLDER = re.compile(r"result_(\w+)")


def entries_of(data: Path) -> Entries:
    """Return the entries of a data folder; each category is loaded at its first use."""
    return Entries(
        lambda language, category: load(data, languages=[language], categories=[category]),
        languages=LANGUAGES,
        categories=CATEGORIES,
    )


def read_outputs(path: Path, entries: Entries) -> Iterator[Output]:
    """Yield the outputs at ``path``, a JSON-lines file or one model's official result folder.

    The answer is ``output`` in a line of a JSON-lines file, and ``result`` in an official file. For
    agents, both have ``result`` (the final state) and ``process`` (the calls) instead. Categories
    are read in a fixed order. Raises `UserError` at a line that is invalid."""
    if path.is_file():
        return unique_outputs(read_json_lines(path, entries, _episode), path)
    if not path.is_dir():
        raise UserError("no such file or folder", where=str(path), fix="name the outputs to score")
    files, language = _result_files(path), _language_of(path)
    outputs = (output for c in files for output in _read_results(files[c], language, c, entries))
    return unique_outputs(outputs, path)


def _result_files(folder: Path) -> dict[str, Path]:
    """Return the files of an official result folder by category, in the order of `CATEGORIES`."""
    files = {m[1]: file for file in folder.iterdir() if (m := _RESULT_FILE.fullmatch(file.name))}
    if not files:
        fix = "name a JSON lines file or one model's folder, result_all/result_<lang>/<model>"
        raise UserError("contains no data_<category>_result.json", where=str(folder), fix=fix)
    for category, file in files.items():
        require_known("category", category, CATEGORIES, str(file))
    return {category: files[category] for category in CATEGORIES if category in files}


def _language_of(folder: Path) -> str:
    for part in reversed(folder.absolute().parts):
        if (match := _LANGUAGE_FOLDER.fullmatch(part)) and match[1] in LANGUAGES:
            return match[1]
    fix = "keep the official layout, result_en/<model> or result_zh/<model>"
    raise UserError("no part of this path names the language", where=str(folder), fix=fix)


def _read_results(path: Path, language: str, category: str, entries: Entries) -> Iterator[Placed]:
    for location, row in read_rows(path):
        entry_id = text_of(row, "id", location)
        entry = entries.find(entry_id, location, language=language, category=category)
        # Official files have one sample per id. A key "sample" in them has another meaning.
        yield location, Output(entry, 0, _episode(entry, row, location, "result"))


def _episode(entry: Entry, row: Row, location: str, key: str = "output") -> Episode:
    if entry.category in AGENT:
        after, process = value_of(row, "result", location), value_of(row, "process", location)
        return Episode(state={"after": after, "process": process})
    output = value_of(row, key, location)
    if output is not None and not isinstance(output, str):
        raise UserError(f"the output is {quote(output)}, not a text or null", where=location)
    # The official checker raises an exception on null, but not on an empty string.
    return single_answer(output) if output is not None else Episode(state=NO_OUTPUT)
