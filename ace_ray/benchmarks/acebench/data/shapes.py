"""What a question row and an answer row must look like, per kind of category."""

from __future__ import annotations

import re
from typing import Any

from ace_ray.benchmarks.acebench.categories import AGENT, MULTI_TURN
from ace_ray.benchmarks.dataset import Shape, is_texts, need
from ace_ray.errors import UserError


def _objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _functions(value: Any) -> bool:
    return _objects(value) and all(isinstance(item.get("name"), str) for item in value)


def _calls(value: Any) -> bool:
    """One object of calls, or a list of such objects that are all right answers."""
    alternatives = value if isinstance(value, list) else [value]
    return bool(alternatives) and all(
        isinstance(calls, dict) and calls and _objects(list(calls.values()))
        for calls in alternatives
    )


def _named_texts(value: Any) -> bool:
    if not isinstance(value, dict) or not value:
        return False
    return all(is_texts(texts) and texts for texts in value.values())


def _milestones(value: Any) -> bool:
    """The steps of the ideal path, or a list of alternative paths."""
    if not isinstance(value, list) or not value:
        return False
    return is_texts(value) or all(is_texts(path) and path for path in value)


def _state(value: Any) -> bool:
    """``[{class: {attribute: value}}, ...]``."""
    return (
        bool(value)
        and _objects(value)
        and all(len(one) == 1 and _objects([*one.values()]) for one in value)
    )


TEXT: Shape = ("a text", lambda value: isinstance(value, str))
OBJECT: Shape = ("an object", lambda value: isinstance(value, dict))
TEXTS: Shape = ("a list of texts", is_texts)
STATE: Shape = ("a list of objects, each one class with its attributes, not empty", _state)
FUNCTIONS: Shape = ('a list of objects with a "name"', _functions)
CALLS: Shape = ("an object of calls, each an object of arguments, or a list of those", _calls)
NAMED_TEXTS: Shape = ("an object of lists of texts, none empty", _named_texts)
MILESTONES: Shape = ("a list of steps, or of lists of steps, none empty", _milestones)


def check_question(where: str, category: str, row_id: str, row: dict[str, Any]) -> None:
    """Raise `UserError` unless the row has what the category's prompt is made of."""
    need(where, row, question=TEXT, function=FUNCTIONS)
    if category in AGENT:
        need(where, row, initial_config=OBJECT, involved_classes=TEXTS)
    elif category == "normal_preference":
        need(where, row, profile=TEXT)
    else:
        need(where, row, time=TEXT)
    if category in MULTI_TURN and not re.fullmatch(r".*_[0-9]+_[0-9]+", row_id):
        raise UserError(
            f"id {row_id!r} does not say which dialogue the row is a turn of",
            where=where,
            fix="end the id in _<dialogue>_<turn>",
        )


def gold_of(where: str, category: str, row: dict[str, Any]) -> Any:
    """The gold answer in an answer row. Raises `UserError` when it has the wrong shape."""
    if category in AGENT:
        need(where, row, ground_truth=STATE, mile_stone=MILESTONES)
        return {"ground_truth": row["ground_truth"], "mile_stone": row["mile_stone"]}
    if category == "special_irrelevant":
        need(where, row, ground_truth=TEXT)
    elif category.startswith("special_"):
        need(where, row, ground_truth=NAMED_TEXTS)
    else:
        need(where, row, ground_truth=CALLS)
    return row["ground_truth"]
