"""The published rows as entries: questions and answers joined by id, each shape checked.

Layout, as published: ``data_<lang>/data_<category>.json`` holds one question per line,
``data_<lang>/possible_answer/data_<category>.json`` the answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ace_ray.benchmarks import dataset
from ace_ray.benchmarks.acebench.categories import CATEGORIES, LANGUAGES, dialogue
from ace_ray.benchmarks.acebench.data.shapes import check_question, gold_of
from ace_ray.benchmarks.dataset import Rows, check_joined, read_bounded, rows_by_id
from ace_ray.errors import UserError
from ace_ray.records import Entry

BENCHMARK = "acebench"
MINI = Path(__file__).parents[1] / "mini"
GET_DATA = "run `ace-ray data pull acebench` or `ace-ray data import acebench PATH`"


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


def files_of(language: str, category: str) -> tuple[str, str]:
    """The question file and the answer file, relative to the data folder."""
    name = f"data_{category}.json"
    return f"data_{language}/{name}", f"data_{language}/possible_answer/{name}"


def locate(name: str) -> Path:
    """The folder a config's ``data:`` names.

    ``mini``, ``imported`` (the only import), ``imported:<version>``, or the path of a folder with
    ``data_en`` or ``data_zh`` in it.
    """
    return dataset.locate(name, BENCHMARK, mini=MINI, get_data=GET_DATA, check=_check_folder)


def _check_folder(folder: Path) -> None:
    if (folder / "data_all").is_dir():
        raise UserError(
            f"{folder} is a checkout of the official repository",
            where="data",
            fix=f"run `ace-ray data import acebench {folder}` and write `data: imported`",
        )
    if not any((folder / f"data_{language}").is_dir() for language in LANGUAGES):
        raise UserError(f"{folder} has no data_en or data_zh in it", where="data", fix=GET_DATA)


def _known(kind: str, asked: Sequence[str], known: Sequence[str]) -> None:
    for name in asked:
        if name not in known:
            raise UserError(f"unknown {kind} {name!r}", fix=f"write one of {', '.join(known)}")


def _load_category(folder: Path, language: str, category: str) -> list[Entry]:
    question_file, answer_file = (folder / name for name in files_of(language, category))
    questions, answers = _read(question_file), _read(answer_file)
    check_joined(questions, question_file, answers, answer_file)
    entries = []
    for row_id, (where, question) in questions.items():
        check_question(where, category, row_id, question)
        answer_where, answer = answers[row_id]
        gold = gold_of(answer_where, category, answer)
        group = dialogue(category, row_id)
        entries.append(Entry(BENCHMARK, category, language, row_id, question, gold, group))
    return entries


def _read(path: Path) -> Rows:
    if not path.is_file():
        raise UserError("no such file", where=str(path), fix=GET_DATA)
    return rows_by_id(read_bounded(path), path)
