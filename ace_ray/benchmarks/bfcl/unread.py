"""Answers in which no call was read, and what they are once a known reader has read them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ace_ray.benchmarks.bfcl.answers import Answer
from ace_ray.benchmarks.bfcl.categories import Language
from ace_ray.benchmarks.bfcl.decode import executable, read_any
from ace_ray.benchmarks.bfcl.forms import Form
from ace_ray.benchmarks.second_reading import Unread, answer_texts, as_tool_calls
from ace_ray.calls import Call, NotCalls, Refused, render
from ace_ray.records import Episode

Tools = Sequence[Mapping[str, Any]]


def unread_single(
    episode: Episode, answer: Answer, form: Form, language: Language, tools: Tools
) -> Unread | None:
    """Of a single-turn answer; None where it holds calls, or what would have to be run."""
    try:
        calls = read_any(answer, form, language)
    except NotCalls:
        calls = None
    except Refused:
        return None
    if calls and all(isinstance(call.args, dict) for call in calls):
        return None
    texts = answer_texts(episode, answer.text or "")
    return Unread([texts], _with_calls(episode, answer, form, language), tools)


def unread_conversation(answers: Sequence[Answer], tools: Tools) -> Unread:
    """Of an episode, whose turns each end in an answer without calls."""
    return Unread([[a.text or ""] for a in answers if not executable(a)], None, tools)


def _with_calls(
    episode: Episode, answer: Answer, form: Form, language: Language
) -> Callable[[Sequence[Call]], Episode | None]:
    def native(calls: Sequence[Call]) -> Episode:
        read = Answer("", as_tool_calls(calls))
        turns = {"turns": [[read.as_json()]], "ended": ""}
        return replace(episode, state={**(episode.state or {}), **turns})

    def prompted(calls: Sequence[Call]) -> Episode | None:
        if form.returned == "json":
            text = json.dumps([{"function": c.name, "parameters": c.args} for c in calls])
        elif form.returned == "python" and language == "python":
            text = render(calls)
        else:  # values would have to be written as Java, JavaScript or XML have them
            return None
        return replace(episode, output=f"<TOOLCALL>{text}</TOOLCALL>" if form.tagged else text)

    return prompted if answer.calls is None else native
