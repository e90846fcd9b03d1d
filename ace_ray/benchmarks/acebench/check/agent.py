"""Judge agent rows: by the official rules in this module, by the strict rules in `agent_strict`.

The official rules reimplement upstream ``eval_main.py`` and ``checker.py`` (56dd66c) with their
faults. The recorded state is compared with the gold state, class by class:

- attributes that are missing, and extra keys inside an attribute, are not noticed;
- ``1``, ``1.0`` and ``True`` are equal;
- a gold class that the state lacks gets the verdict of the gold class before it; the first gold
  class is valid if the state lacks it.

The texts that were sent to execution are compared with the milestones as strings.

Error types: ``wrong number of class``, ``class attributes wrong``, and ``official_crash``: the
official evaluator raises an exception, which ends its complete run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ace_ray.benchmarks.acebench.check import agent_strict
from ace_ray.benchmarks.acebench.options import AGENT
from ace_ray.types import Entry, Verdict

CRASH = "official_crash"
_RAISES = (LookupError, AttributeError, TypeError, ValueError, RecursionError)


def check_agent(
    entry: Entry, result: Any, process: Any, *, end: Any = None, steps: Any = None
) -> dict[str, Verdict]:
    """Return the verdicts of both rule sets on an episode. Arguments are JSON values of any shape.

    Args:
        result: the final state as upstream records it, ``[{class: attributes}, ...]``.
        process: the texts sent to execution. The official rules use only this and ``result``.
        end: the true end state for the strict rules; None if it is ``result``.
        steps: the transcript, read by the strict rules (see `agent_strict.calls_made`).

    ``valid`` is the end-to-end result. Metrics: ``end_to_end`` and ``process_accuracy``. Raises
    `ValueError` if the entry is in no agent category."""
    if entry.category not in AGENT:
        raise ValueError(f"{entry.category} is not an agent category")
    return {
        "official": judge_official(entry.gold, result, process),
        "strict": agent_strict.judge(entry, result, process, end=end, steps=steps),
    }


def judge_official(gold: Mapping[str, Any], result: Any, process: Any) -> Verdict:
    """Return the verdict on a final state and the texts that were sent to execution. Never raises.

    ``gold`` has ``ground_truth`` ([{class: attributes}, ...]) and ``mile_stone`` ([step, ...] or a
    list of such lists). ``result`` should have the shape of ``ground_truth``, and ``process``
    should be a list of strings; other JSON values are accepted. Metrics: ``end_to_end`` (0 or 1)
    and ``process_accuracy`` (always 1 if the row is valid)."""
    kind, error = _state_fault(gold["ground_truth"], result)
    valid = not kind
    accuracy = 1.0
    if not valid:
        try:
            accuracy = _process_accuracy(gold["mile_stone"], process)
        except _RAISES as raised:
            accuracy, kind = 0.0, CRASH
            error = f"{error}; on the process {_crash(raised)}"
    metrics = {"end_to_end": int(valid), "process_accuracy": accuracy}
    return Verdict(valid, kind, error, metrics)


def _state_fault(gold: list[dict[str, Any]], result: Any) -> tuple[str, str]:
    """Return (error type, error), both "" if the state is accepted."""
    kind = "wrong number of class"
    try:
        if len(gold) != len(result):
            return kind, f"{len(result)} classes instead of {len(gold)}"
        kind = "class attributes wrong"
        faults: list[str] = []
        verdict: list[str] = []  # faults of the last class that was compared
        for target in gold:
            same_name = next((state for state in result if state.keys() == target.keys()), None)
            if same_name:
                verdict = _class_faults(same_name, target)
            faults += verdict
    except _RAISES as error:
        return CRASH, _crash(error)
    return (kind, f"{faults[0]} differs") if faults else ("", "")


def _class_faults(state: dict[str, Any], target: dict[str, Any]) -> list[str]:
    name, gold = next(iter(target.items()))
    faults = []
    for attribute, value in next(iter(state.values())).items():
        attribute_path = f"{name}.{attribute[:80]}"
        if attribute not in gold:
            faults.append(attribute_path)
        elif not isinstance(gold[attribute], dict):
            if gold[attribute] != value:
                faults.append(attribute_path)
        else:
            for key, expected in gold[attribute].items():
                if key not in value or expected != value[key]:
                    faults.append(f"{attribute_path}.{key}")
    return faults


def _process_accuracy(milestones: list[Any], process: Any) -> float:
    """Return the share of milestones that ``process`` contains in order. If there are several ideal
    paths, return the share of the best path, rounded to 3 digits."""
    if isinstance(milestones[0], list):
        return max(round(_count_found(path, process) / len(path), 3) for path in milestones)
    return _count_found(milestones, process) / len(milestones)


def _count_found(path: list[str], process: Any) -> int:
    """Count the milestones in ``path`` that ``process`` contains in order. Each search begins where
    the previous search ended. So no milestone after an absent milestone is found."""
    count = position = 0
    for step in path:
        while position < len(process):
            is_match = process[position].strip() == step.strip()
            position += 1
            if is_match:
                count += 1
                break
    return count


def _crash(error: Exception) -> str:
    return f"the official evaluator raises {type(error).__name__}"


ENDINGS = ("finished", "max_messages", "context", "deadline")
