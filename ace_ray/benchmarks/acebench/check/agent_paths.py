"""The ideal paths of an agent row as calls, and the calls that an agent made.

Milestones are published as source text, some with unescaped apostrophes
(``merchant_name='Domino's'``); they are read here all the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ace_ray.benchmarks.acebench.agent_calls import agent_calls
from ace_ray.parsing import Call, NotCalls, parse_calls

_APOSTROPHE = re.compile(r"(?<!\\)'")
_CLOSES = re.compile(r"\s*(?:[)\]}:]|,\s*(?:['\"\[{(]|[\w.-]+\s*[=(,\])}]|$)|$)")

CALL_ERRORS = ("unknown_tool", "bad_arguments", "not_a_call")
NOT_RUN = "not_run"
_MAX_CHARS = 1 << 17
_MAX_TEXTS = 2000
"""What is read of a process; an episode has some dozens of messages."""

Path = list[Call]


@dataclass(frozen=True, slots=True)
class Made:
    """A call that an agent made.

    ``error`` is its observation's ("" for an answer), ``not_a_call`` for a message without one,
    `NOT_RUN` when its batch ended before it, None where nothing was recorded, as in result files
    made elsewhere. One of `CALL_ERRORS` means that no tool was reached.
    """

    call: Call
    error: str | None = None
    observation: Any = None


def paths(milestones: list[Any]) -> list[Path]:
    """The alternative paths, each flattened to its calls: a step may hold several.

    A step that cannot be read stands for one call that no call equals: its name is "".
    """
    alternatives = milestones if isinstance(milestones[0], list) else [milestones]
    return [[call for step in steps for call in _step(step)] for steps in alternatives]


def _step(text: str) -> list[Call]:
    for written in (text.strip(), escaped(text.strip())):
        try:
            return parse_calls(written)
        except NotCalls:
            continue
    return [Call("", {})]


def escaped(text: str) -> str:
    """``text`` with a backslash before the apostrophes that neither open nor close a value."""
    parts, position, inside = [], 0, False
    for quote in _APOSTROPHE.finditer(text):
        place = quote.start()
        parts.append(text[position:place])
        position = quote.end()
        if inside and not _CLOSES.match(text, position):
            parts.append("\\'")
            continue
        inside = not inside
        parts.append("'")
    return "".join([*parts, text[position:]])


def made(process: Any, steps: Any) -> list[Made]:
    """The calls of an episode, in order: those of its ``steps``, else those in its ``process``.

    ``steps`` is the transcript in an episode's state; a step of execution has ``calls`` and beside
    them their ``observations`` and ``errors``. ``process`` are the texts sent to execution, read as
    upstream does and, where that finds no call, as the prompt asks. Of what is no list (of objects,
    of texts) nothing is read.
    """
    if isinstance(steps, list):
        return [call for step in steps if isinstance(step, dict) for call in _of_step(step)]
    return list(_of_texts(_list(process)))


def _of_texts(texts: list[Any]) -> Iterator[Made]:
    left = _MAX_CHARS
    for text in texts[:_MAX_TEXTS]:
        left -= len(text) if isinstance(text, str) else 0
        if isinstance(text, str) and left >= 0:
            yield from _of_text(text)
        else:
            yield Made(Call("", {}), "not_a_call")


def _of_text(text: str) -> Iterator[Made]:
    calls = agent_calls(text, loop="multi_step", protocol="official")
    calls = calls or agent_calls(text, loop="multi_step", protocol="fixed")
    for call in calls or ():
        yield Made(Call(call.name, call.arguments), "bad_arguments" if call.problem else None)
    if not calls:
        yield Made(Call("", {}), "not_a_call")


def _of_step(step: Mapping[str, Any]) -> Iterator[Made]:
    calls, observations, errors = (_list(step.get(k)) for k in ("calls", "observations", "errors"))
    if step.get("speaker") == "execution" and not calls and not errors:
        yield Made(Call("", {}), "not_a_call")  # upstream executes "[hello]": a batch of no calls
    for place in range(max(len(calls), len(errors))):
        call = calls[place] if place < len(calls) else None
        error = errors[place] if place < len(errors) else NOT_RUN
        observation = observations[place] if place < len(observations) else None
        yield Made(_recorded(call), error if isinstance(error, str) else "", observation)


def _recorded(call: Any) -> Call:
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return Call("", {})
    arguments = call.get("arguments")
    return Call(call["name"], arguments if isinstance(arguments, dict) else {})


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
