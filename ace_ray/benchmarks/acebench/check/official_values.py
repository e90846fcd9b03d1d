"""How the official evaluator compares one argument with its gold value.

Facts of ``model_eval/checker.py`` and ``model_eval/utils.py`` at upstream commit 56dd66c, restated.
``prints`` says whether a value may be too long an integer to print, where upstream prints it.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

_DROPPED = str.maketrans("", "", " ,./-_*^")


class Outcome(enum.Enum):
    """What the type check decides; UNCHECKED accepts without looking at the value."""

    WRONG = enum.auto()
    COMPARE = enum.auto()
    UNCHECKED = enum.auto()


def type_outcome(
    value: Any, gold: Any, expected: type, inner: type | None, prints: bool
) -> Outcome:
    """Whether the type of ``value`` passes.

    ``expected`` is the schema's type and ``inner`` that of its elements, for containers. A gold
    value "" has no type. A gold value of another type than the schema's leaves the value unchecked.
    The strings true and false count as booleans here, and only here.
    """
    gold_type = None if gold == "" else type(gold)
    as_schema = Outcome.COMPARE if gold_type in (None, expected) else Outcome.UNCHECKED
    if value == "true":
        value = True
    elif value == "false":
        value = False
    elements: Any = value
    if type(value) is expected:
        if inner is None:
            return as_schema
        # The first element of the gold container decides, unless it is a list; with no element
        # the type is wrong, whatever the value.
        for item in gold:
            if type(item) is not list or all(
                type_outcome(element, item, inner, None, prints) is not Outcome.WRONG
                for element in elements
            ):
                return as_schema
        if prints:
            repr(elements)
        return Outcome.WRONG
    if gold_type is not None and (type(value) is gold_type or gold == value):
        return Outcome.UNCHECKED
    return Outcome.WRONG


def _loose(text: str) -> str:
    # In this order: how a Greek sigma is lowered depends on what stands around it.
    return text.translate(_DROPPED).lower().replace("'", '"')


def _loose_if_text(value: Any) -> Any:
    return _loose(value) if type(value) is str else value


def contains(value: str, gold: str) -> bool:
    """Strings: without space , . / - _ * ^ and case, the gold text is part of the model's."""
    return _loose(gold) in _loose(value)


def compare_list(value: Sequence[Any], gold: Sequence[Any], prints: bool) -> str | None:
    """Lists of other things than objects: equal, in order, strings at the top level loosely."""
    differs = [_loose_if_text(item) for item in value] != [_loose_if_text(item) for item in gold]
    if differs and prints:
        repr(value)
    return "value_error:list/tuple" if differs else None


def compare_objects(value: Sequence[Any], gold: Sequence[Any], prints: bool) -> str | None:
    """Lists of objects: as many, each like its gold object, in order."""
    if len(value) != len(gold):
        if prints:
            str(value)
        return "value_error:list_dict_count"
    for item, gold_item in zip(value, gold, strict=True):
        if object_differs(item, gold_item, prints):
            return "value_error"
    return None


def object_differs(value: Any, gold: Any, prints: bool) -> bool:
    """Objects: the same keys, inner objects likewise; every other gold value, printed, is part of
    the model's value, printed (strings loosely, the strings true and false as booleans)."""
    differs = not isinstance(value, dict) or len(value) != len(gold.keys())
    if not differs:
        for key, item in value.items():
            if item == "true":
                item = True
            elif item == "false":
                item = False
            if key not in gold:
                differs = True
                break
            gold_item = gold[key]
            if isinstance(gold_item, dict):
                if object_differs(item, gold_item, prints):
                    return True
            elif str(_loose_if_text(gold_item)) not in str(_loose_if_text(item)):
                differs = True
                break
    if differs and prints:
        str(value)
    return differs
