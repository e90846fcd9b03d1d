"""Convert the messages of an episode into steps, for display and export.

Messages come from stored rows, perhaps of an unknown author, so their shape is not trusted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ace_ray.util.sanitizing import one_line


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of a message. ``arguments`` is JSON, or the text that the model wrote.
    ``observation`` is the result, None if the call was not run. ``error`` is the kind of failure.
    """

    name: str
    arguments: str = ""
    observation: str | None = None
    error: str = ""


@dataclass(slots=True, repr=False)
class Step:
    """One message. ``role`` is system, user, assistant or tool. But a tool message that answers a
    call of the step before is stored in the `Call`, not as a step. ``written`` is the model's
    complete output if it differs from ``text``. ``facts`` has further data, such as the duration
    in seconds."""

    role: str
    text: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list)
    written: str = ""
    facts: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Return one short line, since a message may have megabytes."""
        calls = f", {len(self.calls)} calls" if self.calls else ""
        return f"<Step {one_line(self.role, 20)}: {one_line(self.text, 80)!r}{calls}>"


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that was offered to the model. ``schema`` is the schema of its parameters, any JSON
    value. ``since`` is the number, from 1, of the first answer for which it was offered."""

    name: str
    description: str = ""
    schema: Any = None
    since: int = 1


def tools_of(value: Any) -> list[Tool] | None:
    """Read the tools in ``value``, an untrusted `Episode.tools`; None if it is not a list."""
    return [_tool(tool) for tool in value] if isinstance(value, list) else None


def _tool(value: Any) -> Tool:
    function = value.get("function") if isinstance(value, Mapping) else None
    if not isinstance(function, Mapping):
        return Tool(text_of(value))
    name, description = (text_of(function.get(key)) for key in ("name", "description"))
    since = value.get("since_answer")
    is_number = isinstance(since, int) and not isinstance(since, bool)
    return Tool(name, description, function.get("parameters"), since if is_number else 1)


def steps_of(messages: Sequence[Mapping[str, Any]]) -> list[Step]:
    """Return the steps of ``messages``, which have OpenAI's form."""
    steps: list[Step] = []
    # Calls of the last message that have no result yet: call id -> index.
    waiting: dict[str, int] = {}
    for message in messages:
        role = text_of(message.get("role"))
        if role == "tool" and steps and (waiting or steps[-1].role == "assistant"):
            _store_result(steps[-1], message, waiting)
            continue
        step = Step(role, text_of(message.get("content")), text_of(message.get("reasoning")))
        waiting = {}
        for number, call in enumerate(_mappings_of(message.get("tool_calls"))):
            function = call.get("function")
            function = function if isinstance(function, Mapping) else call
            step.calls.append(
                Call(text_of(function.get("name")), text_of(function.get("arguments")))
            )
            waiting.setdefault(text_of(call.get("id")) or f"#{number}", number)
        # `text` contains the calls as the model wrote them; `raw` contains its reasoning, too.
        written = text_of(message.get("raw") or message.get("text"))
        if written != step.text:
            step.written = written
        if error := message.get("tool_parser_error"):
            step.facts["tool_parser_error"] = text_of(error)
        steps.append(step)
    return steps


def _store_result(step: Step, message: Mapping[str, Any], waiting: dict[str, int]) -> None:
    """Store a tool ``message`` as the result of the call in ``step`` that it names, or of the first
    call without a result. If all calls have results (or are plain text), add a call."""
    content, error = text_of(message.get("content")), "failed" if message.get("error") else ""
    index = waiting.pop(text_of(message.get("tool_call_id")), None)
    if index is None and waiting:
        index = waiting.pop(next(iter(waiting)))  # the first call without a result
    if index is None:
        step.calls.append(Call(text_of(message.get("name")), "", content, error))
    else:
        step.calls[index] = replace(step.calls[index], observation=content, error=error)


def _mappings_of(value: Any) -> list[Mapping[str, Any]]:
    return [v for v in value if isinstance(v, Mapping)] if isinstance(value, list) else []


def text_of(value: Any) -> str:
    """Convert a message field to a string: "" for None, joined texts of content parts, or JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    parts = _mappings_of(value)
    if parts and len(parts) == len(value) and all(isinstance(p.get("text"), str) for p in parts):
        return "\n".join(part["text"] for part in parts)
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)
