"""Load the published rows as entries: join questions and answers by id, and check their shapes.

The rules follow upstream's ``utils.py`` (``load_dataset_entry`` and its callees). The memory
categories share one file of questions and one of answers, and so do the web search categories.
These rows are joined by the ids in the files, and then get an id for each category
(``memory_0-customer-0`` becomes ``memory_kv_0-customer-0``). A malformed row raises a `UserError`
that names the file, the line and the expected form."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from ace_ray.benchmarks.bfcl import categories as groups
from ace_ray.benchmarks.bfcl.data.upstream_package import (
    DOC_FILES,
    FORMAT_IDS,
    MINI_DOC_FILES,
    SCENARIOS,
    UPSTREAM,
    UpstreamPackage,
    answer_file,
    doc_file,
    prerequisite_file,
    published_name,
    question_file,
)
from ace_ray.benchmarks.bfcl.decode import read_answer
from ace_ray.benchmarks.bfcl.decode.calls import Answer
from ace_ray.benchmarks.dataset import (
    PartialModel,
    Row,
    Rows,
    check_joined,
    is_texts,
    json_lines,
    json_value,
    parse_tree,
    rows_by_id,
)
from ace_ray.errors import UserError
from ace_ray.parsing.constant_folding import Refusal
from ace_ray.parsing.syntax import NotCalls
from ace_ray.types import Entry

Docs = dict[str, list[dict[str, Any]]]
# Id, data and gold of an entry.
Record = tuple[str, dict[str, Any], Any]
# Location and content of an answer's row.
Line = tuple[str, Row]


def load(package: UpstreamPackage, categories: Sequence[str] = groups.CATEGORIES) -> list[Entry]:
    """Load the entries of ``categories`` in order. Raises `UserError` for an invalid row."""
    for category in categories:
        if category not in groups.ALL_CATEGORIES:
            fix = f"write one of {', '.join(groups.ALL_CATEGORIES)}"
            raise UserError(f"unknown category {category!r}", fix=fix)
    reader = _Reader(package)
    return [entry for category in categories for entry in reader.entries(category)]


def function_docs(package: UpstreamPackage) -> Docs:
    """Return the published documentation of each class's functions, by class name."""
    files = MINI_DOC_FILES if package.is_mini else DOC_FILES
    docs: Docs = {}
    for name, file in files.items():
        docs[name] = []
        path = doc_file(file)
        for location, row in json_lines(package.read(path), package.full_path(path)):
            parse_tree(FunctionDoc, row, location)
            docs[name].append(row)
    return docs


def prerequisites(package: UpstreamPackage) -> dict[str, list[dict[str, Any]]]:
    """Return ``{scenario: conversations}``: the conversations that fill the scenario's memory, in
    order.

    A conversation is ``{"id", "question": [[messages] per turn]}``, for all kinds of memory."""
    conversations = {}
    for scenario in SCENARIOS:
        path = prerequisite_file(scenario)
        if package.is_mini and not package.has(path):
            continue
        rows = rows_by_id(package.read(path), package.full_path(path))
        for location, row in rows.values():
            parse_tree(TurnsRow, row, location)
        conversations[scenario] = [
            {"id": row_id, "question": row["question"]} for row_id, (_, row) in rows.items()
        ]
    return conversations


