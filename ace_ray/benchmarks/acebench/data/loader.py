"""The published rows as entries: questions and answers joined by id, each shape checked.

Layout, as published: ``data_<lang>/data_<category>.json`` holds one question per line,
``data_<lang>/possible_answer/data_<category>.json`` the answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ace_ray.benchmarks.acebench.categories import CATEGORIES, LANGUAGES, dialogue
from ace_ray.benchmarks.acebench.data.shapes import check_question, gold_of
from ace_ray.benchmarks.files import json_lines, read_bounded
from ace_ray.benchmarks.imports import kept
from ace_ray.config import cache_root
from ace_ray.errors import UserError
from ace_ray.local_files import folder_of
from ace_ray.records import Entry, digest

BENCHMARK = "acebench"
MINI = Path(__file__).parents[1] / "mini"
GET_DATA = "run `ace-ray data pull acebench` or `ace-ray data import acebench PATH`"

Rows = dict[str, tuple[str, dict[str, Any]]]
"""By id: where the row stands (file:line) and the row without its id."""


def load(
    folder: Path,
    *,
    languages: Sequence[str] = LANGUAGES,
    categories: Sequence[str] = CATEGORIES,
) -> list[Entry]:
    """Entries by language, category and line. Raises `UserError` naming the file and line at fault.

    ``gold`` is the row's ground truth; for agent categories an object with ``ground_truth`` and
    ``mile_stone``.
    """
    _known("language", languages, LANGUAGES)
    _known("category", categories, CATEGORIES)
    return [
        entry
        for language in languages
        for category in categories
        for entry in _load_category(folder, language, category)
    ]


def data_hash(entries: Iterable[Entry]) -> str:
    """SHA-256 (hex) over the contents of the entries, whatever their order."""
    return digest(sorted(entry.content_hash() for entry in entries))


def files_of(language: str, category: str) -> tuple[str, str]:
    """The question file and the answer file, relative to the data folder."""
    name = f"data_{category}.json"
    return f"data_{language}/{name}", f"data_{language}/possible_answer/{name}"


def imports_folder(cache: Path | None = None) -> Path:
    """The folder that holds one folder per imported version."""
    return (cache or cache_root()) / "data" / BENCHMARK


def locate(name: str) -> Path:
    """The folder a config's ``data:`` names.

    ``mini``, ``imported`` (the only import), ``imported:<version>``, or the path of a folder with
    ``data_en`` or ``data_zh`` in it.
    """
    if name == "mini":
        return MINI
    if name == "imported" or name.startswith("imported:"):
        return kept(imports_folder(), name.partition(":")[2], GET_DATA)
    folder = folder_of(name, "data")
    if not name or not folder.is_dir():
        raise UserError(
            f"{name!r} is neither mini, imported, imported:<version> nor a folder",
            where="data",
            fix=GET_DATA,
        )
    if (folder / "data_all").is_dir():
        raise UserError(
            f"{name} is a checkout of the official repository",
            where="data",
            fix=f"run `ace-ray data import acebench {name}` and write `data: imported`",
        )
    if not any((folder / f"data_{language}").is_dir() for language in LANGUAGES):
        raise UserError(f"{name} has no data_en or data_zh in it", where="data", fix=GET_DATA)
    return folder


def _known(kind: str, asked: Sequence[str], known: Sequence[str]) -> None:
    for name in asked:
        if name not in known:
            raise UserError(f"unknown {kind} {name!r}", fix=f"write one of {', '.join(known)}")


def _load_category(folder: Path, language: str, category: str) -> list[Entry]:
    question_file, answer_file = (folder / name for name in files_of(language, category))
    questions, answers = _read(question_file), _read(answer_file)
    _same_ids(questions, answers, answer_file)
    _same_ids(answers, questions, question_file)
    entries = []
    for row_id, (where, question) in questions.items():
        check_question(where, category, row_id, question)
        answer_where, answer = answers[row_id]
        gold = gold_of(answer_where, category, answer)
        group = dialogue(category, row_id)
        entries.append(Entry(BENCHMARK, category, language, row_id, question, gold, group))
    return entries


def _same_ids(rows: Rows, others: Rows, other_file: Path) -> None:
    for row_id, (where, _) in rows.items():
        if row_id not in others:
            raise UserError(
                f"id {row_id!r} is not in {other_file}",
                where=where,
                fix="every id needs one question and one answer",
            )


def _read(path: Path) -> Rows:
    if not path.is_file():
        raise UserError("no such file", where=str(path), fix=GET_DATA)
    rows: Rows = {}
    for number, row in json_lines(read_bounded(path), path):
        where = f"{path}:{number}"
        row_id = row.pop("id", None)
        if not isinstance(row_id, str) or not row_id:
            raise UserError('"id" is missing or not a text', where=where)
        if row_id in rows:
            raise UserError(f"id {row_id!r} is already used in {rows[row_id][0]}", where=where)
        rows[row_id] = (where, row)
    return rows
