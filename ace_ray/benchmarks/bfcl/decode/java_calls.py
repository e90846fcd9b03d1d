"""Calls in Java, as upstream's decoder reads them (``model_handler/parser/java_parser.py``).

Values are texts of source: without their spaces where an expression is put together from its
parts, without the quotes of a string that stands alone, without the body of an anonymous class.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ace_ray.benchmarks.bfcl.decode.reading import Read, read_of
from ace_ray.benchmarks.bfcl.decode.source_trees import source_tree
from ace_ray.calls import NotCalls

_QUOTED = ("string_literal", "character_literal")
_WHOLE = ("identifier", "class_literal", "type_identifier", "method_invocation")
_BARE = ("identifier", "class_literal")
_COMMENTS = ("line_comment", "block_comment")


def read_java(text: str) -> list[Read] | None:
    """The first call of a text, within a list; None when there is none in it.

    Raises `NotCalls` where upstream's decoder raises."""
    root = source_tree(text, "java")
    try:
        call = _first_call(root)
        return None if call is None else [_read(call, text)]
    except RecursionError:
        raise NotCalls("nested too deep") from None


def _first_call(root: Any) -> Any:
    pending = [root]
    while pending:
        node = pending.pop()
        if node.type == "method_invocation":
            return node
        pending += reversed(node.children)
    return None


def _text(node: Any, source: str) -> str:
    # Offsets are those of bytes, and upstream takes them for those of characters: behind anything
    # that is not ASCII its texts are shifted.
    return source[node.start_byte : node.end_byte]


def _read(call: Any, source: str) -> Read:
    name = _text(call.child_by_field_name("name"), source)
    owner = call.child_by_field_name("object")
    if owner is not None:
        name = f"{_text(owner, source)}.{name}"
    return read_of(
        name,
        call.child_by_field_name("arguments").children,
        partial(_text, source=source),
        partial(_value, source=source),
        bare=_BARE,
        comments=_COMMENTS,
    )


def _value(node: Any, source: str, *, inside: bool = False) -> str:
    kind = node.type
    if kind in _QUOTED:
        text = _text(node, source)
        return text if inside else text[1:-1]
    if kind in _WHOLE:
        return _text(node, source)
    if kind == "array_creation_expression":
        return f"new {_part(node, 'type', source)}[]{_part(node, 'value', source)}"
    if kind == "object_creation_expression":
        arguments = ", ".join(
            _value(child, source, inside=True)
            for child in node.child_by_field_name("arguments").children
            if child.type not in (",", "(", ")")
        )
        return f"new {_part(node, 'type', source)}({arguments})"
    if not node.children:
        return _text(node, source)
    return "".join([_value(child, source, inside=True) for child in node.children])


def _part(node: Any, field: str, source: str) -> str:
    part = node.child_by_field_name(field)
    if part is None:
        raise NotCalls(f"an array without its {field}")
    return _value(part, source, inside=True)