class _Reader:
    """Builds the entries of categories; format sensitivity reuses rows of other categories."""

    def __init__(self, package: UpstreamPackage) -> None:
        self._package = package
        self._records: dict[str, list[Record]] = {}

    def entries(self, category: str) -> list[Entry]:
        return [
            Entry(UPSTREAM.benchmark, category, "en", row_id, data, gold, row_id)
            for row_id, data, gold in self._category(category)
        ]

    def _category(self, category: str) -> list[Record]:
        if category not in self._records:
            if category == groups.FORMAT_SENSITIVITY:
                self._records[category] = self._format_sensitivity(category)
            else:
                make = next(make for names, make in _MAKERS.items() if category in names)
                self._records[category] = [
                    make(category, *row) for row in self._joined_rows(category)
                ]
        return self._records[category]

    def _format_sensitivity(self, category: str) -> list[Record]:
        records: list[Record] = []
        for original, ids in _format_ids(self._package).items():
            rows = self._category(original)
            location = self._package.full_path(FORMAT_IDS)
            if unknown := set(ids) - {row_id for row_id, _, _ in rows}:
                raise UserError(f"{original} has no entry {min(unknown)!r}", where=location)
            for row_id, data, gold in rows:  # upstream keeps the order of the rows, not of the ids
                if row_id in ids:
                    for form in groups.FORMS:
                        records.append((f"{category}_{len(records)}:{form}:{row_id}", data, gold))
        return records

    def _joined_rows(self, category: str) -> list[tuple[str, str, Row, Line | None]]:
        """Return (id, location, row, answer) of each question; answer: (location, row) or None."""
        question_path, answer_path = question_file(category), answer_file(category)
        questions = self._rows(category, question_path)
        answers = self._rows(category, answer_path) if answer_path else {}
        if answer_path:
            locate = self._package.full_path
            check_joined(questions, locate(question_path), answers, locate(answer_path))
        return [
            (key, location, row, answers.get(key)) for key, (location, row) in questions.items()
        ]

    def _rows(self, category: str, path: str) -> Rows:
        """Read a file's rows by id. Convert rows of `UNUSED` categories to the usual form."""
        raw, location = self._package.read(path), self._package.full_path(path)
        if category == groups.CHATABLE:
            return {
                f"{category}_{number}": (line, {"question": [[message]], "function": []})
                for number, (line, row) in enumerate(json_lines(raw, location))
                for message in [{"role": "user", "content": row.get("question")}]
            }
        if category == groups.REST and path == answer_file(groups.REST):
            lines = json_lines(raw, location)
            return {f"{category}_{row.get('idx')}": (line, row) for line, row in lines}
        rows = rows_by_id(raw, location)
        for _, row in rows.values():
            if category == groups.SQL and isinstance(row.get("question"), list):
                row["question"] = [row["question"]]  # the messages of the only turn
            config, classes = row.get("initial_config"), row.get("involved_classes")
            if not (isinstance(config, dict) and isinstance(classes, list)):
                continue
            if category == groups.COMPOSITE:
                # Two rows also have states outside a class, which upstream does not read.
                row["initial_config"] = {name: config[name] for name in config if name in classes}
        return rows


def _single_record(
    category: str, row_id: str, location: str, row: Row, answer: Line | None
) -> Record:
    """Make a record of a single-turn row. In REST and EXEC, the gold answer is source of calls."""
    parse_tree(SingleRow, row, location)
    gold = None
    if category in (groups.REST, *groups.EXEC):
        texts = _gold(CallTextGold, answer)
        try:
            gold = _parse_gold([texts] if isinstance(texts, str) else texts, row["function"])
        except (NotCalls, Refusal, LookupError, TypeError) as error:
            problem = f"{row_id!r} has gold calls that cannot be read: {error}"
            raise UserError(problem, where=location) from error
    elif answer is not None:
        gold = _gold(SingleGold, answer)
    return row_id, {key: row[key] for key in ("question", "function")}, gold


def _multi_turn_record(
    category: str, row_id: str, location: str, row: Row, answer: Line | None
) -> Record:
    parse_tree(MultiTurnRow, row, location)
    gold, turns = _gold(MultiTurnGold, answer), len(row["question"])
    if len(gold) != turns:
        problem = f"{row_id!r} has {turns} turns, but its gold calls cover {len(gold)}"
        raise UserError(problem, where=location)
    keys = ("question", "initial_config", "involved_classes", "missed_function")
    return row_id, {key: row[key] for key in keys if key in row}, gold


def _agentic_record(
    category: str, row_id: str, location: str, row: Row, answer: Line | None
) -> Record:
    data: dict[str, Any] = {"question": row["question"]}
    if category in groups.MEMORY:
        parse_tree(MemoryRow, row, location)
        data["scenario"] = row["scenario"]
        data["involved_classes"] = [f"MemoryAPI_{category.removeprefix('memory_')}"]
    else:
        parse_tree(WebSearchRow, row, location)
        data["involved_classes"] = ["WebSearchAPI"]
        data["show_snippet"] = "no_snippet" not in category
    gold = {"ground_truth": _gold(AgenticGold, answer)}
    return row_id.replace(published_name(category), category), data, gold


