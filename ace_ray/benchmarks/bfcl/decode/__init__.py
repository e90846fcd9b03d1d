"""Decode a model's answer into calls. An answer is native tool calls, or text in a prompt form.

The rules are upstream's (``model_handler/utils.py``, ``parser/*``,
``api_inference/openai_completion.py``). Nothing in an answer is executed, and all work is bounded.

Upstream's decoder of Python is lenient. Names become strings (``true`` is "true"), every unary
operator negates, and positional arguments are dropped. A call that is an argument becomes an
object; if it lacks keyword arguments, it becomes its source text. Upstream runs binary operations
through ``eval``; here operations on literals are computed. Most other operations fail in upstream,
because the names that models use (``base * height``) are undefined there. These failures are
recognised without running anything. All other operations would run code in upstream; they are
refused (`Refusal`).

A Python keyword as an argument's name (``flight_book(from="Seattle")``) is a syntax error in
upstream, which finds no call. Under ``strict`` it is a call."""

from __future__ import annotations

import ast
import builtins
import json
import keyword
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from ace_ray.benchmarks.bfcl.categories import DEFAULT, Form, Language
from ace_ray.benchmarks.bfcl.decode.calls import Answer, DecodedCall, read_json, read_xml
from ace_ray.benchmarks.bfcl.decode.source_trees import read_java, read_javascript
from ace_ray.parsing.constant_folding import Refusal
from ace_ray.parsing.literals import LenientReader
from ace_ray.parsing.syntax import MAX_CHARS, NotCalls, bounded_json, expression
from ace_ray.types import ToolCall

MAX_NATIVE_CALLS = 10_000


def decode(
    text: str, form: Form = DEFAULT, language: Language = "python"
) -> list[dict[Any, dict[Any, Any]]]:
    """Decode a text into calls: ``[{name: {parameter: value}}, ...]``.

    Raises `NotCalls` if upstream's decoder returns no list, `Refusal` if that would run code."""
    calls = read(text, form, language)
    if calls is None:
        raise NotCalls("no call")
    for call in calls:
        if call.bare > 1:
            raise NotCalls("several positional arguments")
        if not isinstance(call.args, Mapping):
            raise NotCalls("arguments that are not an object")
    return [{call.name: call.args} for call in calls]


def executable_calls(answer: Answer) -> list[str] | None:
    """Return the calls of an episode's answer as strings ``name(key=value, ...)``.

    Return None for an answer that does not decode or contains no call."""
    if answer.unreadable:
        return None
    try:
        if answer.calls:
            return _native_texts(answer.calls) if len(answer.calls) <= MAX_NATIVE_CALLS else None
        if answer.calls is not None:
            return None
        decoded = decode(answer.text or "")
        return [_call_text(name, args) for call in decoded for name, args in call.items()] or None
    except (ValueError, Refusal, RecursionError):  # `NotCalls` too
        return None


def read_answer(answer: Answer, form: Form, language: Language) -> list[DecodedCall] | None:
    """Read the calls of an answer: native tool calls, or a text, which `read` reads.

    A native answer without calls gives an empty list, or raises `NotCalls` if it has a text."""
    if answer.unreadable:
        raise NotCalls("a stored answer of an unknown shape")
    if answer.calls:
        if len(answer.calls) > MAX_NATIVE_CALLS:
            raise NotCalls(f"more than {MAX_NATIVE_CALLS} calls")
        return [DecodedCall(call.name, _arguments(call)) for call in answer.calls]
    if answer.calls is None:
        return read(answer.text or "", form, language)
    if answer.text:
        raise NotCalls("text instead of calls")
    return []


def holds_calls(answer: Answer, form: Form, language: Language) -> bool:
    """Return whether an answer contains calls, or code that upstream would have to run."""
    try:
        calls = read_answer(answer, form, language)
    except NotCalls:
        return False
    except Refusal:
        return True
    return are_calls(calls)


def are_calls(read: Sequence[DecodedCall] | None) -> bool:
    """Return whether ``read`` has at least one call and the arguments of all calls are objects."""
    return bool(read) and all(isinstance(call.args, dict) for call in read or ())


# Cached because `BFCL.check` and then `BFCL.parse_failures` decode the same answer.
@lru_cache(maxsize=1)
def read(
    text: str, form: Form = DEFAULT, language: Language = "python"
) -> list[DecodedCall] | None:
    """Read the calls of a text as `DecodedCall` objects. Return None if upstream's decoder does not
    return a list.

    Raises `NotCalls` if upstream's decoder raises, and `Refusal` if that would run code."""
    text = _source(text, form)
    if form.returned == "json":
        return read_json(text)
    if form.returned != "python":
        return read_xml(text, verbose=form.returned == "verbose_xml")
    if language == "java":
        return read_java(text[1:-1])
    if language == "javascript":
        return read_javascript(text[1:-1])
    return _python_calls(expression(text.strip().strip("'")))


