"""Decode the answer of a model to calls, in a prompt's form and language or as native tool calls.

The rules are upstream's (``model_handler/utils.py``, ``parser/*``, ``api_inference/
openai_completion.py``). Nothing of an answer is executed, and all work is bounded.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from ace_ray.benchmarks.bfcl.categories import DEFAULT, Form, Language
from ace_ray.benchmarks.bfcl.decode.calls import Answer, Read, json_value, read_json, read_xml
from ace_ray.benchmarks.bfcl.decode.python_calls import read_python, read_python_with_keywords
from ace_ray.benchmarks.bfcl.decode.source_trees import read_java, read_javascript
from ace_ray.parsing.fold import Refused
from ace_ray.parsing.syntax import MAX_CHARS, NotCalls
from ace_ray.types import ToolCall

MAX_NATIVE_CALLS = 10_000
_TAG, _TAG_END = "<TOOLCALL>", "</TOOLCALL>"


def decode(
    text: str, form: Form = DEFAULT, language: Language = "python"
) -> list[dict[Any, dict[Any, Any]]]:
    """Decode a text to calls: ``[{name: {parameter: value}}, ...]``.

    Raises `NotCalls` if upstream decodes no such calls, and `Refused` if it would run code."""
    calls = read(text, form, language)
    if calls is None:
        raise NotCalls("no call")
    for call in calls:
        if call.bare > 1:
            raise NotCalls("several arguments without a name")
        if not isinstance(call.args, Mapping):
            raise NotCalls("arguments that are no object")
    return [{call.name: call.args} for call in calls]


def executable(answer: Answer) -> list[str] | None:
    """Return the calls of one step of an episode as texts ``name(key=value, ...)``.

    None for an answer that does not decode, or without a call."""
    if answer.unreadable:
        return None
    try:
        if answer.calls:
            return _native_texts(answer.calls) if len(answer.calls) <= MAX_NATIVE_CALLS else None
        if answer.calls is not None:
            return None
        return _execution_texts(decode(answer.text or "")) or None
    except (NotCalls, Refused, RecursionError):
        return None


def read_any(answer: Answer, form: Form, language: Language) -> list[Read] | None:
    """Read an answer in either mode, as `read`.

    A native answer without calls is an empty list, or raises `NotCalls` if it has a text."""
    if answer.unreadable:
        raise NotCalls("a stored answer of another shape")
    if answer.calls:
        return _read_native(answer.calls)
    if answer.calls is None:
        return read(answer.text or "", form, language)
    if answer.text:
        raise NotCalls("a text in place of calls")
    return []


def holds_calls(answer: Answer, form: Form, language: Language) -> bool:
    """Tell whether an answer holds calls, or code that would have to run to tell."""
    try:
        calls = read_any(answer, form, language)
    except NotCalls:
        return False
    except Refused:
        return True
    return are_calls(calls)


def are_calls(read: Sequence[Read] | None) -> bool:
    """Tell whether an answer was read as at least one call, all with arguments."""
    return bool(read) and all(isinstance(call.args, dict) for call in read or ())


# A check and the search for unread calls decode the same answer, one after the other.
@lru_cache(maxsize=1)
def read(text: str, form: Form = DEFAULT, language: Language = "python") -> list[Read] | None:
    """Read the calls of a text in full; None if upstream's decoder returns something else than a
    list.

    Raises `NotCalls` if upstream's decoder raises, and `Refused` if it would run code."""
    text = _source(text, form)
    if form.returned == "json":
        return read_json(text)
    if form.returned != "python":
        return read_xml(text, verbose=form.returned == "verbose_xml")
    if language == "java":
        return read_java(text[1:-1])
    if language == "javascript":
        return read_javascript(text[1:-1])
    return read_python(text.strip().strip("'"))


def read_with_keywords(answer: Answer, form: Form, language: Language) -> list[Read]:
    """Read the calls of an answer in which a keyword of Python names an argument.

    Upstream's decoder does not parse these: a defect. Raises `NotCalls` for any other answer too,
    and `Refused` as `read` does."""
    if answer.calls is not None or form.returned != "python" or language != "python":
        raise NotCalls("no calls in Python")
    return read_python_with_keywords(_source(answer.text or "", form).strip().strip("'"))


def _source(text: str, form: Form) -> str:
    """Return the part of the text that upstream's decoder parses."""
    if len(text) > MAX_CHARS:
        raise NotCalls(f"longer than {MAX_CHARS} characters")
    text = text.strip("`\n ")
    text = f"{'' if text.startswith('[') else '['}{text}{'' if text.endswith(']') else ']'}"
    return _tagged(text) if form.tagged else text


def _tagged(text: str) -> str:
    begin = text.find(_TAG)
    end = text.find(_TAG_END, begin + len(_TAG))
    if begin < 0 or end < 0:
        raise NotCalls("no <TOOLCALL> tags")
    return text[begin + len(_TAG) : end].strip()


def _read_native(calls: Sequence[ToolCall]) -> list[Read]:
    if len(calls) > MAX_NATIVE_CALLS:
        raise NotCalls(f"more than {MAX_NATIVE_CALLS} calls")
    try:
        return [Read(call.name, json_value(call.arguments)) for call in calls]
    except json.JSONDecodeError:
        raise NotCalls("arguments that are no JSON") from None


def _execution_texts(decoded: Iterable[Mapping[Any, Mapping[Any, Any]]]) -> list[str]:
    """Write calls as the texts that upstream executes.

    An object whose values are all objects is written as a nested call of its first key, so that an
    empty one cannot be written. Raises `NotCalls` there, and for a number that Python does not
    print.
    """
    try:
        return [_call(name, args) for call in decoded for name, args in call.items()]
    except ValueError as error:
        raise NotCalls(str(error)[:200]) from None


def _native_texts(calls: Sequence[ToolCall]) -> list[str]:
    """Write calls that a tool parser read as such texts, all values as Python prints them.

    Raises `NotCalls` for arguments that are not a JSON object."""
    texts = []
    for call in calls:
        try:
            args = json_value(call.arguments)
            if not isinstance(args, dict):
                raise NotCalls("arguments that are no object")
            pairs = ",".join([f"{key}={value!r}" for key, value in args.items()])
        except json.JSONDecodeError:
            raise NotCalls("arguments that are no JSON") from None
        texts.append(f"{call.name}({pairs})")
    return texts


def _call(name: Any, args: Mapping[Any, Any]) -> str:
    return f"{name}({', '.join([f'{key}={_value(value)}' for key, value in args.items()])})"


def _value(value: Any) -> str:
    if not isinstance(value, dict):
        return repr(value)
    if not all(isinstance(inner, dict) for inner in value.values()):
        return "{" + ", ".join([f"'{key}': {_value(item)}" for key, item in value.items()]) + "}"
    if not value:
        raise NotCalls("an empty object in a call")
    name = next(iter(value))
    return _call(name, value[name])
