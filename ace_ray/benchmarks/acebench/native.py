"""Native tool calling: what a chat template is given, and what its model's calls mean.

The model sees the functions as tools of its own template and answers in its own syntax. The calls
that a tool parser reads there are written back in the official syntax, so that both rule sets judge
them as they judge a prompted answer. Results compare with native ones only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.acebench.json_calls import NotJson, arguments_of, callable_name
from ace_ray.benchmarks.acebench.native_texts import NATIVE
from ace_ray.benchmarks.acebench.prompts import Prompts
from ace_ray.benchmarks.acebench.tool_schemas import openai_tools, tool_names
from ace_ray.calls import render
from ace_ray.records import Entry, ToolCall

__all__ = ["UNREADABLE", "answer_text", "openai_tools", "prompts", "tools_of"]

UNREADABLE = "a tool call that cannot be read"
"""Stands for calls that have no text in the official syntax; every checker finds no call in it."""


def prompts() -> Prompts:
    """The texts of native mode, by language and kind of category; ours in any case."""
    return Prompts("own", "native", NATIVE)


def tools_of(entry: Entry) -> list[dict[str, Any]]:
    """The entry's functions as tools in OpenAI's form."""
    return openai_tools(entry.data["function"])


def answer_text(
    content: str, calls: Sequence[ToolCall], functions: Sequence[Mapping[str, Any]]
) -> str:
    """An answer in the official syntax, ``[F(a='x'), G(b=1)]``; names are the published ones.

    With calls the text beside them is no part of the answer; without any it is the answer. One call
    that cannot be written (arguments that are no JSON object, names that are none) makes the whole
    `UNREADABLE`. Never raises on any answer.
    """
    names = tool_names(functions)
    if not calls:
        return _with_published_names(content, names)
    try:
        return render(
            (callable_name(names.get(call.name, call.name)), arguments_of(call.arguments))
            for call in calls
        )
    except NotJson:
        return UNREADABLE


def _with_published_names(content: str, names: Mapping[str, str]) -> str:
    # The sentences of the special categories name functions, and are judged by their names.
    changed = {tool: name for tool, name in names.items() if tool != name}
    if not changed:
        return content
    pattern = rf"(?<![A-Za-z0-9_.])(?:{'|'.join(changed)})(?![A-Za-z0-9_])"
    return re.sub(pattern, lambda found: changed[found[0]], content)
