"""Readers of the formats in which models are known to write calls, whatever the prompt asks for.

A reader that has a counterpart among vLLM's tool parsers has its name. ``fenced_json`` and
``fenced_python`` name the place of the calls; a parser that searches a text for objects, such as
vLLM's ``llama3_json``, reads JSON there too. Readers look at text alone and are more lenient than
vLLM's parsers: they find calls, and give no verdict. An answer is read in linear time; one of more
than `MAX_CODE` characters is not read.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ace_ray.parsing.literals import Call, literal_calls, typed, types_of
from ace_ray.parsing.syntax import MAX_CODE, NotCalls, check_json_depth, expression

# Maximum calls of one answer.
MAX_CALLS = 1_000
_MAX_NAME = 256
# Tools in OpenAI's form.
Tools = Sequence[Mapping[str, Any]]


class KnownCalls(NamedTuple):
    """The calls of a text, at least one, and the first reader that finds them."""

    reader: str
    calls: list[Call]


def known_calls(text: str, tools: Tools = ()) -> KnownCalls | None:
    """Read the calls in ``text``; None if no reader finds any. Never raises.

    ``tools`` are the offered tools, if they are known."""
    if len(text) > MAX_CODE:
        return None
    for name, read in READERS.items():
        try:
            calls = read(text, tools)
        except (NotCalls, RecursionError):
            continue
        if 0 < len(calls) <= MAX_CALLS:
            return KnownCalls(name, calls)
    return None


def _hermes(text: str, tools: Tools) -> list[Call]:
    """Read ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``.

    One unreadable block spoils all. The last block may lack its end, and a call its arguments."""
    calls = []
    for block in text.split("<tool_call>")[1:]:
        calls += _json_calls(block.partition("</tool_call>")[0], None)
    return calls


_FUNCTION = re.compile(r"<function=\s*+([^\s<>]{1,256})\s*+>\s*+")
_PARAMETER = re.compile(r"\s*+([^\n<>]{1,256})>")


def _functionary(text: str, tools: Tools) -> list[Call]:
    """Read ``<function=f>{"a": 1}</function>``, as Functionary and Llama 3.1 write it.

    A call beside others may lack its object. Without any object the text is `_qwen3_coder`'s."""
    calls, objects = [], 0
    at = text.find("<function=")
    while at >= 0:
        values: list[Any] = []
        begin = _FUNCTION.match(text, at)
        if not begin:
            raise NotCalls("a function without a name")
        at = begin.end()
        if text.startswith("{", at):
            at = _after_blanks(text, _read_value(text, at, values))
        if at < len(text) and not text.startswith("</function>", at):
            raise NotCalls("a function with something else than an object")
        objects += len(values)
        calls.append(_call(begin[1], values[0] if values else {}))
        at = text.find("<function=", at)
    if not objects:
        raise NotCalls("functions without an object")
    return calls


def _qwen3_coder(text: str, tools: Tools) -> list[Call]:
    """Read ``<function=f><parameter=a>1</parameter></function>``, with or without tags around."""
    calls = []
    parts = text.split("<function=")[1:]
    if len(parts) > MAX_CALLS:
        raise NotCalls(f"more than {MAX_CALLS} calls")
    for part in parts:
        begin = _FUNCTION.match(f"<function={part}")
        if not begin:
            raise NotCalls("a function without a name")
        body, ended, _ = part.partition(">")[2].partition("</function>")
        if not ended:
            body = body.partition("</tool_call>")[0]
        before, *parameters = body.split("<parameter=")
        if before.strip():  # JSON, perhaps, whose arguments would be lost
            raise NotCalls("a function with something else than parameters")
        args: dict[str, str] = {}
        for parameter in parameters:
            key = _PARAMETER.match(parameter)
            if not key:
                raise NotCalls("a parameter without a name")
            value = parameter[key.end() :].partition("</parameter>")[0]
            args[key[1]] = value.removeprefix("\n").removesuffix("\n")
        values = {key: _typed(text, tools, begin[1], key) for key, text in args.items()}
        calls.append(_call(begin[1], values))
    return calls