_MAKERS: Mapping[Sequence[str], Callable[..., Record]] = {
    (*groups.SINGLE_TURN, groups.CHATABLE, groups.SQL, groups.REST, *groups.EXEC): _single_record,
    groups.CONVERSATIONS: _multi_turn_record,
    groups.AGENTIC: _agentic_record,
}


def _parse_gold(texts: Sequence[str], functions: Sequence[Any]) -> list[dict[str, Any]]:
    """Return gold calls in the form of `SingleGold`, with one acceptable value per parameter."""
    names = {doc["name"]: list(doc["parameters"]["properties"]) for doc in functions}
    calls = read_answer(Answer(f"[{', '.join(texts)}]"), groups.DEFAULT, "python")
    gold = []
    for call in calls or ():
        placed = {names[call.name][i]: value() for i, value in call.positional.items()}
        arguments = json.loads(json.dumps({**placed, **call.args}))  # tuples become lists
        gold.append({call.name: {name: [_to_options(value)] for name, value in arguments.items()}})
    return gold


def _to_options(value: Any) -> Any:
    """Return a gold value. In an object, wrap each value in a list, its acceptable values."""
    return {key: [inner] for key, inner in value.items()} if isinstance(value, dict) else value


def _gold(model: type[PartialModel], answer: Line | None) -> Any:
    """Return the ``ground_truth`` of an answer. Raises `UserError` if it does not fit ``model``."""
    assert answer is not None
    location, row = answer
    parse_tree(model, row, location)
    return row["ground_truth"]


def _format_ids(package: UpstreamPackage) -> dict[str, list[str]]:
    location = package.full_path(FORMAT_IDS)
    ids = json_value(package.read(FORMAT_IDS), location)
    if not isinstance(ids, dict) or not ids.keys() <= set(groups.SINGLE_TURN):
        raise UserError("is not an object {single-turn category: ids}", where=location)
    if not all(is_texts(listed) for listed in ids.values()):
        raise UserError("has a category whose value is not a list of ids", where=location)
    return ids


class Message(PartialModel):
    role: Literal["system", "user", "assistant"]
    content: str


class Items(PartialModel):
    type: str | None = None


class Parameter(PartialModel):
    type: str
    description: str | None = None
    items: Items | None = None
    properties: dict[str, Parameter] = Field(default_factory=dict)


class Parameters(PartialModel):
    properties: dict[str, Parameter]
    required: list[str]


class FunctionDoc(PartialModel):
    name: str = Field(min_length=1)
    description: str
    parameters: Parameters


Turn = list[Message]
OneTurn = Annotated[list[Annotated[Turn, Field(min_length=1)]], Field(min_length=1, max_length=1)]
Names = Annotated[list[str], Field(min_length=1)]


class SingleRow(PartialModel):
    question: OneTurn
    function: list[FunctionDoc]


class TurnsRow(PartialModel):
    question: list[Turn] = Field(min_length=1)


class MultiTurnRow(TurnsRow):
    initial_config: dict[str, dict[str, Any]]
    involved_classes: Names
    missed_function: dict[Annotated[str, Field(pattern="^[0-9]+$")], Names] = Field(
        default_factory=dict
    )


class WebSearchRow(PartialModel):
    question: OneTurn
    involved_classes: Names


class MemoryRow(WebSearchRow):
    scenario: Literal[SCENARIOS]  # type: ignore[valid-type]


class SingleGold(PartialModel):
    # In two published rows, a parameter has an empty list of acceptable values.
    ground_truth: list[
        Annotated[dict[str, dict[str, list[Any]]], Field(min_length=1, max_length=1)]
    ] = Field(min_length=1)


class CallTextGold(PartialModel):
    ground_truth: str | Names


class MultiTurnGold(PartialModel):
    ground_truth: list[list[str]] = Field(min_length=1)


class AgenticGold(PartialModel):
    ground_truth: Names
