"""Whether two sets of tool instances are in the same state (upstream ``multi_turn_checker.py``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def difference(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """The first attribute, as ``Class.attribute``, that differs between instances of the same
    classes; "" if none does. Attributes with a leading underscore are no state.

    ``theirs`` is the answer key's side: comparing never costs more than it holds. Values that
    cannot be compared, which crash upstream, differ.
    """
    for name, instance in theirs.items():
        for key, value in vars(instance).items():
            if not key.startswith("_") and not _same(vars(ours[name]), key, value):
                return f"{name}.{key}"
    return ""


def _same(attributes: Mapping[str, Any], key: str, value: Any) -> bool:
    try:
        return key in attributes and bool(attributes[key] == value)
    except Exception:  # noqa: BLE001  # e.g. endless recursion in a directory that holds itself
        return False
