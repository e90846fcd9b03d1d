"""Find calls in the formats that models often use, even if the prompt asks for another format.

Each reader reads one format. If vLLM has a tool parser for the format, the reader has the parser's
name. ``fenced_json`` and ``fenced_python`` read fenced code blocks. Readers use only the text, and
are more lenient than vLLM's parsers. They find calls, but do not decide whether an answer is
correct. Reading takes linear time. An answer of more than `MAX_CODE` characters is not read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ace_ray.parsing.literals import Call, literal_calls, replace_json_words, to_type, types_of
from ace_ray.parsing.syntax import MAX_CODE, NotCalls, check_json_depth, expression

# Maximum calls in one answer.
MAX_CALLS = 1_000
_MAX_NAME = 256
# Tools in OpenAI's form.
Tools = Sequence[Mapping[str, Any]]


class ParsedCalls(NamedTuple):
    """The calls in a text (at least one), and the name of the reader that found them."""

    reader: str
    calls: list[Call]


def parse_known_formats(text: str, tools: Tools = ()) -> ParsedCalls | None:
    """Return the calls that the first successful reader finds in ``text``; None if no reader
    succeeds. Never raises.

    ``tools`` are the offered tools, if they are known."""
    if len(text) > MAX_CODE:
        return None
    for name, read in READERS.items():
        try:
            calls = read(text, tools)
        except (NotCalls, RecursionError):
            continue
        if 0 < len(calls) <= MAX_CALLS:
            return ParsedCalls(name, calls)
    return None


def _hermes(text: str, tools: Tools) -> list[Call]:
    """Read ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``.

    An unreadable block is an error. The last end tag and the arguments of a call may be missing."""
    calls = []
    for block in text.split("<tool_call>")[1:]:
        calls += _json_calls(block.partition("</tool_call>")[0], None)
    return calls


_FUNCTION = re.compile(r"<function=\s*+([^\s<>]{1,256})\s*+>\s*+")
_PARAMETER = re.compile(r"\s*+([^\n<>]{1,256})>")


def _functionary(text: str, tools: Tools) -> list[Call]:
    """Read ``<function=f>{"a": 1}</function>``, as Functionary and Llama 3.1 write it.

    Some calls may lack the object. If all calls lack it, `_qwen3_coder` reads the text instead."""
    calls, objects = [], 0
    at = text.find("<function=")
    while at >= 0:
        values: list[Any] = []
        begin = _FUNCTION.match(text, at)
        if not begin:
            raise NotCalls("a function without a name")
        at = begin.end()
        if text.startswith("{", at):
            at = _skip_blanks(text, _read_value(text, at, values))
        if at < len(text) and not text.startswith("</function>", at):
            raise NotCalls("a function with something other than an object")
        objects += len(values)
        calls.append(_call(begin[1], values[0] if values else {}))
        at = text.find("<function=", at)
    if not objects:
        raise NotCalls("functions without an object")
    return calls


def _qwen3_coder(text: str, tools: Tools) -> list[Call]:
    """Read ``<function=f><parameter=a>1</parameter></function>``, also inside other tags."""
    calls = []
    parts = text.split("<function=")[1:]
    if len(parts) > MAX_CALLS:
        raise NotCalls(f"more than {MAX_CALLS} calls")
    for part in parts:
        begin = _FUNCTION.match(f"<function={part}")
        if not begin:
            raise NotCalls("a function without a name")
        body, end_tag, _ = part.partition(">")[2].partition("</function>")
        if not end_tag:
            body = body.partition("</tool_call>")[0]
        before, *parameters = body.split("<parameter=")
        if before.strip():  # perhaps JSON arguments, which would be lost
            raise NotCalls("a function with something other than parameters")
        values: dict[str, Any] = {}
        for parameter in parameters:
            key = _PARAMETER.match(parameter)
            if not key:
                raise NotCalls("a parameter without a name")
            value = parameter[key.end() :].partition("</parameter>")[0]
            value = value.removeprefix("\n").removesuffix("\n")
            values[key[1]] = _convert(value, tools, begin[1], key[1])
        calls.append(_call(begin[1], values))
    return calls


def _convert(text: str, tools: Tools, name: str, parameter: str) -> Any:
    """Convert a parameter's text to its type in the schema. Without a type, parse it as JSON."""
    functions = (_mapping(tool, "function") for tool in tools)
    root = next((_mapping(f, "parameters") for f in functions if f.get("name") == name), {})
    properties = _mapping(root, "properties")
    if parameter in properties:
        return to_type(text, types_of(properties[parameter], root), _parse_json)
    try:
        return _parse_json(text)
    except NotCalls:
        return {"true": True, "false": False, "none": None}.get(text.lower(), text)


