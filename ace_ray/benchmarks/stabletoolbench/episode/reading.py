"""Reading a candidate's reply: the ReAct form, in which calls are lines of text, and Finish."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ace_ray.benchmarks.stabletoolbench.apis.values import nesting
from ace_ray.benchmarks.stabletoolbench.episode.tree import ANSWERED, GAVE_UP
from ace_ray.benchmarks.stabletoolbench.prompts import Texts
from ace_ray.benchmarks.stabletoolbench.tools import GIVE_ANSWER, GIVE_UP, Rules
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


def read_react(text: str, rules: Rules) -> tuple[str, list[ToolCall]]:
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


def react_chat(messages: Sequence[Mapping[str, Any]], role: str) -> list[dict[str, Any]]:
    """The stored messages as the model is shown them: text only, observations said by ``role``."""
    chat = []
    for message in messages:
        sent = {"role": message["role"], "content": message["content"]}
        if message["role"] == "tool":
            sent["role"] = role
            if role == "user":
                sent["content"] = f"Observation: {message['content']}"
        chat.append(sent)
    return chat


def _between(text: str, begin: str, end: str | None) -> str:
    """Upstream's slices: a marker that is missing counts as found at -1."""
    start = text.find(begin) + len(begin)
    return text[start:] if end is None else text[start : text.find(end)]


BAD_FINISH = 2
_MAX_DEPTH = 64
_TYPE, _ANSWER = '"return_type": "', '"final_answer": "'


@dataclass(frozen=True, slots=True)
class Finished:
    """What a call of Finish came to: upstream's observation and status code."""

    observation: str
    code: int
    answer: str = ""
    """The final answer as a text, of an answer."""


def read_finish(arguments: str, texts: Texts) -> Finished:
    """Reads the call's ``arguments``; text that is no JSON is searched for upstream's two keys,
    as upstream does. Bounded; never raises."""
    values = _finish_values(arguments)
    kind = values.get("return_type")
    if "return_type" not in values:
        return Finished(texts.no_return_type, BAD_FINISH)
    if kind == GIVE_UP:
        return Finished(texts.gave_up, GAVE_UP)
    if kind != GIVE_ANSWER:
        return Finished(texts.bad_return_type, BAD_FINISH)
    if "final_answer" not in values:
        return Finished(texts.no_final_answer, BAD_FINISH)
    answer = values["final_answer"]
    text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
    return Finished(texts.answered, ANSWERED, text)


def _finish_values(arguments: str) -> dict[str, Any]:
    if len(arguments) <= MAX_TEXT and nesting(arguments) <= _MAX_DEPTH:
        try:
            value = json.loads(arguments, strict=False)
            return value if isinstance(value, dict) else {}
        except (ValueError, RecursionError):
            pass
    values = {}
    if _TYPE in arguments:
        kinds = (GIVE_ANSWER, GIVE_UP)
        values["return_type"] = next((k for k in kinds if f'{_TYPE}{k}"' in arguments), "")
    if _ANSWER in arguments:
        values["final_answer"] = arguments[arguments.find(_ANSWER) + len(_ANSWER) :]
    return values
