"""What a model says in a turn: text and calls, through its own template or in a text protocol.

The text protocol is for models without tool calling. Its wording is ours; upstream has none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ace_ray.parsing.known import known_calls
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
RESULT_MARK = "<tool_result"
"""What an answer in the text protocol ends before. Small models go on after a call and make up what
it returned: of 49 episodes of a 1.5B model 48 ended so, with their first answer."""
_MARKED = "hermes"
"""The reader of the blocks above."""
PROTOCOL_SHA256 = digest(PROTOCOL, _OTHERWISE, _RESULT, RESULT_MARK)


@dataclass(frozen=True, slots=True)
class Answer:
    """A turn: what is said to the other side, and calls, which may be none."""

    text: str
    calls: tuple[ToolCall, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.calls and not self.text.strip()


def with_protocol(system: str, tools: Tools, who: str) -> str:
    """A system message with the tools in the text protocol; ``who``: agent, solo or user. The tools
    come first: they are the same in all tasks, and engines keep what prompts begin with."""
    lines = [json.dumps(tool["function"], ensure_ascii=False) for tool in tools]
    return PROTOCOL % (_OTHERWISE[who], "\n".join(lines)) + system


def answer_of(completion: Completion, tools: Tools, *, native: bool) -> Answer:
    """What a completion says, where ``tools`` were offered through the template or in the text."""
    if native and completion.tools is not None:
        return Answer(completion.tools.content, completion.tools.calls)
    if native or not tools:
        return Answer(completion.text)
    # Not every server heeds `stop`.
    return _read(completion.text.partition(RESULT_MARK)[0], tools)


def _read(text: str, tools: Tools) -> Answer:
    """Blocks as asked for; or calls in another format that is known, if all are of tools that were
    offered: a text may show code to the user."""
    found = known_calls(text, tools)
    names = {tool["function"]["name"] for tool in tools}
    if found is None:
        return Answer(text)
    if found.reader != _MARKED and not all(call.name in names for call in found.calls):
        return Answer(text)
    mark = "<tool_call>" if found.reader == _MARKED else "```"
    beside = text.partition(mark)[0].strip() if mark in text else ""
    calls = (ToolCall(call.name, json.dumps(call.args, ensure_ascii=False)) for call in found.calls)
    return Answer(beside, tuple(calls))


def results_text(answers: Sequence[tuple[str, str]]) -> str:
    """What a model is told in the text protocol that its calls returned: (tool, answer)."""
    return "\n".join(_RESULT % pair for pair in answers)
