"""The published rows as entries: questions and answers joined by id, each shape checked.

The rules are those of upstream's ``utils.py`` (``load_dataset_entry`` and what it calls). Memory
and web search have one file of questions and answers for several categories: they are joined by the
ids in the files, and then get an id for each category (``memory_0-customer-0`` becomes
``memory_kv_0-customer-0``). Wrong rows are a `UserError` that names the file, the line and what was
expected.
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
    question_file,
)
from ace_ray.benchmarks.bfcl.forms import FORMS
from ace_ray.benchmarks.dataset import (
    Row,
    Rows,
    Shape,
    check_joined,
    is_texts,
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


def load(package: UpstreamPackage, categories: Sequence[str] = CATEGORIES) -> list[Entry]:
    """Entries by category and line. Raises `UserError` naming the file and line at fault."""
    for category in categories:
        if category not in CATEGORIES:
            raise UserError(
                f"unknown category {category!r}", fix=f"write one of {', '.join(CATEGORIES)}"
            )
    reader = _Reader(package)
    return [entry for category in categories for entry in reader.entries(category)]


def function_docs(package: UpstreamPackage) -> Docs:
    """The functions of each class as published, by the class's name in the rows."""
    files = MINI_DOC_FILES if package.is_mini else DOC_FILES
    docs: Docs = {}
    for name, file in files.items():
        docs[name] = []
        path = doc_file(file)
        for where, row in json_lines(package.read(path), package.where(path)):
            need(where, {"function": row}, function=FUNCTION)
            docs[name].append(row)
    return docs


def prerequisites(package: UpstreamPackage) -> dict[str, list[dict[str, Any]]]:
    """The conversations before each memory scenario's questions, in the order they are held:
    ``{"id", "question": [[messages] per turn]}``. Ids are as published, the same for all backends.
    """
    conversations = {}
    for scenario in SCENARIOS:
        path = prerequisite_file(scenario)
        if package.is_mini and not package.has(path):
            continue
        rows = _read(package, path)
        for where, row in rows.values():
            need(where, row, question=TURNS)
        conversations[scenario] = [
            {"id": row_id, "question": row["question"]} for row_id, (_, row) in rows.items()
        ]
    return conversations


