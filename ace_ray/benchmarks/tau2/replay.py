"""What an episode's calls have done: they are made again on fresh databases, beside the gold ones.

Upstream does the same in each evaluation (``evaluator/evaluator_env.py``). Nothing here takes the
stored end of an episode for what it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ace_ray.benchmarks.context import arguments_of
from ace_ray.benchmarks.tau2.environment.limited import Attempt, Recorded, calls_of_history
from ace_ray.benchmarks.tau2.environment.sources import ToolSources
from ace_ray.sandbox.attempts import Op
from ace_ray.sandbox.tools import bounded

_OURS, _GOLD = "ours", "gold"
Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Replayed:
    """The comparison of the end of an episode with the end of the gold calls.

    Attributes:
        same: whether all databases are equal, by upstream's hashes.
        same_by_value: whether they are equal by value, so that 2 is 2.0.
        assertions: whether each assertion holds.
        problem: why upstream's evaluation would have failed, "" where it would not.
        compared: false for a task without actions and assertions: upstream's reward then has
            neither part.
    """

    same: bool = False
    same_by_value: bool = False
    assertions: Sequence[bool] = ()
    problem: str = ""
    compared: bool = True


def replayed(
    sources: ToolSources,
    trajectory: Sequence[Message],
    criteria: Mapping[str, Any],
    initial_state: Mapping[str, Any] | None,
    *,
    solo: bool,
) -> Replayed:
    """The end of an episode. Raises `SandboxLost`."""
    begin = {k: v for k, v in (initial_state or {}).items() if k.startswith("initialization_")}
    assertions = criteria.get("env_assertions") or ()
    calls, fault = recorded_calls(trajectory, solo=solo)
    if fault:
        return Replayed(problem=fault)
    ops: list[Op] = [
        ("open", _OURS, solo, begin),
        *(("replay", _OURS, *call) for call in calls),
        ("sync", _OURS),
        ("open", _GOLD, False, begin),
        *(("replay", _GOLD, *call) for call in calls_of_history(initial_state)),
        ("sync", _GOLD),
        ("gold", _GOLD, list(criteria.get("actions") or ())),
        ("equal", _OURS, _GOLD),
        *(("assert", _OURS, dict(one)) for one in assertions),
    ]
    answers = Attempt(sources).do(ops)
    problems = [
        answer
        for op, answer in zip(ops, answers, strict=True)
        if op[0] in ("open", "replay", "sync")
    ]
    equal = answers[len(problems) + 1]
    held = answers[len(problems) + 2 :]
    problems += [why for _, why in held]
    return Replayed(
        same=equal[0],
        same_by_value=equal[1],
        assertions=[bool(holds) for holds, _ in held],
        problem=next(filter(None, problems), ""),
    )


def recorded_calls(trajectory: Sequence[Message], *, solo: bool) -> tuple[list[Recorded], str]:
    """The calls of a trajectory with what each returned, and why upstream replays no such record,
    "" where it does.

    A call whose arguments are beyond the bounds of a sandbox has changed nothing, and is left out.
    """
    calls: list[Recorded] = []
    messages = iter(trajectory)
    for message in messages:
        if message["role"] == "tool":
            return [], "a result follows no call"
        if solo and message["role"] == "user":
            return [], "a user speaks in solo mode"
        for call in message.get("tool_calls") or ():
            result = next(messages, {"role": ""})
            if result["role"] != "tool" or result.get("id") != call.get("id"):
                return [], f"the call of {call['name']} is not followed by its result"
            try:
                arguments = bounded(arguments_of(call["arguments"]))
            except ValueError:
                continue
            answer = result.get("content") or ""
            requestor = str(call.get("requestor", message["role"]))
            calls.append((requestor, call["name"], arguments, answer))
    return calls, ""
