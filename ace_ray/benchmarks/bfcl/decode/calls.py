"""Define a model's answer and the calls read from it, and decode calls in JSON and XML.

The decoders follow ``json_parser.py`` and ``xml_parser.py`` of upstream's ``model_handler/parser``.
Text before and after the calls is ignored. JSON: ``[{"function": name, "parameters": {...}},
...]``. XML: ``<functions><function name=...>...``. A parameter has a type, and its value is in an
attribute (verbose) or in the content (concise). The parsed text begins with the root element, so it
cannot define a document type or entities."""

from __future__ import annotations

import ast
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from ace_ray.parsing.syntax import MAX_CODE, MAX_DEPTH, NotCalls, bounded_json, expression
from ace_ray.types import Completion, ToolCall


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of a model. In prompt mode ``text`` contains the calls, and ``calls`` is None. In
    native mode ``calls`` are the tool parser's, and ``text`` is the text around them."""

    text: str | None
    """Text of the answer; None for a stored ``[]``, which may stand for a text without calls."""
    calls: tuple[ToolCall, ...] | None = None
    unreadable: bool = False
    """True for a stored answer in a shape on which upstream's decoder raises."""

    @classmethod
    def from_completion(cls, completion: Completion) -> Answer:
        if completion.tools is None:
            return cls(completion.text)
        return cls(completion.tools.content, completion.tools.calls)

    @classmethod
    def from_json(cls, value: Any) -> Answer:
        """Read an answer that `as_json` wrote."""
        if not isinstance(value, Mapping):
            return cls(str(value))
        calls = tuple(ToolCall(name, arguments) for name, arguments in value["calls"])
        return cls(value["content"], calls, value.get("unreadable") is True)

    def as_json(self) -> Any:
        if self.calls is None:
            return self.text
        calls = [[call.name, call.arguments] for call in self.calls]
        stored: dict[str, Any] = {"content": self.text, "calls": calls}
        return stored | {"unreadable": True} if self.unreadable else stored


class DecodedCall(NamedTuple):
    """One call of an answer, as upstream's decoder reads it.

    ``name`` and ``args`` can have any type if they come from JSON. The key None in ``args`` stands
    for ``**`` in Python, and for a positional argument in Java and JavaScript. ``positional`` maps
    the index of a positional argument to a function that returns its value, and may raise
    `NotCalls` or `Refusal`. ``bare``: number of positional arguments that upstream keeps
    under None; with several, upstream's decoder fails. ``repeated``: an argument name that is given
    twice; upstream takes the last value."""

    name: Any
    args: Any
    positional: Mapping[int, Callable[[], Any]] = MappingProxyType({})
    bare: int = 0
    repeated: str | None = None


_LIST_BEGINS = re.compile(r"\[\s*+\{")
_LIST_ENDS = re.compile(r"\}\s*+\]")


def read_json(text: str) -> list[DecodedCall]:
    """Read the calls of a JSON list in a text; return an empty list if the text is not JSON.

    Raises `NotCalls` if a call lacks ``function`` or ``parameters``, if the JSON is a number,
    boolean or null, and beyond the bounds of `bounded_json`."""
    first, last = text.find("["), text.rfind("]")
    if 0 <= first < last:
        text = text[first : last + 1]
    begin = _LIST_BEGINS.search(text)
    end = begin and _LIST_ENDS.search(text, begin.end())
    if begin and end:
        text = text[begin.start() : end.end()]
    try:
        value = bounded_json(text)
    except json.JSONDecodeError:
        return []
    if not isinstance(value, (list, dict, str)):
        raise NotCalls("JSON that is not a list")
    calls = [item for item in value if isinstance(item, dict)]
    for call in calls:
        if "function" not in call or "parameters" not in call:
            raise NotCalls("an object without function and parameters")
        if isinstance(call["function"], (list, dict)):
            raise NotCalls("a function name that is not a string")
    return [DecodedCall(call["function"], call["parameters"]) for call in calls]


_BEGIN, _END = "<functions>", "</functions>"
_LITERALS = ("array", "tuple", "object", "dict")


def read_xml(text: str, *, verbose: bool) -> list[DecodedCall]:
    """Read the calls of the first ``<functions>`` element; the text before and after it is ignored.
    Raises `NotCalls` where upstream's decoder raises, and beyond `MAX_CODE` and `MAX_DEPTH`."""
    begin = text.find(_BEGIN)
    end = text.find(_END, begin)
    if begin < 0 or end < 0:
        raise NotCalls("no <functions> element")
    return [
        _xml_call(function, verbose) for function in _xml_elements(text[begin : end + len(_END)])
    ]


def _xml_elements(text: str) -> list[ET.Element]:
    if len(text) > MAX_CODE:
        raise NotCalls(f"longer than {MAX_CODE} characters")
    parser = ET.XMLParser(target=_BoundedBuilder())
    try:
        parser.feed(text)
        root: ET.Element = parser.close()
    except (ET.ParseError, ValueError) as error:
        raise NotCalls(f"not XML: {str(error)[:200]}") from None
    return root.findall("function")


class _BoundedBuilder(ET.TreeBuilder):
    """Builds an XML tree of at most `MAX_DEPTH` levels. Raises `NotCalls` beyond that."""

    depth = 0

    def start(self, tag: str, attrs: Mapping[str, str], /) -> ET.Element:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise NotCalls(f"elements nested more than {MAX_DEPTH} deep")
        return super().start(tag, dict(attrs))

    def end(self, tag: str, /) -> ET.Element:
        self.depth -= 1
        return super().end(tag)

    def doctype(self, *_: object) -> None:
        raise NotCalls("a document type in XML")


def _xml_call(function: ET.Element, verbose: bool) -> DecodedCall:
    holder = function.find("params") if verbose else None
    params = (function if holder is None else holder).findall("param")
    args: dict[str | None, Any] = {}
    for param in params:
        kind = param.get("type", "string")
        if verbose:
            args[param.get("name")] = _xml_value(param.get("value", ""), kind)
        else:
            args[_name_of(param)] = _xml_value((param.text or "").strip(), kind)
    return DecodedCall(_name_of(function), args)


def _name_of(element: ET.Element) -> str:
    name = element.get("name")
    if name is None:
        raise NotCalls(f"a {element.tag} without a name")
    return name


def _xml_value(raw: str, kind: str) -> Any:
    try:
        if kind == "integer":
            return int(raw)
        if kind == "float":
            return float(raw)
    except ValueError:
        raise NotCalls(f"not a valid {kind}") from None
    if kind == "boolean":
        return raw.lower() == "true"
    if kind == "null":
        return None
    if kind not in _LITERALS:
        return raw
    try:
        return ast.literal_eval(expression(raw.lstrip(" \t")))
    except (ValueError, TypeError, ArithmeticError, RecursionError, MemoryError) as error:
        raise NotCalls(f"{type(error).__name__} in a literal") from None
