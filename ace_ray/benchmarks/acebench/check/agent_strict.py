"""Return the strict verdict on an agent row, after the paper's definition.

A row is valid if all recorded attributes of all involved classes equal the gold state. The process
accuracy is n / m: the ideal path has m calls, and the episode begins with the first n of them. If
there are several ideal paths, the best value counts.

The error type is the cause of a failure: one of the three in the paper's section 4.2, or
``undetermined`` if the calls prove none. The calls are compared with the ideal path that they
follow furthest. Its calls are the milestones. They are searched for in order; other calls are
skipped. The first milestone that is not found is the next milestone. Only calls after the last
milestone found can prove a cause. The first call that proves a cause decides:

- ``function_call_error``: the message lacks a call; or the call names an unknown tool, has an
  argument that the tool does not take, or lacks a required argument. The recorded error tells this
  (see `CALL_ERRORS`). If no error was recorded, the call is compared with the row's functions.
- ``rule_violation``: a required step was skipped. The call equals a milestone after the next one.
  Or it calls the tool of such a milestone and was refused: ``status`` is false or "error". A
  refusal in plain words does not count.
- ``information_mismanagement``: the call is to the tool of the next milestone, with other values.
- ``undetermined``: anything else. The agent stopped, made more calls after all milestones, or made
  only calls that prove no cause.

Calls that did not run (`NOT_RUN`) are ignored. Milestones are published as source text. Text with
unescaped apostrophes (``merchant_name='Domino's'``) is read too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ace_ray.benchmarks.acebench.agent_calls import agent_calls
from ace_ray.parsing.literals import Call, parse_calls
from ace_ray.parsing.syntax import NotCalls
from ace_ray.types import Entry, Verdict

_APOSTROPHE = re.compile(r"(?<!\\)'")
_CLOSES = re.compile(r"\s*(?:[)\]}:]|,\s*(?:['\"\[{(]|[\w.-]+\s*[=(,\])}]|$)|$)")

CALL_ERRORS = ("unknown_tool", "bad_arguments", "not_a_call")
NOT_RUN = "not_run"
_MAX_CHARS = 1 << 17
# Maximum number of texts read from a process. An episode has some dozens of messages.
_MAX_TEXTS = 2000

Path = list[Call]


@dataclass(frozen=True, slots=True)
class MadeCall:
    """A call that an agent made.

    ``error`` is "" if the tool answered, else the kind of error: ``not_a_call`` for a message
    without a call, `NOT_RUN` if the batch ended before the call. ``error`` is None if errors were
    not recorded, as in upstream's result files. With an error of `CALL_ERRORS`, no tool ran."""

    call: Call
    error: str | None = None
    observation: Any = None


def paths(milestones: list[Any]) -> list[Path]:
    """Return the ideal paths, each as a flat list of calls. A step may contain several calls.

    A step that cannot be read becomes one call with the name "", which does not equal any call."""
    alternatives = milestones if isinstance(milestones[0], list) else [milestones]
    return [[call for step in steps for call in _step(step)] for steps in alternatives]


def _step(text: str) -> list[Call]:
    for written in (text.strip(), escape(text.strip())):
        try:
            return parse_calls(written)
        except NotCalls:
            continue
    return [Call("", {})]


def escape(text: str) -> str:
    """Put a backslash before apostrophes in ``text`` that do not open or close a quoted value."""
    parts, position, inside = [], 0, False
    for quote in _APOSTROPHE.finditer(text):
        start = quote.start()
        parts.append(text[position:start])
        position = quote.end()
        if inside and not _CLOSES.match(text, position):
            parts.append("\\'")
            continue
        inside = not inside
        parts.append("'")
    return "".join([*parts, text[position:]])


def calls_made(process: Any, steps: Any) -> list[MadeCall]:
    """Return the calls of an episode in order, from ``steps`` if it is a list, else ``process``.

    ``steps`` is the transcript in an episode's state. Its execution steps have ``calls``,
    ``observations`` and ``errors``. ``process`` has the texts sent to execution. Each text is read
    as upstream reads it. If this finds no call, the text is searched for a list of calls, which is
    the format that the prompt asks for."""
    if isinstance(steps, list):
        return [call for step in steps if isinstance(step, dict) for call in _step_calls(step)]
    return list(_text_calls(_list(process)))


