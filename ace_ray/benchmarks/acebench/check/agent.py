"""Verdicts on an agent row: `official` here, the strict one in `agent_strict`.

The official rules restate upstream ``eval_main.py`` and ``checker.py`` (56dd66c). End to end, a
recorded state is compared with the gold state class by class, and loosely: attributes that it lacks
and keys that an attribute has beside the gold's are not noticed, ``1``, ``1.0`` and ``True`` are
equal, and a gold class that no entry of the state is named like gets the verdict of the class
before it ("valid" at first). The process is compared as text. Quirks are kept.

Error types: ``wrong number of class``, ``class attributes wrong``, and ``official_crash`` where the
official evaluator raises, which ends its whole run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ace_ray.benchmarks.acebench.categories import AGENT
from ace_ray.benchmarks.acebench.check import agent_strict
from ace_ray.types import Entry, Verdict

CRASH = "official_crash"
_RAISES = (LookupError, AttributeError, TypeError, ValueError, RecursionError)


def check_agent(
    entry: Entry, result: Any, process: Any, *, end: Any = None, steps: Any = None
) -> dict[str, Verdict]:
    """The verdicts of both rule sets on an episode of an agent category; JSON values, any shape.

    ``result`` is the final state as upstream records it, ``[{class: attributes}, ...]``, and
    ``process`` the texts that were sent to execution; the official rules look at nothing else.
    ``end`` is the true end state, ``result`` where it is not known, and ``steps`` the transcript
    (see `agent_strict.made`); the strict rules take them first. ``valid`` is end-to-end; metrics
    are ``end_to_end`` and ``process_accuracy``. Raises `ValueError` for another category.
    """
    if entry.category not in AGENT:
        raise ValueError(f"{entry.category} is not an agent category")
    return {
        "official": official(entry.gold, result, process),
        "strict": agent_strict.judge(entry, result, process, end=end, steps=steps),
    }


def official(gold: Mapping[str, Any], result: Any, process: Any) -> Verdict:
    """The verdict on a final state and the texts that were sent to execution.

    ``gold`` has ``ground_truth`` ([{class: attributes}, ...]) and ``mile_stone`` ([step, ...] or a
    list of such lists); ``result`` and ``process`` are JSON values, ideally like them. Metrics:
    ``end_to_end`` (0 or 1) and ``process_accuracy``, as it enters the category's mean. Never
    raises.
    """
    kind, error = _end_to_end(gold["ground_truth"], result)
    valid = not kind
    accuracy = 1.0
    if not valid:
        try:
            accuracy = _process(gold["mile_stone"], process)
        except _RAISES as raised:
            accuracy, kind = 0.0, CRASH
            error = f"{error}; on the process {_crash(raised)}"
    metrics = {"end_to_end": int(valid), "process_accuracy": accuracy}
    return Verdict(valid, kind, error, metrics)


def _end_to_end(gold: list[dict[str, Any]], result: Any) -> tuple[str, str]:
    """(error type, error), both "" when the state is accepted."""
    kind = "wrong number of class"
    try:
        if len(gold) != len(result):
            return kind, f"{len(result)} classes instead of {len(gold)}"
        kind = "class attributes wrong"
        faults: list[str] = []
        verdict: list[str] = []  # faults of the class compared last
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
        place = f"{name}.{attribute[:80]}"
        if attribute not in gold:
            faults.append(place)
        elif not isinstance(gold[attribute], dict):
            if gold[attribute] != value:
                faults.append(place)
        else:
            for key, wanted in gold[attribute].items():
                if key not in value or wanted != value[key]:
                    faults.append(f"{place}.{key}")
    return faults


def _process(milestones: list[Any], process: Any) -> float:
    """The share of milestones found in order; of alternatives the best, rounded to 3 digits."""
    if isinstance(milestones[0], list):
        return max(round(_matched(path, process) / len(path), 3) for path in milestones)
    return _matched(milestones, process) / len(milestones)


def _matched(path: list[str], process: Any) -> int:
    """Milestones found one after the other; one that is absent uses up the whole process."""
    count = position = 0
    for step in path:
        while position < len(process):
            same = process[position].strip() == step.strip()
            position += 1
            if same:
                count += 1
                break
    return count


def _crash(error: Exception) -> str:
    return f"the official evaluator raises {type(error).__name__}"


ENDINGS = ("finished", "max_messages", "context", "deadline")


def with_ending(verdicts: Mapping[str, Verdict], ended: object) -> dict[str, Verdict]:
    """``verdicts`` with the metric ``ended_<how>`` where the episode says how it ended."""
    if ended not in ENDINGS:
        return dict(verdicts)
    return {
        rules: replace(verdict, metrics={**verdict.metrics, f"ended_{ended}": 1})
        for rules, verdict in verdicts.items()
    }
