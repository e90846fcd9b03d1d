"""Read a model's turn, which has text and calls, in the native tool format or a text protocol.

The text protocol is for models without tool calling. ace_ray defines it; upstream has none."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ace_ray.parsing.formats import parse_known_formats
from ace_ray.types import Completion, ToolCall, digest

Message = dict[str, Any]
Tools = Sequence[Mapping[str, Any]]

PROTOCOL = """# Tools

You can call the tools that are listed below. To do so, answer with nothing but one or more blocks \
of this form, each with one JSON object:

<tool_call>
{"name": "name_of_the_tool", "arguments": {"name_of_a_parameter": "its value"}}
</tool_call>

The next message then tells you what each call returned, in <tool_result> blocks in the same order.
%s

The tools, one JSON object a line:

%s

# Your task

"""
_OTHERWISE = {
    "agent": "An answer without such a block is a message that the user reads.",
    "solo": "Nobody reads an answer without such a block: it ends your work, as a failure.",
    "user": "An answer without such a block is a message that the agent reads.",
}
_RESULT = '<tool_result name="%s">\n%s\n</tool_result>'
# Stop text of the text protocol. Small models continue after a call and invent its result. For a
# 1.5B model, 48 of 49 episodes ended this way in the first answer.
RESULT_MARK = "<tool_result"
# Reader in `ace_ray.parsing.formats` for the blocks of `PROTOCOL`.
_MARKED = "hermes"
PROTOCOL_SHA256 = digest(PROTOCOL, _OTHERWISE, _RESULT, RESULT_MARK)


@dataclass(frozen=True, slots=True)
class Answer:
    """A turn of the agent or of the user: a text for the other side, and tool calls, if any."""

    text: str
    calls: tuple[ToolCall, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.calls and not self.text.strip()


def add_protocol(system: str, tools: Tools, who: str) -> str:
    """Return the text protocol with ``tools``, followed by the system message. ``who``: "agent",
    "solo" or "user". Tools are first: all tasks have the same, so engines can cache the prefix."""
    lines = [json.dumps(tool["function"], ensure_ascii=False) for tool in tools]
    return PROTOCOL % (_OTHERWISE[who], "\n".join(lines)) + system


def answer_of(completion: Completion, tools: Tools, *, native: bool) -> Answer:
    """Read the turn in a completion. ``tools``: the offered tools. ``native``: the model's template
    offered them; else the text protocol did."""
    if native and completion.tools is not None:
        return Answer(completion.tools.content, completion.tools.calls)
    if native or not tools:
        return Answer(completion.text)
    # Some servers ignore `stop`.
    return _read(completion.text.partition(RESULT_MARK)[0], tools)


def _read(text: str, tools: Tools) -> Answer:
    """Read the calls of a text. Calls in another format than the protocol's may be code that the
    text shows to the user. They count only if all their tools were offered."""
    parsed = parse_known_formats(text, tools)
    names = {tool["function"]["name"] for tool in tools}
    if parsed is None:
        return Answer(text)
    if parsed.reader != _MARKED and not all(call.name in names for call in parsed.calls):
        return Answer(text)
    mark = "<tool_call>" if parsed.reader == _MARKED else "```"
    beside = text.partition(mark)[0].strip() if mark in text else ""
    calls = (ToolCall(c.name, json.dumps(c.args, ensure_ascii=False)) for c in parsed.calls)
    return Answer(beside, tuple(calls))


def results_text(answers: Sequence[tuple[str, str]]) -> str:
    """Return the text protocol's message with the results of calls, (tool name, result) pairs."""
    return "\n".join(_RESULT % pair for pair in answers)
