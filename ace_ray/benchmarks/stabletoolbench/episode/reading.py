"""Read replies in the ReAct form, in which calls are lines of text, and read calls of Finish."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ace_ray.benchmarks.stabletoolbench.callable_names import GIVE_ANSWER, GIVE_UP
from ace_ray.benchmarks.stabletoolbench.prompts import Texts
from ace_ray.types import ToolCall

# Maximum characters of a reply that are read.
MAX_TEXT = 200_000


def read_react(text: str) -> tuple[str, list[ToolCall]]:
    """Return the thought and the call of a reply, as (thought, [call]). Never raises.

    The thought is the complete text, cut to `MAX_TEXT`. The call's name is the text after the first
    ``Action:``, its arguments the text after the first ``Action Input:``. If a marker is missing,
    the call is made of other parts of the text, as in upstream's ``react_parser``."""
    text = text[:MAX_TEXT]
    action = _text_between(text, "Action: ", "\nAction Input: ")
    return text, [ToolCall(action, _text_between(text, "Action Input: ", None))]


def react_chat(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the stored messages as plain text: observations become user messages."""
    return [
        {"role": "user", "content": f"Observation: {message['content']}"}
        if message["role"] == "tool"
        else {"role": message["role"], "content": message["content"]}
        for message in messages
    ]


def _text_between(text: str, begin: str, end: str | None) -> str:
    """Return the text between two markers. As in upstream, a missing marker is at position -1."""
    start = text.find(begin) + len(begin)
    return text[start:] if end is None else text[start : text.find(end)]


# Upstream's status codes of Finish. Code 1 is an unknown function.
ANSWERED, GAVE_UP = 3, 4
BAD_FINISH = 2
_TYPE, _ANSWER = '"return_type": "', '"final_answer": "'


@dataclass(frozen=True, slots=True)
class FinishResult:
    """Result of a call of Finish: upstream's observation and status code."""

    observation: str
    code: int
    answer: str = ""
    """The final answer as text, "" if it is missing."""


def read_finish(arguments: str, texts: Texts) -> FinishResult:
    """Read the arguments of Finish. Never raises.

    As in upstream, a text that is not JSON is searched for ``return_type`` and ``final_answer``."""
    values = _finish_values(arguments)
    kind = values.get("return_type")
    if "return_type" not in values:
        return FinishResult(texts.no_return_type, BAD_FINISH)
    if kind == GIVE_UP:
        return FinishResult(texts.gave_up, GAVE_UP)
    if kind != GIVE_ANSWER:
        return FinishResult(texts.bad_return_type, BAD_FINISH)
    if "final_answer" not in values:
        return FinishResult(texts.no_final_answer, BAD_FINISH)
    answer = values["final_answer"]
    text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
    return FinishResult(texts.answered, ANSWERED, text)


def _finish_values(arguments: str) -> dict[str, Any]:
    if len(arguments) <= MAX_TEXT:
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
