"""The steps of an episode in one shape, for display and export.

Messages come from stored rows, perhaps of a stranger's run: nothing here trusts their shape.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ace_ray.util.sanitizing import one_line


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of a message. ``arguments`` is JSON, or as the model wrote it; ``observation``
    what came back, None where the call was not run; ``error`` the kind of its failure."""

    name: str
    arguments: str = ""
    observation: str | None = None
    error: str = ""


@dataclass(slots=True, repr=False)
class Step:
    """One message. ``role``: system, user, assistant or tool; a tool's answer is with its call,
    where there is one. ``written``: all that a model wrote, where that is more than ``text`` and
    ``calls``; ``facts``: what is known of a message besides, such as its seconds."""

    role: str
    text: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list)
    written: str = ""
    facts: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Return one line: a message may be megabytes."""
        calls = f", {len(self.calls)} calls" if self.calls else ""
        return f"<Step {one_line(self.role, 20)}: {one_line(self.text, 80)!r}{calls}>"


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that the model was offered. ``schema``: of its parameters, any JSON value; ``since``:
    the number of the answer that it was first offered for, from 1."""

    name: str
    description: str = ""
    schema: Any = None
    since: int = 1


def tools_of(value: Any) -> list[Tool] | None:
    """Read the tools in `Episode.tools`, None without any. The value is not trusted."""
    return [_tool(one) for one in value] if isinstance(value, list) else None


def _tool(value: Any) -> Tool:
    function = value.get("function") if isinstance(value, Mapping) else None
    if not isinstance(function, Mapping):
        return Tool(text_of(value))
    since = value.get("since_answer")
    return Tool(
        text_of(function.get("name")),
        text_of(function.get("description")),
        function.get("parameters"),
        since if isinstance(since, int) and not isinstance(since, bool) else 1,
    )


def of_messages(messages: Sequence[Mapping[str, Any]]) -> list[Step]:
    """Read the steps of messages in OpenAI's form."""
    steps: list[Step] = []
    # The calls of the last assistant's message without an answer: id -> place.
    waiting: dict[str, int] = {}
    for message in messages:
        role = text_of(message.get("role"))
        if role == "tool" and steps and steps[-1].role == "assistant":
            _answer(steps[-1], message, waiting)
            continue
        step = Step(role, text_of(message.get("content")), text_of(message.get("reasoning")))
        waiting = {}
        for number, call in enumerate(_listed(message.get("tool_calls"))):
            function = call.get("function")
            function = function if isinstance(function, Mapping) else call
            step.calls.append(
                Call(text_of(function.get("name")), text_of(function.get("arguments")))
            )
            waiting.setdefault(text_of(call.get("id")) or f"#{number}", number)
        # The calls are in `text` as the model wrote them; `raw` has its reasoning, too.
        written = text_of(message.get("raw") or message.get("text"))
        if written != step.text:
            step.written = written
        if error := message.get("tool_parser_error"):
            step.facts["tool_parser_error"] = text_of(error)
        steps.append(step)
    return steps


def _answer(step: Step, message: Mapping[str, Any], waiting: dict[str, int]) -> None:
    """Put a tool's ``message`` beside the call of ``step`` that it answers; beside a call of its
    own if the calls are in the text."""
    content = text_of(message.get("content"))
    place = waiting.pop(text_of(message.get("tool_call_id")), None)
    if place is None and waiting:
        place = waiting.pop(next(iter(waiting)))  # the first that waits
    if place is None:
        step.calls.append(Call(text_of(message.get("name")), observation=content))
    else:
        asked = step.calls[place]
        step.calls[place] = Call(asked.name, asked.arguments, content, asked.error)


def _listed(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def text_of(value: Any) -> str:
    """Return a text as it is, "" for None, the texts of content parts, other values as JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    parts = _listed(value)
    if parts and len(parts) == len(value) and all(isinstance(p.get("text"), str) for p in parts):
        return "\n".join(part["text"] for part in parts)
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)
