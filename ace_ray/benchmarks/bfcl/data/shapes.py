"""What a row of each file must look like, so that nothing later meets another shape.

Wrong rows are a `UserError` that names the file, the line and what was expected.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ace_ray.benchmarks.dataset import Row, Shape, is_texts, need
from ace_ray.errors import UserError

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


def check_single(where: str, row: Row, *, hinted_types: bool) -> None:
    """Raise `UserError` unless the row has the question and functions of a single-turn category."""
    need(where, row, question=ONE_TURN, function=FUNCTIONS)
    if hinted_types:
        need(where, row, function=HINTABLE)


def check_multi_turn(where: str, row: Row, classes: Mapping[str, Any]) -> None:
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


def check_agentic(where: str, row: Row, *, scenarios: tuple[str, ...] = ()) -> None:
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


def check_turn_count(where: str, question: Row, gold: Any) -> None:
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
