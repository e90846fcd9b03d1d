"""The strict verdict on an agent row: the paper's and the task author's definition.

End to end, all recorded attributes of all involved classes must equal the gold state; the process
accuracy is n / m, n the calls that agree with the ideal path one by one until the first that does
not, m the length of the path (the best of alternative paths).
"""

from __future__ import annotations

from typing import Any

from ace_ray.benchmarks.acebench.check.agent_causes import cause
from ace_ray.benchmarks.acebench.check.agent_paths import CALL_ERRORS, Made, Path, made, paths
from ace_ray.benchmarks.acebench.check.agent_values import same_call, same_value
from ace_ray.records import Entry, Verdict

REAL_NAMES = {"BaseAPI": "BaseApi", "ReminderAPI": "ReminderApi", "Reminderpi": "ReminderApi"}
"""Misspelt classes in the published gold states."""


def judge(entry: Entry, result: Any, process: Any, *, end: Any, steps: Any) -> Verdict:
    """The verdict on the state ``end``, or ``result`` where it is None, and on the calls made.

    Classes are matched by name, in any order, each once. Values are equal as JSON values: numbers
    by value, ``true`` is not ``1``, lists in order, objects with the same keys. The gold states
    have every recorded attribute of every involved class. Metrics: ``end_to_end`` (0 or 1) and
    ``process_accuracy``, of the calls that `made` finds. The error type is the error's `cause`.
    Never raises.
    """
    ideal = paths(entry.gold["mile_stone"])
    calls = made(process, steps)
    accuracy = max(_matched(calls, path) / max(len(path), 1) for path in ideal)
    fault = _difference(entry.gold["ground_truth"], result if end is None else end)
    metrics = {"end_to_end": int(not fault), "process_accuracy": accuracy}
    if not fault:
        return Verdict(True, metrics=metrics)
    kind, why = cause(entry, calls, ideal)
    return Verdict(False, kind, f"{fault}; {why}", metrics)


def _matched(calls: list[Made], path: Path) -> int:
    n = 0
    for one, step in zip(calls, path, strict=False):
        if one.error in CALL_ERRORS or not same_call(one.call, step):
            break
        n += 1
    return n


def _difference(gold: list[dict[str, Any]], state: Any) -> str:
    """The first thing in which the state is not the gold state, "" when there is none."""
    if not isinstance(state, list) or not all(isinstance(found, dict) for found in state):
        return "the state is not a list of classes"
    classes = [(name, attributes) for found in state for name, attributes in found.items()]
    target = {REAL_NAMES.get(n, n): attributes for one in gold for n, attributes in one.items()}
    if sorted(name for name, _ in classes) != sorted(target):
        return f"the classes are not {', '.join(target)}"
    for name, attributes in classes:
        if not isinstance(attributes, dict) or attributes.keys() != target[name].keys():
            return f"{name} has not the attributes {', '.join(target[name])}"
        for attribute, value in target[name].items():
            if not same_value(attributes[attribute], value):
                return f"{name}.{attribute} is not as it should be"
    return ""