def _mapping(tree: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = tree.get(key)
    return value if isinstance(value, Mapping) else {}


def _parse_json(text: str) -> Any:
    """Parse all of ``text`` as one JSON value. Raises `NotCalls` if it is anything else."""
    values: list[Any] = []
    text = text.strip()
    if not text or _read_value(text, 0, values) < len(text):
        raise NotCalls("not a JSON value")
    return values[0]


_NAMED = re.compile(
    r"([\w.-]{1,256})(?:\[CALL_ID\]\w{1,64})?(?:\[ARGS\])?\s*+(\{.*+)", re.DOTALL | re.ASCII
)


def _mistral(text: str, tools: Tools) -> list[Call]:
    """Read ``[TOOL_CALLS]`` followed by a JSON list, ``name{...}`` or ``name[ARGS]{...}``."""
    calls = []
    for part in text.split("[TOOL_CALLS]")[1:]:
        part = part.strip().removesuffix("</s>")
        if match := _NAMED.fullmatch(part):
            (args,) = _values(match[2], max_values=1)
            calls.append(_call(match[1], args))
        else:
            calls += _json_calls(part, None)
    return calls


def _fenced_json(text: str, tools: Tools) -> list[Call]:
    """Read the calls in all fenced code blocks that contain only calls in JSON."""
    return _read_blocks(text, lambda block: _json_calls(block, tools))


def _fenced_python(text: str, tools: Tools) -> list[Call]:
    """Read the calls in all fenced code blocks that consist of a Python call or a list of calls."""
    return _read_blocks(text, _python_calls)


def _llama3_json(text: str, tools: Tools) -> list[Call]:
    """Read every JSON object in the text as a call; as in vLLM, any other object is an error."""
    values: list[Any] = []
    at = text.find("{")
    while at >= 0:
        at = text.find("{", _read_value(text, at, values))
    return _calls_of(values, tools)


def _pythonic(text: str, tools: Tools) -> list[Call]:
    """Read a text that consists only of ``[f(a=1)]`` or ``f(a=1)``."""
    text = text.strip().removeprefix("<|python_start|>").removesuffix("<|python_end|>")
    return _python_calls(text.removeprefix("<|python_tag|>"))


# Readers in the order in which they are tried. A reader that fails raises `NotCalls` or returns [].
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

# The first word of a block, if it fills its line, or if ``[`` or ``{`` follows.
_LANGUAGE = re.compile(r"\A[A-Za-z0-9_+-]*+(?=[^\S\n]*+\n|\s*+(?:[\[{]|\Z))")


def _read_blocks(text: str, read: Callable[[str], list[Call]]) -> list[Call]:
    calls = []
    for block in text.split("```")[1::2]:  # the last block may lack its end
        try:
            calls += read(_LANGUAGE.sub("", block))
        except NotCalls:
            continue
    return calls


def _python_calls(text: str) -> list[Call]:
    text = text.strip()
    if text[-1:] not in (")", "]"):  # do not spend time on parsing prose
        raise NotCalls("no call at its end")
    if text[:1] != "[":
        text = f"[{text}]"
    calls = literal_calls(replace_json_words(expression(text)))
    return [_call(call.name, call.args) for call in calls]


def _json_calls(text: str, tools: Tools | None) -> list[Call]:
    """Read the calls in a JSON text of objects or lists. Raises `NotCalls` if it has no calls."""
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
    """Read ``{"name", "arguments"}`` or ``{"name", "parameters"}`` as a call. As in OpenAI's form,
    these keys may be inside ``function``.

    Arguments may be missing or null if the text is marked as a call (``tools`` is None), or if one
    of ``tools`` has this name. But an object with unknown keys needs arguments. Raises `NotCalls`
    for anything else, including the description of a function."""
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
        args = _parse_json(args)
    if args is None or args == "":
        offered = tools is None or any(_mapping(t, "function").get("name") == name for t in tools)
        if not offered or not item.keys() <= _CALL_KEYS:
            raise NotCalls("no arguments")
        args = {}
    return _call(name, args)


def _call(name: Any, args: Any) -> Call:
    """Build a call. Raises `NotCalls` if the name is missing or the arguments are not JSON."""
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME:
        raise NotCalls("a call without a name")
    if not isinstance(args, dict):
        raise NotCalls("arguments that are not an object")
    try:
        # Converts tuples to lists, and keys to strings.
        return Call(name, json.loads(json.dumps(args, allow_nan=False)))
    except (TypeError, ValueError) as error:
        raise NotCalls(f"arguments that are not JSON: {str(error)[:80]}") from None


_BETWEEN = re.compile(r"[\s,;]*+")
_DECODER = json.JSONDecoder()


def _values(text: str, max_values: int = MAX_CALLS) -> list[Any]:
    """Parse the complete ``text`` as JSON values, separated by blanks, ``,`` or ``;``.

    Raises `NotCalls` if there is no value, more than ``max_values``, or other text between them."""
    values: list[Any] = []
    at = _skip_blanks(text, 0)
    while at < len(text):
        at = _skip_blanks(text, _read_value(text, at, values))
    if not 0 < len(values) <= max_values:
        raise NotCalls(f"{len(values)} values")
    return values


def _read_value(text: str, at: int, values: list[Any]) -> int:
    """Append the JSON value at index ``at`` to ``values``, and return the index after the value.
    Raises `NotCalls` if there is no JSON value, if it is nested too deep, or if ``values`` is full.
    """
    if len(values) == MAX_CALLS:
        raise NotCalls(f"more than {MAX_CALLS} values")
    check_json_depth(text, at)
    try:
        value, end = _DECODER.raw_decode(text, at)
    except ValueError as error:  # also for more digits than Python's limit
        raise NotCalls(f"not JSON: {str(error)[:80]}") from None
    values.append(value)
    return end


def _skip_blanks(text: str, at: int) -> int:
    match = _BETWEEN.match(text, at)
    return match.end() if match else at
