"""The ReAct form: functions are listed in the prompt, and calls are lines of text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.stabletoolbench.agent.texts import Texts
from ace_ray.benchmarks.stabletoolbench.tools import Rules
from ace_ray.records import ToolCall

MAX_TEXT = 200_000
"""Characters of a reply that are looked at."""
_ACTION = re.compile(r"^[ \t]*Action:[ \t]*([^\n]*)$", re.MULTILINE)
_INPUT = re.compile(r"^[ \t]*Action Input:[ \t]*", re.MULTILINE)
_NEXT = re.compile(r"^[ \t]*(?:Observation|Thought|Action|End Action)\b", re.MULTILINE)
_THOUGHT = re.compile(r"\A\s*Thought:\s*")
_FENCE = re.compile(r"\A```[a-z]*[ \t]*\n(.*?)\n?```\Z", re.DOTALL)


def system_text(system: str, tools: Sequence[Mapping[str, Any]], texts: Texts, rules: Rules) -> str:
    """The system message with the form's rules and the functions in it."""
    if texts.react_after and texts.react_after in system:
        system = system.replace(texts.react_after, texts.react)
    else:
        system += texts.react
    functions = [tool["function"] for tool in tools]
    # Upstream shows Python's text of the list.
    shown = str(functions) if rules == "official" else json.dumps(functions, ensure_ascii=False)
    return system + texts.react_tools + shown


def read(text: str, rules: Rules) -> tuple[str, list[ToolCall]]:
    """(thought, calls) of a reply: at most one call.

    ``official`` cuts the text as ``react_parser`` does: what stands between the first markers,
    whatever that is, and the whole text is the thought. ``fixed`` takes the first action with an
    input and leaves alone what the model made up after it. Never raises.
    """
    text = text[:MAX_TEXT]
    if rules == "official":
        action = _between(text, "Action: ", "\nAction Input: ")
        return text, [ToolCall(action, _between(text, "Action Input: ", None))]
    named = _ACTION.search(text)
    if named is None or not named[1].strip():
        return _THOUGHT.sub("", text).strip(), []
    thought = _THOUGHT.sub("", text[: named.start()]).strip()
    given = _INPUT.search(text, named.end())
    arguments = ""
    if given is not None:
        after = _NEXT.search(text, given.end())
        arguments = text[given.end() : after.start() if after else len(text)].strip()
        if fenced := _FENCE.match(arguments):
            arguments = fenced[1].strip()
    return thought, [ToolCall(named[1].strip().strip("`\"'"), arguments)]


def chat(messages: Sequence[Mapping[str, Any]], role: str) -> list[dict[str, Any]]:
    """The stored messages as the model is shown them: text only, observations said by ``role``."""
    found = []
    for message in messages:
        said = {"role": message["role"], "content": message["content"]}
        if message["role"] == "tool":
            said["role"] = role
            if role == "user":
                said["content"] = f"Observation: {message['content']}"
        found.append(said)
    return found


def _between(text: str, begin: str, end: str | None) -> str:
    """Upstream's slices: a marker that is missing counts as found at -1."""
    start = text.find(begin) + len(begin)
    return text[start:] if end is None else text[start : text.find(end)]
