"""Calls in JavaScript, as upstream's decoder reads them (``model_handler/parser/js_parser.py``).

Values are texts of source, without the quotes around them."""

from __future__ import annotations

from typing import Any

from ace_ray.benchmarks.bfcl.decode.reading import Read, read_of
from ace_ray.benchmarks.bfcl.decode.source_trees import source_tree

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
    nodes = arguments.children
    return read_of(_text(called), nodes, _text, _value, bare=_BARE, comments=("comment",))


def _text(node: Any) -> str:
    text: str = node.text.decode()
    return text


def _value(node: Any) -> str:
    text = _text(node)
    return text[1:-1] if text[:1] in ("'", '"') and text.endswith(text[:1]) else text