def read_with_keywords(answer: Answer, form: Form, language: Language) -> list[DecodedCall]:
    """Read the calls of an answer in which a Python keyword is used as an argument's name.

    Upstream's decoder cannot parse such answers, which is a defect. Raises `NotCalls` for all other
    answers, and `Refusal` as `read` does."""
    if answer.calls is not None or form.returned != "python" or language != "python":
        raise NotCalls("not an answer with calls in Python")
    text = _source(answer.text or "", form).strip().strip("'")
    # The mark turns keywords into names, so that the text parses.
    marked = _TOKENS.sub(lambda token: token[0] + _MARK if token[1] else token[0], text)
    if _MARK in text or marked == text:
        raise NotCalls("no argument is named by a keyword")
    tree = expression(marked)
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg is not None:
            node.arg = node.arg.removesuffix(_MARK)
        elif isinstance(node, ast.arg):
            raise NotCalls("a parameter named by a keyword")
    return _python_calls(tree)


def _source(text: str, form: Form) -> str:
    """Return the part of a text that upstream parses. Raises `NotCalls` if tags are missing."""
    if len(text) > MAX_CHARS:
        raise NotCalls(f"longer than {MAX_CHARS} characters")
    text = text.strip("`\n ")
    text = f"{'' if text.startswith('[') else '['}{text}{'' if text.endswith(']') else ']'}"
    if not form.tagged:
        return text
    text, end_tag, _ = text.partition("<TOOLCALL>")[2].partition("</TOOLCALL>")
    if not end_tag:
        raise NotCalls("no <TOOLCALL> tags")
    return text.strip()


def _arguments(call: ToolCall) -> Any:
    try:
        return bounded_json(call.arguments)
    except json.JSONDecodeError:
        raise NotCalls("arguments that are not JSON") from None


def _native_texts(calls: Sequence[ToolCall]) -> list[str]:
    """Return native tool calls as strings ``name(key=value,...)``, with values in Python syntax.
    Raises `NotCalls` for arguments that are not a JSON object."""
    texts = []
    for call in calls:
        args = _arguments(call)
        if not isinstance(args, dict):
            raise NotCalls("arguments that are not an object")
        pairs = ",".join([f"{key}={value!r}" for key, value in args.items()])
        texts.append(f"{call.name}({pairs})")
    return texts


def _call_text(name: Any, args: Mapping[Any, Any]) -> str:
    """Return a call as the string that upstream executes.

    As in upstream, an argument ``{f: {...}, ...}`` whose values are all objects becomes a call of
    ``f``, and its other keys are dropped. Raises `ValueError` for an empty object and for an
    integer that Python is not able to print."""
    return f"{name}({', '.join([f'{key}={_value(value)}' for key, value in args.items()])})"


def _value(value: Any) -> str:
    if not isinstance(value, dict):
        return repr(value)
    if not all(isinstance(inner, dict) for inner in value.values()):
        return "{" + ", ".join([f"'{key}': {_value(item)}" for key, item in value.items()]) + "}"
    if not value:
        raise NotCalls("an empty object in a call")
    name = next(iter(value))
    return _call_text(name, value[name])


def _python_calls(tree: ast.expr) -> list[DecodedCall]:
    """Read the calls of a Python expression: one call, or a list, tuple or set of calls.

    Raises `NotCalls` where upstream's decoder raises, and `Refusal` for an operation that is not
    computed here. If both apply, the first in upstream's order of evaluation is raised."""
    reader = LenientReader(KNOWN.__contains__, bare_as_source=True)
    try:
        if isinstance(tree, ast.Call):
            return [_python_call(tree, reader)]
        if not isinstance(tree, (ast.List, ast.Tuple, ast.Set)):
            raise NotCalls(f"{type(tree).__name__} instead of a list")
        return [_python_call(item, reader) for item in tree.elts]
    except RecursionError:
        raise NotCalls("nested too deep") from None


def _python_call(node: ast.expr, reader: LenientReader) -> DecodedCall:
    if not isinstance(node, ast.Call):
        raise NotCalls(f"{type(node).__name__} instead of a call")
    name, args = reader.call(node)
    positional = {n: partial(_positional_value, item) for n, item in enumerate(node.args)}
    names: set[str | None] = set()
    repeated = None
    for argument in node.keywords:
        if argument.arg in names:
            repeated = argument.arg
        names.add(argument.arg)
    return DecodedCall(name, args, positional, repeated=repeated)


def _positional_value(node: ast.expr) -> Any:
    # A new reader has a new budget for operations. The value may be requested several times.
    return LenientReader(KNOWN.__contains__, bare_as_source=True).value(node)


# Letter that turns a keyword into a name if it is appended. Texts that contain it are not marked.
_MARK = "ꔀ"
# Matches string literals and comments, so that nothing in them is marked, and keywords before a
# single `=`. In an expression, these can only be argument names.
_TOKENS = re.compile(
    r"'''(?:[^'\\]++|\\.|'(?!''))*+(?:''')?+"
    r'|"""(?:[^"\\]++|\\.|"(?!""))*+(?:""")?+'
    r"|'(?:[^'\\\n]++|\\.)*+'?+"
    r'|"(?:[^"\\\n]++|\\.)*+"?+'
    r"|#[^\n]*+"
    rf"|\b({'|'.join(keyword.kwlist)})\b(?=\s*+=(?!=))",
    re.DOTALL,
)


# Names with which upstream's ``eval`` could run code. Other names, except its own, fail there.
KNOWN = frozenset(dir(builtins))
