"""The published rows as entries: questions and answers joined by id, each shape checked.

The rules are those of upstream's ``utils.py`` (``load_dataset_entry`` and what it calls). Memory
and web search have one file of questions and answers for several categories: they are joined by the
ids in the files, and then get an id for each category (``memory_0-customer-0`` becomes
``memory_kv_0-customer-0``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.bfcl.categories import (
    CATEGORIES,
    FORMAT_SENSITIVITY,
    MEMORY,
    MULTI_TURN,
    SINGLE_TURN,
    WEB_SEARCH,
    language_of,
)
from ace_ray.benchmarks.bfcl.data import layout, shapes
from ace_ray.benchmarks.bfcl.data.copy import BENCHMARK, Copy
from ace_ray.benchmarks.bfcl.forms import FORMS
from ace_ray.benchmarks.dataset import (
    Rows,
    check_joined,
    json_lines,
    json_value,
    need,
    rows_by_id,
)
from ace_ray.errors import UserError
from ace_ray.records import Entry

Docs = dict[str, list[dict[str, Any]]]
Made = tuple[str, dict[str, Any], Any]
"""Id, data and gold of an entry."""


def load(copy: Copy, categories: Sequence[str] = CATEGORIES) -> list[Entry]:
    """Entries by category and line. Raises `UserError` naming the file and line at fault."""
    for category in categories:
        if category not in CATEGORIES:
            raise UserError(
                f"unknown category {category!r}", fix=f"write one of {', '.join(CATEGORIES)}"
            )
    reader = _Reader(copy)
    return [entry for category in categories for entry in reader.entries(category)]


def function_docs(copy: Copy) -> Docs:
    """The functions of each class as published, by the class's name in the rows."""
    files = layout.MINI_DOC_FILES if copy.kind == "mini" else layout.DOC_FILES
    docs: Docs = {}
    for name, file in files.items():
        docs[name] = []
        path = layout.doc_file(file)
        for where, row in json_lines(copy.read(path), copy.where(path)):
            need(where, {"function": row}, function=shapes.FUNCTION)
            docs[name].append(row)
    return docs


def prerequisites(copy: Copy) -> dict[str, list[dict[str, Any]]]:
    """The conversations before each memory scenario's questions, in the order they are held:
    ``{"id", "question": [[messages] per turn]}``. Ids are as published, the same for all backends.
    """
    found = {}
    for scenario in layout.SCENARIOS:
        path = layout.prerequisite_file(scenario)
        if copy.kind == "mini" and not copy.has(path):
            continue
        rows = _read(copy, path)
        for where, row in rows.values():
            need(where, row, question=shapes.TURNS)
        found[scenario] = [
            {"id": row_id, "question": row["question"]} for row_id, (_, row) in rows.items()
        ]
    return found


