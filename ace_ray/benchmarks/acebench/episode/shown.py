"""Stored agent episodes as steps: calls beside what execution answered each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from ace_ray.benchmarks.transcript import Call, Step, of_messages, text_of

_ROLES = {"user": "user", "agent": "assistant", "execution": "tool"}
_FACTS = ("finish_reason", "prompt_tokens", "completion_tokens", "seconds", "model")
_MOST_SECONDS = 1e9


def transcript(messages: Sequence[Mapping[str, Any]], state: Any) -> list[Step]:
    """The steps of an agent row; of any other row its messages."""
    stored = state.get("steps") if isinstance(state, Mapping) else None
    spoken = [one for one in stored if isinstance(one, Mapping)] if isinstance(stored, list) else []
    if not spoken:
        return of_messages(messages)
    # What was sent before anybody spoke: in agent_multi_step the task, too.
    opening = ("system",) if spoken[0].get("speaker") == "user" else ("system", "user")
    steps = of_messages(list(takewhile(lambda one: one.get("role") in opening, messages)))
    for one in spoken:
        role = _ROLES.get(text_of(one.get("speaker")), "tool")
        if role == "tool" and one.get("calls") and steps and steps[-1].role == "assistant":
            steps[-1].calls += _calls(one)
            continue
        step = Step(role, text_of(one.get("text")), text_of(one.get("reasoning")))
        step.facts = {name: one[name] for name in _FACTS if one.get(name) not in (None, "")}
        if not _is_duration(step.facts.get("seconds", 0)):
            del step.facts["seconds"]
        steps.append(step)
    return steps


def _is_duration(value: Any) -> bool:
    """Return whether ``value`` is a number of seconds: anybody may have stored NaN or 10**400."""
    return isinstance(value, int | float) and 0 <= value <= _MOST_SECONDS


def _calls(execution: Mapping[str, Any]) -> list[Call]:
    """Calls that come after the end of a batch have neither observation nor error."""
    observations, errors = (
        value if isinstance(value := execution.get(name), list) else []
        for name in ("observations", "errors")
    )
    calls = execution["calls"] if isinstance(execution["calls"], list) else []
    return [
        Call(
            text_of(call.get("name")),
            text_of(call.get("arguments")),
            text_of(observations[place]) if place < len(observations) else None,
            text_of(errors[place]) if place < len(errors) else "",
        )
        for place, call in enumerate(calls)
        if isinstance(call, Mapping)
    ]