def _typed(text: str, tools: Tools, name: str, parameter: str) -> Any:
    """Convert the text of an XML parameter by the tool's schema; without one, as JSON."""
    functions = (_mapping(tool, "function") for tool in tools)
    root = next((_mapping(f, "parameters") for f in functions if f.get("name") == name), {})
    properties = _mapping(root, "properties")
    if parameter in properties:
        return typed(text, types_of(properties[parameter], root), _value)
    try:
        return _value(text)
    except NotCalls:
        return {"true": True, "false": False, "none": None}.get(text.lower(), text)


def _mapping(tree: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = tree.get(key)
    return value if isinstance(value, Mapping) else {}


def _value(text: str) -> Any:
    """Parse all of ``text`` as one JSON value. Raises `NotCalls`."""
    values: list[Any] = []
    text = text.strip()
    if not text or _read_value(text, 0, values) < len(text):
        raise NotCalls("not a JSON value")
    return values[0]


_NAMED = re.compile(
    r"([\w.-]{1,256})(?:\[CALL_ID\]\w{1,64})?(?:\[ARGS\])?\s*+(\{.*+)", re.DOTALL | re.ASCII
)


def _mistral(text: str, tools: Tools) -> list[Call]:
    """Read ``[TOOL_CALLS]`` before a JSON list, or before each ``name{...}`` or
    ``name[ARGS]{...}``."""
    calls = []
    for part in text.split("[TOOL_CALLS]")[1:]:
        part = part.strip().removesuffix("</s>")
        if named := _NAMED.fullmatch(part):
            (args,) = _values(named[2], most=1)
            calls.append(_call(named[1], args))
        else:
            calls += _json_calls(part, None)
    return calls


def _fenced_json(text: str, tools: Tools) -> list[Call]:
    """Read the calls of all fenced blocks that are JSON and hold nothing but calls."""
    return _of_blocks(text, lambda block: _json_calls(block, tools))


def _fenced_python(text: str, tools: Tools) -> list[Call]:
    """Read the calls of all fenced blocks that are one call, or one list of calls."""
    return _of_blocks(text, _python_calls)


def _llama3_json(text: str, tools: Tools) -> list[Call]:
    """Read every JSON object, with any text around it. One that is not a call spoils all, as with
    vLLM's parser."""
    values: list[Any] = []
    at = text.find("{")
    while at >= 0:
        at = text.find("{", _read_value(text, at, values))
    return _calls_of(values, tools)


def _pythonic(text: str, tools: Tools) -> list[Call]:
    """Read a text that is ``[f(a=1)]`` or ``f(a=1)`` as a whole."""
    text = text.strip().removeprefix("<|python_start|>").removesuffix("<|python_end|>")
    return _python_calls(text.removeprefix("<|python_tag|>"))


# Readers in the order in which they are tried. Each raises `NotCalls`, or finds no calls.
READERS: dict[str, Callable[[str, Tools], list[Call]]] = {
    "hermes": _hermes,
    "functionary": _functionary,
    "qwen3_coder": _qwen3_coder,
    "mistral": _mistral,
    "fenced_json": _fenced_json,
    "fenced_python": _fenced_python,
    "llama3_json": _llama3_json,
    "pythonic": _pythonic,
}

_LANGUAGE = re.compile(r"[A-Za-z0-9_+-]*+")


def _of_blocks(text: str, read: Callable[[str], list[Call]]) -> list[Call]:
    calls = []
    for block in text.split("```")[1::2]:  # the last one may lack its end
        # A language's name is one only before a line's end: `f(a=1)` may follow at once.
        named = _LANGUAGE.match(block)
        first, _, rest = block.partition("\n")
        if named and (first.strip() == named[0] or block[named.end() :].lstrip()[:1] in "[{"):
            rest = block[named.end() :]
        else:
            rest = block
        try:
            calls += read(rest)
        except NotCalls:
            continue
    return calls


_JSON_WORDS = {"true": True, "false": False, "null": None}


class _JsonWords(ast.NodeTransformer):
    """Makes values of JSON's words among Python's, as vLLM's parsers do."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(_JSON_WORDS[node.id]) if node.id in _JSON_WORDS else node


def _python_calls(text: str) -> list[Call]:
    text = text.strip()
    if text[-1:] not in (")", "]"):  # prose is not worth a parser's time
        raise NotCalls("no call at its end")
    if text[:1] != "[":
        text = f"[{text}]"
    calls = literal_calls(_JsonWords().visit(expression(text)))
    return [_call(call.name, call.args) for call in calls]


def _json_calls(text: str, tools: Tools | None) -> list[Call]:
    """Read the calls of a text that is JSON: an object, a list, or several one after the other."""
    calls = _calls_of(_values(text), tools)
    if not calls:
        raise NotCalls("no calls")
    return calls


def _calls_of(values: Sequence[Any], tools: Tools | None) -> list[Call]:
    calls: list[Call] = []
    for value in values:
        if isinstance(value, dict) and isinstance(value.get("tool_calls"), list):
            value = value["tool_calls"]
        items = value if isinstance(value, list) else [value]
        calls += [json_call(item, tools) for item in items]
    return calls


_CALL_KEYS = frozenset(["name", "function", "arguments", "parameters", "id", "type", "index"])


def json_call(item: Any, tools: Tools | None) -> Call:
    """Read ``{"name", "arguments"}``, ``{"name", "parameters"}``, or OpenAI's form with either
    inside ``function``.

    Arguments may be missing or null where the text is marked as a call (``tools`` is None), or
    where one of ``tools`` has that name. Then any other key makes it no call: its value would be
    lost. Raises `NotCalls` for anything else, the description of a function included.
    """
    if isinstance(item, dict) and isinstance(item.get("function"), dict):
        item = {**item, "function": None, **item["function"]}
    if not isinstance(item, dict):
        raise NotCalls("not an object")
    name = item.get("name") or item.get("function")
    args = item.get("arguments")
    if args is None:
        args = item.get("parameters")
        if isinstance(args, dict) and {"type", "properties"} <= args.keys():
            raise NotCalls("a function's description")
    if isinstance(args, str) and args:
        args = _value(args)
    if args is None or args == "":
        offered = tools is None or any(_mapping(t, "function").get("name") == name for t in tools)
        if not offered or not item.keys() <= _CALL_KEYS:
            raise NotCalls("no arguments")
        args = {}
    return _call(name, args)


def _call(name: Any, args: Any) -> Call:
    """Make a call. Raises `NotCalls` if it has no name, or its arguments are not JSON."""
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME:
        raise NotCalls("a call without a name")
    if not isinstance(args, dict):
        raise NotCalls("arguments that are not an object")
    try:
        # Tuples become lists, and names of keys texts.
        return Call(name, json.loads(json.dumps(args, allow_nan=False)))
    except (TypeError, ValueError) as error:
        raise NotCalls(f"arguments that are not JSON: {str(error)[:80]}") from None


_BETWEEN = re.compile(r"[\s,;]*+")
_DECODER = json.JSONDecoder()


def _values(text: str, most: int = MAX_CALLS) -> list[Any]:
    """Parse all of ``text`` as JSON values with blanks, ``,`` or ``;`` between them.

    Raises `NotCalls` without a value, for more than ``most``, and for anything else among them."""
    values: list[Any] = []
    at = _after_blanks(text, 0)
    while at < len(text):
        at = _after_blanks(text, _read_value(text, at, values))
    if not 0 < len(values) <= most:
        raise NotCalls(f"{len(values)} values")
    return values


def _read_value(text: str, at: int, values: list[Any]) -> int:
    """Append the JSON value at ``at`` to ``values``, and return its end.

    Raises `NotCalls` without a value, if it is nested too deep, or for too many values."""
    if len(values) == MAX_CALLS:
        raise NotCalls(f"more than {MAX_CALLS} values")
    check_json_depth(text, at)
    try:
        value, end = _DECODER.raw_decode(text, at)
    except ValueError as error:  # digits beyond Python's limit, too
        raise NotCalls(f"not JSON: {str(error)[:80]}") from None
    values.append(value)
    return end


def _after_blanks(text: str, at: int) -> int:
    match = _BETWEEN.match(text, at)
    return match.end() if match else at