class _Reader:
    """Reads each file once, however many categories are made of it."""

    def __init__(self, copy: Copy) -> None:
        self._copy = copy
        self._classes: Docs = {}
        self._made: dict[str, list[Made]] = {}

    def entries(self, category: str) -> list[Entry]:
        return [
            Entry(BENCHMARK, category, "en", row_id, data, gold, row_id)
            for row_id, data, gold in self._category(category)
        ]

    def _category(self, category: str) -> list[Made]:
        if category not in self._made:
            kinds: Mapping[Sequence[str], Callable[[str], list[Made]]] = {
                SINGLE_TURN: self._single,
                MULTI_TURN: self._multi_turn,
                MEMORY: self._memory,
                WEB_SEARCH: self._web_search,
                (FORMAT_SENSITIVITY,): self._format_sensitivity,
            }
            make = next(make for names, make in kinds.items() if category in names)
            self._made[category] = make(category)
        return self._made[category]

    def _single(self, category: str) -> list[Made]:
        hinted_types = language_of(category) != "python"
        made = []
        for row_id, where, row, answer in self._joined(category):
            shapes.check_single(where, row, hinted_types=hinted_types)
            gold = None
            if answer is not None:
                need(answer[0], answer[1], ground_truth=shapes.GOLD_CALLS)
                gold = answer[1]["ground_truth"]
            made.append((row_id, {key: row[key] for key in ("question", "function")}, gold))
        return made

    def _multi_turn(self, category: str) -> list[Made]:
        classes = self._classes = self._classes or function_docs(self._copy)
        made = []
        for row_id, where, row, answer in self._joined(category):
            shapes.check_multi_turn(where, row, classes)
            if category == "multi_turn_miss_func":
                need(where, row, missed_function=shapes.HELD_OUT)
            assert answer is not None
            need(answer[0], answer[1], ground_truth=shapes.CALL_TURNS)
            gold = answer[1]["ground_truth"]
            shapes.check_turn_count(answer[0], row, gold)
            _check_held_out(where, row, classes)
            kept = ("question", "initial_config", "involved_classes", "missed_function")
            made.append((row_id, {key: row[key] for key in kept if key in row}, gold))
        return made

    def _memory(self, category: str) -> list[Made]:
        made = []
        for row_id, where, row, answer in self._joined(category):
            shapes.check_agentic(where, row, scenarios=layout.SCENARIOS)
            data = {
                "question": row["question"],
                "scenario": row["scenario"],
                "involved_classes": [f"MemoryAPI_{category.removeprefix('memory_')}"],
            }
            made.append((row_id.replace("memory", category), data, _acceptable(answer)))
        return made

    def _web_search(self, category: str) -> list[Made]:
        made = []
        for row_id, where, row, answer in self._joined(category):
            shapes.check_agentic(where, row)
            data = {
                "question": row["question"],
                "involved_classes": ["WebSearchAPI"],
                "show_snippet": "no_snippet" not in category,
            }
            made.append((row_id.replace("web_search", category), data, _acceptable(answer)))
        return made

    def _format_sensitivity(self, category: str) -> list[Made]:
        made: list[Made] = []
        for original, ids in _format_ids(self._copy).items():
            rows = self._category(original)
            where = self._copy.where(layout.FORMAT_IDS)
            if unknown := set(ids) - {row_id for row_id, _, _ in rows}:
                raise UserError(f"{original} has no {min(unknown)!r}", where=where)
            for row_id, data, gold in rows:  # upstream keeps the order of the rows, not of the ids
                if row_id in ids:
                    for form in FORMS:
                        made.append((f"{category}_{len(made)}:{form}:{row_id}", data, gold))
        return made

    def _joined(
        self, category: str
    ) -> list[tuple[str, str, dict[str, Any], tuple[str, dict[str, Any]] | None]]:
        """Id, place and row of each question, with the place and row of its answer."""
        question_path, answer_path = layout.question_file(category), layout.answer_file(category)
        questions = _read(self._copy, question_path)
        answers = _read(self._copy, answer_path) if answer_path else {}
        if answer_path:
            where = self._copy.where
            check_joined(questions, where(question_path), answers, where(answer_path))
        return [
            (row_id, where, row, answers.get(row_id)) for row_id, (where, row) in questions.items()
        ]


def _acceptable(answer: tuple[str, dict[str, Any]] | None) -> dict[str, Any]:
    assert answer is not None
    need(answer[0], answer[1], ground_truth=shapes.TEXTS)
    return {"ground_truth": answer[1]["ground_truth"]}


def _check_held_out(where: str, row: Mapping[str, Any], classes: Docs) -> None:
    offered = {doc["name"] for name in row["involved_classes"] for doc in classes[name]}
    for names in row.get("missed_function", {}).values():
        for name in names:
            if name not in offered:
                raise UserError(f"missed_function names {name!r}, no function of it", where=where)


def _format_ids(copy: Copy) -> dict[str, list[str]]:
    where = copy.where(layout.FORMAT_IDS)
    found = json_value(copy.read(layout.FORMAT_IDS), where)
    if not isinstance(found, dict) or not found.keys() <= set(SINGLE_TURN):
        raise UserError("is not an object of ids by single-turn category", where=where)
    need(where, found, **{category: shapes.TEXTS for category in found})
    return found


def _read(copy: Copy, path: str) -> Rows:
    return rows_by_id(copy.read(path), copy.where(path))
