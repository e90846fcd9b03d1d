"""What happened in a stored episode: both sides' turns, their calls, and what came back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.transcript import Call, Step, of_messages, text_of


def transcript(messages: Sequence[Mapping[str, Any]], state: Any) -> list[Step]:
    """The trajectory after the candidate's system message; the messages of a row without one.
    Reasoning and what a model wrote besides come from the candidate's own messages."""
    trajectory = state.get("trajectory") if isinstance(state, Mapping) else None
    if not isinstance(trajectory, list):
        return of_messages(messages)
    seen = of_messages(messages)
    steps = [step for step in seen[:1] if step.role == "system"]
    said = iter([step for step in seen if step.role == "assistant"])
    for message in trajectory:
        if not isinstance(message, Mapping):
            continue
        role, text = text_of(message.get("role")), text_of(message.get("content"))
        if role == "tool":
            _answer(steps, text, bool(message.get("error")))
            continue
        step = Step(role, text)
        if role == "assistant" and (own := next(said, None)) is not None:
            step.reasoning, step.written, step.facts = own.reasoning, own.written, own.facts
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, Mapping):
                step.calls.append(Call(text_of(call.get("name")), text_of(call.get("arguments"))))
        steps.append(step)
    return steps


def _answer(steps: list[Step], text: str, failed: bool) -> None:
    """Put a result beside the first call without one of the last step."""
    error = "failed" if failed else ""
    if steps:
        for place, call in enumerate(steps[-1].calls):
            if call.observation is None:
                steps[-1].calls[place] = Call(call.name, call.arguments, text, error)
                return
    steps.append(Step("tool", text))
