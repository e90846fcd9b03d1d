"""Calls written as XML, as upstream reads them (``model_handler/parser/xml_parser.py``).

``<functions><function name=...>...``: the parameters' values in an attribute (verbose) or as
content (concise), each with a type. What is parsed begins with the root element, so it holds no
document type and no entities of its own.
"""

from __future__ import annotations

import ast
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from typing import Any

from ace_ray.benchmarks.bfcl.decode.reading import Read
from ace_ray.calls import MAX_CODE, MAX_DEPTH, NotCalls, expression

_BEGIN, _END = "<functions>", "</functions>"
_LITERALS = ("array", "tuple", "object", "dict")


def read_xml(text: str, *, verbose: bool) -> list[Read]:
    """The calls of the first ``<functions>`` element, with anything before and behind.

    Raises `NotCalls` where upstream's decoder raises, and beyond `MAX_CODE` and `MAX_DEPTH`."""
    begin = text.find(_BEGIN)
    end = text.find(_END, begin)
    if begin < 0 or end < 0:
        raise NotCalls("no <functions> element")
    return [_call(function, verbose) for function in _root(text[begin : end + len(_END)])]


def _root(text: str) -> list[ET.Element]:
    if len(text) > MAX_CODE:
        raise NotCalls(f"longer than {MAX_CODE} characters")
    parser = ET.XMLParser(target=_Bounded())
    try:
        parser.feed(text)
        root: ET.Element = parser.close()
    except (ET.ParseError, ValueError) as error:
        raise NotCalls(f"no XML: {str(error)[:200]}") from None
    return root.findall("function")


class _Bounded(ET.TreeBuilder):
    """Builds a tree that is at most `MAX_DEPTH` deep."""

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


def _call(function: ET.Element, verbose: bool) -> Read:
    holder = function.find("params") if verbose else None
    params = (function if holder is None else holder).findall("param")
    args: dict[str | None, Any] = {}
    for param in params:
        kind = param.get("type", "string")
        if verbose:
            args[param.get("name")] = _value(param.get("value", ""), kind)
        else:
            args[_named(param)] = _value((param.text or "").strip(), kind)
    return Read(_named(function), args)


def _named(element: ET.Element) -> str:
    name = element.get("name")
    if name is None:
        raise NotCalls(f"a {element.tag} without a name")
    return name


def _value(raw: str, kind: str) -> Any:
    try:
        if kind == "integer":
            return int(raw)
        if kind == "float":
            return float(raw)
    except ValueError:
        raise NotCalls(f"no {kind}") from None
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
