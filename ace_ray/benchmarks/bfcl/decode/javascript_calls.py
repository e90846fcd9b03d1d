"""Calls in JavaScript, as upstream's decoder reads them (``model_handler/parser/js_parser.py``).

Values are texts of source, without the quotes around them."""

from __future__ import annotations

from functools import partial
from typing import Any

from ace_ray.benchmarks.bfcl.decode.reading import Read
from ace_ray.benchmarks.bfcl.decode.source_trees import source_tree
from ace_ray.calls import NotCalls

_BARE = ("identifier", "true")


def read_javascript(text: str) -> list[Read] | None:
    """The first call that is a statement of its own, within a list; None when there is none.

    Raises `NotCalls` where upstream's decoder raises."""
    root = source_tree(text, "javascript")
    if root.type != "program":
        return None
    for statement in root.children:
        if statement.type == "expression_statement":
            for part in statement.children:
                if part.type == "call_expression":
                    return [_read(part)]
    return None


def _read(call: Any) -> Read:
    called, arguments = call.children[:2]
    args: dict[str | None, Any] = {}
    positional = {}
    place = bare = 0
    for child in arguments.children:
        if child.type == "assignment_expression":
            left, _, right = child.children[:3]
            key = _text(left)
            if key in args:
                raise NotCalls("a repeated argument")
            place += 1
            args[key] = _value(right)
        elif child.is_named and child.type != "comment":
            positional[place] = partial(_value, child)
            place += 1
            if child.type in _BARE:
                bare += 1
                args.setdefault(None, _text(child))
    return Read(_text(called), args, positional, bare)


def _text(node: Any) -> str:
    text: str = node.text.decode()
    return text


def _value(node: Any) -> str:
    text = _text(node)
    return text[1:-1] if text[:1] in ("'", '"') and text.endswith(text[:1]) else text