def _text_calls(texts: list[Any]) -> Iterator[MadeCall]:
    budget_chars = _MAX_CHARS
    for text in texts[:_MAX_TEXTS]:
        budget_chars -= len(text) if isinstance(text, str) else 0
        calls = None
        if isinstance(text, str) and budget_chars >= 0:
            calls = agent_calls(text, loop="multi_step", protocol="official")
            calls = calls or agent_calls(text, loop="multi_step", protocol="fixed")
        for call in calls or ():
            yield MadeCall(
                Call(call.name, call.arguments), "bad_arguments" if call.problem else None
            )
        if not calls:
            yield MadeCall(Call("", {}), "not_a_call")


def _step_calls(step: Mapping[str, Any]) -> Iterator[MadeCall]:
    calls, observations, errors = (_list(step.get(k)) for k in ("calls", "observations", "errors"))
    if step.get("speaker") == "execution" and not calls and not errors:
        yield MadeCall(
            Call("", {}), "not_a_call"
        )  # upstream executes "[hello]": a batch without calls
    for index in range(max(len(calls), len(errors))):
        call = calls[index] if index < len(calls) else None
        error = errors[index] if index < len(errors) else NOT_RUN
        observation = observations[index] if index < len(observations) else None
        yield MadeCall(_parse_call(call), error if isinstance(error, str) else "", observation)


def _parse_call(call: Any) -> Call:
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return Call("", {})
    arguments = call.get("arguments")
    return Call(call["name"], arguments if isinstance(arguments, dict) else {})


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


_NUMBERS = (int, float)


def same_value(value: Any, gold: Any) -> bool:
    """Return whether ``value`` equals ``gold`` as JSON: ``1`` equals ``1.0``, but not ``true``.

    Lists must have the same order, objects the same keys. The recursion is as deep as ``gold``."""
    if isinstance(gold, dict):
        if not isinstance(value, dict) or value.keys() != gold.keys():
            return False
        return all(same_value(value[key], item) for key, item in gold.items())
    if isinstance(gold, list):
        if not isinstance(value, list) or len(value) != len(gold):
            return False
        return all(map(same_value, value, gold))
    if isinstance(gold, _NUMBERS) and not isinstance(gold, bool):
        return isinstance(value, _NUMBERS) and not isinstance(value, bool) and value == gold
    return type(value) is type(gold) and bool(value == gold)


def same_call(call: Call, gold: Call) -> bool:
    """Return whether two calls have the same name, argument names and values.

    A call without a name does not equal any call."""
    return bool(gold.name) and call.name == gold.name and same_value(call.args, gold.args)


def cause(entry: Entry, calls: Sequence[MadeCall], ideal: Sequence[Path]) -> tuple[str, str]:
    """Return the error type for a wrong end state (see the module), and a sentence of evidence.

    ``ideal``: the ideal paths of the entry."""
    calls = [attempt for attempt in calls if attempt.error != NOT_RUN]
    path = max(ideal, key=lambda steps: _progress(calls, steps)[0])
    count, position = _progress(calls, path)
    if count == len(path):
        return "undetermined", "every milestone was made"
    at_hand, later = path[count], path[count + 1 :]
    offered = {function["name"]: function for function in entry.data["function"]}
    # Some ideal paths use tools that their rows do not offer.
    offered |= {step.name: {} for steps in ideal for step in steps if step.name not in offered}
    for attempt in calls[position:]:
        if problem := _call_error(attempt, offered):
            return "function_call_error", problem
        name = attempt.call.name[:80]
        early = f"{name} was called before {at_hand.name}"
        if any(same_call(attempt.call, step) for step in later):
            return "rule_violation", early
        if attempt.call.name == at_hand.name:
            return "information_mismanagement", f"{name} was called with other values"
        result = attempt.observation
        status = result.get("status") if isinstance(result, dict) else None
        is_refused = status is False or status == "error"
        if is_refused and any(attempt.call.name == step.name for step in later):
            return "rule_violation", early
    return "undetermined", f"{at_hand.name} was not called"


def _progress(calls: Sequence[MadeCall], path: Path) -> tuple[int, int]:
    """Return two numbers: milestones made in order, and calls up to the last such milestone."""
    count = position = 0
    for number, attempt in enumerate(calls, start=1):
        if count == len(path):
            break
        if attempt.error not in CALL_ERRORS and same_call(attempt.call, path[count]):
            count, position = count + 1, number
    return count, position


