"""Outputs that were made elsewhere, matched to entries by id: JSON lines or an official folder.

Lines are read one by one; of those that passed, only a digest of their key is kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO

from ace_ray.benchmarks.acebench.categories import AGENT, CATEGORIES, LANGUAGES
from ace_ray.benchmarks.acebench.data.loader import load
from ace_ray.errors import UserError
from ace_ray.records import Entry

MAX_LINE_BYTES = 256 << 20
_RESULT_FILE = re.compile(r"data_(.+)_result\.json")
_LANGUAGE_FOLDER = re.compile(r"result_(\w+)")


@dataclass(frozen=True, slots=True)
class Given:
    """One output and the entry it answers. Agent rows have no ``output`` but a ``result``, the
    final state, and the ``process``, their calls. ``sample`` keeps its JSON type: 0 is not "0"."""

    entry: Entry
    sample: int | str
    output: str | None = None
    result: Any = None
    process: Any = None


@dataclass(frozen=True, slots=True)
class Source:
    """One file of outputs; an official file says language and category by where it lies."""

    path: Path
    language: str = ""
    category: str = ""


class Entries:
    """The entries of a data folder by key, loaded one category at a time as they are asked for."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._loaded: dict[tuple[str, str], dict[str, Entry]] = {}

    def of(self, language: str, category: str) -> dict[str, Entry]:
        """By id. Raises `UserError` when the folder lacks the category."""
        key = (language, category)
        if key not in self._loaded:
            entries = load(self._data, languages=[language], categories=[category])
            self._loaded[key] = {entry.id: entry for entry in entries}
        return self._loaded[key]


def sources(path: Path) -> list[Source]:
    """The files at ``path``: itself (JSON lines), or those of an official result folder.

    Official files come in the order of the categories. Raises `UserError`.
    """
    if path.is_file():
        return [Source(path)]
    if not path.is_dir():
        raise UserError("no such file or folder", where=str(path), fix="name the outputs to score")
    found = {m[1]: file for file in path.iterdir() if (m := _RESULT_FILE.fullmatch(file.name))}
    if not found:
        raise UserError(
            "holds no data_<category>_result.json",
            where=str(path),
            fix="name a JSON lines file or one model's folder, result_all/result_<lang>/<model>",
        )
    for category, file in found.items():
        _known("category", category, CATEGORIES, str(file))
    language = _language_of(path)
    return [Source(found[c], language, c) for c in CATEGORIES if c in found]


def read(source: Source, entries: Entries, seen: set[bytes]) -> Iterator[Given]:
    """The rows of one file, in order; ``seen`` collects digests of their keys.

    Raises `UserError` naming file and line: a line that is no JSON object, a key that is missing
    or of a wrong type, an unknown language, category or id, the same id and sample twice.
    """
    try:
        with source.path.open("rb") as file:
            for where, row in _rows(file, str(source.path)):
                given = _given(row, source, entries, where)
                key = _digest(given)
                if key in seen:
                    raise UserError(
                        f"id {given.entry.id!r} ({given.entry.language}/{given.entry.category}) "
                        f"with sample {given.sample!r} was given before",
                        where=where,
                        fix="number repeated outputs by sample",
                    )
                seen.add(key)
                yield given
    except OSError as error:
        what = f"cannot be read ({error.strerror})"
        raise UserError(what, where=str(source.path)) from error


def _language_of(folder: Path) -> str:
    for part in reversed(folder.absolute().parts):
        if (match := _LANGUAGE_FOLDER.fullmatch(part)) and match[1] in LANGUAGES:
            return match[1]
    raise UserError(
        "no part of this path says the language",
        where=str(folder),
        fix="keep the official layout, result_en/<model> or result_zh/<model>",
    )


def _rows(file: BinaryIO, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(file:line, object) of each line. Blank lines are allowed at the end only."""
    number, blank = 0, ""
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        where = f"{name}:{number}"
        if len(line) > MAX_LINE_BYTES:
            raise UserError(f"the line has more than {MAX_LINE_BYTES:,} bytes", where=where)
        if not line.strip():
            blank = blank or where
            continue
        if blank:
            raise UserError("the line is blank", where=blank, fix="write one JSON object per line")
        yield where, _parse(line, where)


def _parse(line: bytes, where: str) -> dict[str, Any]:
    try:
        # surrogatepass: models emit lone surrogates and some writers do not escape them
        row = json.loads(line.decode("utf-8", "surrogatepass").removeprefix("\ufeff"))
    except RecursionError:
        what = "the line is nested too deeply"
    except ValueError as error:
        what = f"is not valid JSON: {error}"
    else:
        if isinstance(row, dict):
            return row
        what = f"holds a {type(row).__name__}"
    raise UserError(what, where=where, fix="write one JSON object per line")


def _given(row: dict[str, Any], source: Source, entries: Entries, where: str) -> Given:
    language = source.language or _text(row, "language", where)
    category = source.category or _text(row, "category", where)
    _known("language", language, LANGUAGES, where)
    _known("category", category, CATEGORIES, where)
    known = entries.of(language, category)
    entry_id = _text(row, "id", where)
    _known(f"id of {language}/{category}", entry_id, known, where)
    # official files hold one sample per id; a "sample" in them would be a further key
    sample = 0 if source.category else row.get("sample", 0)
    if type(sample) not in (int, str):
        what = f'"sample" is {_shown(sample)}, not an integer or a text'
        raise UserError(what, where=where)
    entry = known[entry_id]
    if category in AGENT:
        result, process = _value(row, "result", where), _value(row, "process", where)
        return Given(entry, sample, result=result, process=process)
    output = _value(row, "result" if source.category else "output", where)
    if output is not None and not isinstance(output, str):
        raise UserError(f"the output is {_shown(output)}, not a text or null", where=where)
    return Given(entry, sample, output)


def _digest(given: Given) -> bytes:
    key = json.dumps([*given.entry.key, given.sample])
    return blake2b(key.encode(), digest_size=16).digest()


def _value(row: dict[str, Any], key: str, where: str) -> Any:
    if key not in row:
        raise UserError(f'"{key}" is missing', where=where)
    return row[key]


def _text(row: dict[str, Any], key: str, where: str) -> str:
    value = _value(row, key, where)
    if not isinstance(value, str):
        raise UserError(f'"{key}" is {_shown(value)}, not a text', where=where)
    return value


def _known(kind: str, name: str, known: Any, where: str) -> None:
    if name in known:
        return
    near = get_close_matches(name[:200], known, n=1, cutoff=0)
    raise UserError(
        f"unknown {kind}: {_shown(name)}", where=where, fix=f"the nearest known one is {near[0]!r}"
    )


def _shown(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:80]}..."