class _Reader:
    """Reads each file once, however many categories are made of it."""

    def __init__(self, package: UpstreamPackage) -> None:
        self._package = package
        self._classes: Docs = {}
        self._made: dict[str, list[Made]] = {}

    def entries(self, category: str) -> list[Entry]:
        return [
            Entry(UPSTREAM.benchmark, category, "en", row_id, data, gold, row_id)
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
            _check_single(where, row, hinted_types=hinted_types)
            gold = None
            if answer is not None:
                need(answer[0], answer[1], ground_truth=GOLD_CALLS)
                gold = answer[1]["ground_truth"]
            made.append((row_id, {key: row[key] for key in ("question", "function")}, gold))
        return made

    def _multi_turn(self, category: str) -> list[Made]:
        classes = self._classes = self._classes or function_docs(self._package)
        made = []
        for row_id, where, row, answer in self._joined(category):
            _check_multi_turn(where, row, classes)
            if category == "multi_turn_miss_func":
                need(where, row, missed_function=HELD_OUT)
            assert answer is not None
            need(answer[0], answer[1], ground_truth=CALL_TURNS)
            gold = answer[1]["ground_truth"]
            _check_turn_count(answer[0], row, gold)
            _check_held_out(where, row, classes)
            kept = ("question", "initial_config", "involved_classes", "missed_function")
            made.append((row_id, {key: row[key] for key in kept if key in row}, gold))
        return made

    def _memory(self, category: str) -> list[Made]:
        made = []
        for row_id, where, row, answer in self._joined(category):
            _check_agentic(where, row, scenarios=SCENARIOS)
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
            _check_agentic(where, row)
            data = {
                "question": row["question"],
                "involved_classes": ["WebSearchAPI"],
                "show_snippet": "no_snippet" not in category,
            }
            made.append((row_id.replace("web_search", category), data, _acceptable(answer)))
        return made

    def _format_sensitivity(self, category: str) -> list[Made]:
        made: list[Made] = []
        for original, ids in _format_ids(self._package).items():
            rows = self._category(original)
            where = self._package.where(FORMAT_IDS)
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
        question_path, answer_path = question_file(category), answer_file(category)
        questions = _read(self._package, question_path)
        answers = _read(self._package, answer_path) if answer_path else {}
        if answer_path:
            where = self._package.where
            check_joined(questions, where(question_path), answers, where(answer_path))
        return [
            (row_id, where, row, answers.get(row_id)) for row_id, (where, row) in questions.items()
        ]


def _acceptable(answer: tuple[str, dict[str, Any]] | None) -> dict[str, Any]:
    assert answer is not None
    need(answer[0], answer[1], ground_truth=TEXTS)
    return {"ground_truth": answer[1]["ground_truth"]}


def _check_held_out(where: str, row: Mapping[str, Any], classes: Docs) -> None:
    offered = {doc["name"] for name in row["involved_classes"] for doc in classes[name]}
    for names in row.get("missed_function", {}).values():
        for name in names:
            if name not in offered:
                raise UserError(f"missed_function names {name!r}, no function of it", where=where)


def _format_ids(package: UpstreamPackage) -> dict[str, list[str]]:
    where = package.where(FORMAT_IDS)
    ids = json_value(package.read(FORMAT_IDS), where)
    if not isinstance(ids, dict) or not ids.keys() <= set(SINGLE_TURN):
        raise UserError("is not an object of ids by single-turn category", where=where)
    need(where, ids, **{category: TEXTS for category in ids})
    return ids


def _read(package: UpstreamPackage, path: str) -> Rows:
    return rows_by_id(package.read(path), package.where(path))


ROLES = ("system", "user", "assistant")
_MAX_DEPTH = 16
_CONTAINERS = ("Array", "ArrayList", "array")


def _messages(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(message, dict)
        and message.get("role") in ROLES
        and isinstance(message.get("content"), str)
        for message in value
    )


def _turns(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(_messages(turn) for turn in value)


def _one_turn(value: Any) -> bool:
    return _turns(value) and len(value) == 1 and bool(value[0])


def _held_out(value: Any) -> bool:
    return isinstance(value, dict) and all(
        key.isascii() and key.isdigit() and is_texts(names) and names
        for key, names in value.items()
    )


def _states(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(state, dict) for state in value.values())


def _schema(value: Any, depth: int) -> bool:
    """A parameter: its type is named, and what is nested in it is of the same kind."""
    if not isinstance(value, dict) or depth > _MAX_DEPTH or not _bounded(value, depth):
        return False
    if not isinstance(value.get("type"), str) or not isinstance(value.get("description", ""), str):
        return False
    items = value.get("items", {})
    if not isinstance(items, dict) or not isinstance(items.get("type", ""), str):
        return False
    inner = value.get("properties", {})
    return isinstance(inner, dict) and all(_schema(one, depth + 1) for one in inner.values())


def _bounded(value: Any, depth: int) -> bool:
    if depth > _MAX_DEPTH:
        return False
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return all(_bounded(one, depth + 1) for one in inner)


def _function(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("description"), str):
        return False
    name, parameters = value.get("name"), value.get("parameters")
    if not isinstance(name, str) or not name or not isinstance(parameters, dict):
        return False
    return (
        isinstance(parameters.get("properties"), dict)
        and is_texts(parameters.get("required"))
        and all(_schema(one, 1) for one in parameters["properties"].values())
        and _bounded(value, 0)
    )


def _hintable(value: Any) -> bool:
    """Java's and JavaScript's types move into the descriptions, so these must be there."""
    return all(
        isinstance(schema.get("description"), str)
        and (schema["type"] not in _CONTAINERS or isinstance(schema.get("items"), dict))
        and (schema["type"] not in _CONTAINERS or isinstance(schema["items"].get("type"), str))
        for function in value
        for schema in function["parameters"]["properties"].values()
    )


def _functions(value: Any) -> bool:
    return isinstance(value, list) and all(_function(one) for one in value)


def _gold_calls(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(call, dict) and len(call) == 1 and _gold(call) for call in value)
    )


def _gold(call: Mapping[str, Any]) -> bool:
    (arguments,) = call.values()
    # two published rows have parameters for which nothing is acceptable, so [] is
    return isinstance(arguments, dict) and all(
        isinstance(choices, list) and _bounded(choices, 0) for choices in arguments.values()
    )


def _call_turns(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(is_texts(turn) for turn in value)


TEXT: Shape = ("a text that is not empty", lambda value: isinstance(value, str) and bool(value))
TEXTS: Shape = ("a list of texts, not empty", lambda value: is_texts(value) and bool(value))
ONE_TURN: Shape = ('one list of messages {"role", "content"} in a list', _one_turn)
TURNS: Shape = ('a list of lists of messages {"role", "content"}', _turns)
FUNCTION: Shape = ('an object with "name", "description" and typed "parameters"', _function)
FUNCTIONS: Shape = ('a list of objects with "name", "description", typed "parameters"', _functions)
HINTABLE: Shape = ("a list of functions whose parameters all have a description", _hintable)
STATES: Shape = ("an object with an object for each class", _states)
HELD_OUT: Shape = ("an object of lists of names by the number of a turn", _held_out)
GOLD_CALLS: Shape = (
    "a list of objects {function: {parameter: [acceptable values]}}, not empty",
    _gold_calls,
)
CALL_TURNS: Shape = ("a list of lists of calls as texts", _call_turns)


def _check_single(where: str, row: Row, *, hinted_types: bool) -> None:
    """Raise `UserError` unless the row has the question and functions of a single-turn category."""
    need(where, row, question=ONE_TURN, function=FUNCTIONS)
    if hinted_types:
        need(where, row, function=HINTABLE)


def _check_multi_turn(where: str, row: Row, classes: Mapping[str, Any]) -> None:
    """The same for a multi-turn category, whose classes must be among those that are known."""
    need(where, row, question=TURNS, initial_config=STATES, involved_classes=TEXTS)
    held_out: Mapping[str, Any] = {}
    if "missed_function" in row:
        need(where, row, missed_function=HELD_OUT)
        held_out = row["missed_function"]
    _known_classes(where, row["involved_classes"], classes)
    for number, turn in enumerate(row["question"]):
        if bool(turn) == (str(number) in held_out):
            raise UserError(
                f"turn {number} of the question "
                + ("has messages and functions held out" if turn else "is empty"),
                where=where,
                fix="exactly the turns in missed_function are empty",
            )
    if any(int(key) >= len(row["question"]) for key in held_out):
        raise UserError("missed_function names a turn that there is not", where=where)


def _check_agentic(where: str, row: Row, *, scenarios: tuple[str, ...] = ()) -> None:
    """The same for memory (with its ``scenarios``) and web search."""
    need(where, row, question=ONE_TURN, involved_classes=TEXTS)
    if scenarios:
        need(where, row, scenario=TEXT)
        if row["scenario"] not in scenarios:
            raise UserError(
                f"unknown scenario {row['scenario']!r}",
                where=where,
                fix=f"it must be one of {', '.join(scenarios)}",
            )


def _check_turn_count(where: str, question: Row, gold: Any) -> None:
    """Raise `UserError` unless there are gold calls for each turn."""
    if len(gold) != len(question["question"]):
        raise UserError(
            f"has calls for {len(gold)} turns, and the question has {len(question['question'])}",
            where=where,
        )


def _known_classes(where: str, names: list[str], classes: Mapping[str, Any]) -> None:
    for name in names:
        if name not in classes:
            raise UserError(
                f"involved_classes names {name!r}",
                where=where,
                fix=f"it must be one of {', '.join(classes)}",
            )
