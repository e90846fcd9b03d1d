"""Load the published rows as entries: join questions and answers by id, check their shape.

Published layout: ``data_<lang>/data_<category>.json`` has one question per line,
``data_<lang>/possible_answer/data_<category>.json`` the answers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ace_ray.benchmarks import dataset
from ace_ray.benchmarks.acebench.options import AGENT, CATEGORIES, LANGUAGES, MULTI_TURN, group_of
from ace_ray.benchmarks.dataset import Rows, check_joined, is_texts, read_bounded, rows_by_id
from ace_ray.errors import UserError
from ace_ray.types import Entry

BENCHMARK = "acebench"
MINI = Path(__file__).parents[1] / "mini"
GET_DATA = "run `ace-ray data pull acebench` or `ace-ray data import acebench PATH`"


def load(
    folder: Path, *, languages: Sequence[str] = LANGUAGES, categories: Sequence[str] = CATEGORIES
) -> list[Entry]:
    """Return the entries, ordered by language, category and line. ``Entry.gold`` is
    ``ground_truth`` of the answer row; in agent categories, a dict with this and ``mile_stone``.

    Raises `UserError` for a missing file and for a row with the wrong shape."""
    return [
        entry
        for language in languages
        for category in categories
        for entry in _load_category(folder, language, category)
    ]


def files_of(language: str, category: str) -> tuple[str, str]:
    """Return the question file and the answer file, relative to the data folder."""
    name = f"data_{category}.json"
    return f"data_{language}/{name}", f"data_{language}/possible_answer/{name}"


def locate(name: str) -> Path:
    """Return the folder that ``name``, the value of the config key ``data``, stands for: ``mini``,
    ``imported`` (the only import), ``imported:<version>``, or the path of a folder.

    Raises `UserError` if there is no such folder, or if it lacks ``data_en`` and ``data_zh``."""
    return dataset.locate(name, BENCHMARK, mini=MINI, get_data=GET_DATA, check=_check_folder)


def _check_folder(folder: Path) -> None:
    if (folder / "data_all").is_dir():
        fix = f"run `ace-ray data import acebench {folder}` and write `data: imported`"
        raise UserError(f"{folder} is a checkout of the official repository", where="data", fix=fix)
    if not any((folder / f"data_{language}").is_dir() for language in LANGUAGES):
        raise UserError(f"{folder} has no data_en or data_zh in it", where="data", fix=GET_DATA)


def _load_category(folder: Path, language: str, category: str) -> list[Entry]:
    question_file, answer_file = (folder / name for name in files_of(language, category))
    questions, answers = _read(question_file), _read(answer_file)
    check_joined(questions, question_file, answers, answer_file)
    entries = []
    for row_id, (location, question) in questions.items():
        check_question(location, category, row_id, question)
        answer_location, answer = answers[row_id]
        gold = gold_of(answer_location, category, answer)
        group = group_of(category, row_id)
        entries.append(Entry(BENCHMARK, category, language, row_id, question, gold, group))
    return entries


def _read(path: Path) -> Rows:
    if not path.is_file():
        raise UserError("no such file", where=str(path), fix=GET_DATA)
    return rows_by_id(read_bounded(path), path)


def _is_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _is_functions(value: Any) -> bool:
    return _is_objects(value) and all(isinstance(item.get("name"), str) for item in value)


def _is_calls(value: Any) -> bool:
    """Return whether ``value`` is ``{function: arguments, ...}`` or a list of such objects."""
    alternatives = value if isinstance(value, list) else [value]
    return bool(alternatives) and all(
        isinstance(calls, dict) and calls and _is_objects(list(calls.values()))
        for calls in alternatives
    )


def _is_named_texts(value: Any) -> bool:
    if not isinstance(value, dict) or not value:
        return False
    return all(is_texts(texts) and texts for texts in value.values())


def _is_milestones(value: Any) -> bool:
    """Return whether ``value`` is a list of steps (the ideal path), or a list of such lists."""
    if not isinstance(value, list) or not value:
        return False
    return is_texts(value) or all(is_texts(path) and path for path in value)


def _is_state(value: Any) -> bool:
    """Return whether ``value`` is ``[{class: {attribute: value}}, ...]`` and not empty."""
    return (
        bool(value)
        and _is_objects(value)
        and all(len(app) == 1 and _is_objects([*app.values()]) for app in value)
    )


# Name of a shape in error messages, and a function that tests for it.
Shape = tuple[str, Callable[[Any], bool]]
TEXT: Shape = ("a string", lambda value: isinstance(value, str))
OBJECT: Shape = ("an object", lambda value: isinstance(value, dict))
TEXTS: Shape = ("a list of strings", is_texts)
STATE: Shape = ("a list of objects, each one class with its attributes, not empty", _is_state)
FUNCTIONS: Shape = ('a list of objects with a "name"', _is_functions)
CALLS: Shape = ("an object of calls, each an object of arguments, or a list of those", _is_calls)
NAMED_TEXTS: Shape = ("an object of lists of strings, none empty", _is_named_texts)
MILESTONES: Shape = ("a list of steps, or of lists of steps, none empty", _is_milestones)


def _require(location: str, row: dict[str, Any], **shapes: Shape) -> None:
    """Raise `UserError` unless ``row`` has these keys with values of these shapes."""
    for key, (name, fits) in shapes.items():
        if key not in row:
            raise UserError(f'"{key}" is missing', where=location, fix=f"it must be {name}")
        if not fits(row[key]):
            problem = f'"{key}" has the wrong shape ({type(row[key]).__name__})'
            raise UserError(problem, where=location, fix=f"it must be {name}")


def check_question(location: str, category: str, row_id: str, row: dict[str, Any]) -> None:
    """Raise `UserError` unless the row has the fields of its category's prompt."""
    _require(location, row, question=TEXT, function=FUNCTIONS)
    if category in AGENT:
        _require(location, row, initial_config=OBJECT, involved_classes=TEXTS)
    elif category == "normal_preference":
        _require(location, row, profile=TEXT)
    else:
        _require(location, row, time=TEXT)
    if category in MULTI_TURN and not re.fullmatch(r".*_[0-9]+_[0-9]+", row_id):
        problem = f"id {row_id!r} does not contain the numbers of dialogue and turn"
        raise UserError(problem, where=location, fix="end the id in _<dialogue>_<turn>")


def gold_of(location: str, category: str, row: dict[str, Any]) -> Any:
    """Return the gold answer in an answer row. Raises `UserError` if it has the wrong shape."""
    if category in AGENT:
        _require(location, row, ground_truth=STATE, mile_stone=MILESTONES)
        return {"ground_truth": row["ground_truth"], "mile_stone": row["mile_stone"]}
    if category == "special_irrelevant":
        _require(location, row, ground_truth=TEXT)
    elif category.startswith("special_"):
        _require(location, row, ground_truth=NAMED_TEXTS)
    else:
        _require(location, row, ground_truth=CALLS)
    return row["ground_truth"]