def _call_error(attempt: MadeCall, offered: dict[str, Any]) -> str:
    name = attempt.call.name[:80]
    if attempt.error in CALL_ERRORS:
        return f"{name or 'a message'}: {attempt.error}"
    if attempt.error is not None:
        return ""
    if attempt.call.name not in offered:
        return f"there is no tool {name}"
    function = offered[attempt.call.name]
    schema = function.get("parameters", function.get("arguments"))
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return ""
    if attempt.call.args.keys() - properties.keys():
        return f"{name} was called with unknown arguments"
    required = schema.get("required")
    if isinstance(required, list) and any(key not in attempt.call.args for key in required):
        return f"{name} lacks a required argument"
    return ""


# Misspelt class names in the published gold states, with the real names.
REAL_NAMES = {"BaseAPI": "BaseApi", "ReminderAPI": "ReminderApi", "Reminderpi": "ReminderApi"}
# The gold states under this name (multi_step_0 and multi_step_1) lack a reminder that the world
# begins with, so that no episode can reach them.
_UNREACHABLE = "ReminderAPI"
# In this row, "if the message capacity is full, delete the most recent message", and gold deletes
# message 4 although the capacity is free by then. multi_step_18 has the same question, and keeps
# the message. With and without it, the end state is right.
_FREE_CAPACITY, _KEPT = "agent_multi_step_19", "4"
_NEEDLESS = [Call("get_latest_message_id", {}), Call("delete_message", {"message_id": int(_KEPT)})]


def judge(entry: Entry, result: Any, process: Any, *, end: Any, steps: Any) -> Verdict:
    """Return the verdict on the end state and the calls of an episode. Never raises.

    The end state (``end``, or ``result`` if ``end`` is None) must have the classes of the gold
    state, each once and in any order, with equal attributes (`same_value`). `calls_made` reads
    the calls from ``steps`` or ``process``. Metrics: ``end_to_end`` (0 or 1) and
    ``process_accuracy``. The error type is the `cause`."""
    ideal, gold = paths(entry.gold["mile_stone"]), entry.gold["ground_truth"]
    state = result if end is None else end
    if entry.id == _FREE_CAPACITY:
        ideal += [[step for step in path if step not in _NEEDLESS] for path in ideal]
        gold, state = _without_kept(gold), _without_kept(state)
    calls = calls_made(process, steps)
    accuracy = max(_match_length(calls, path) / max(len(path), 1) for path in ideal)
    fault = _difference(gold, state)
    metrics = {"end_to_end": int(not fault), "process_accuracy": accuracy}
    if not fault:
        return Verdict(True, metrics=metrics)
    kind, why = cause(entry, calls, ideal)
    return Verdict(False, kind, f"{fault}; {why}", metrics)


def _without_kept(state: Any) -> Any:
    """Return a state without the message `_KEPT` in inboxes."""

    def without(attributes: Any) -> Any:
        inbox = attributes.get("inbox") if isinstance(attributes, dict) else None
        if not isinstance(inbox, dict):
            return attributes
        return {**attributes, "inbox": {n: text for n, text in inbox.items() if str(n) != _KEPT}}

    if not isinstance(state, list):
        return state
    return [
        {name: without(attributes) for name, attributes in item.items()}
        if isinstance(item, dict)
        else item
        for item in state
    ]


def _match_length(calls: list[MadeCall], path: Path) -> int:
    n = 0
    for attempt, step in zip(calls, path, strict=False):
        if attempt.error in CALL_ERRORS or not same_call(attempt.call, step):
            break
        n += 1
    return n


def _difference(gold: list[dict[str, Any]], state: Any) -> str:
    """Return the first difference between the state and the gold state, "" if they are equal."""
    if not isinstance(state, list) or not all(isinstance(item, dict) for item in state):
        return "the state is not a list of classes"
    classes = [(name, attributes) for item in state for name, attributes in item.items()]
    target = {REAL_NAMES.get(n, n): attributes for app in gold for n, attributes in app.items()}
    if sorted(name for name, _ in classes) != sorted(target):
        return f"the classes are not {', '.join(target)}"
    for name, attributes in classes:
        if not isinstance(attributes, dict) or attributes.keys() != target[name].keys():
            return f"{name} does not have the attributes {', '.join(target[name])}"
        if name == REAL_NAMES[_UNREACHABLE] and any(_UNREACHABLE in app for app in gold):
            continue
        for attribute, value in target[name].items():
            if not same_value(attributes[attribute], value):
                return f"{name}.{attribute} has the wrong value"
    return ""
