"""What decoders give: calls as upstream reads them, and what it drops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from ace_ray.calls import NotCalls


class Read(NamedTuple):
    """One call of an answer.

    ``name`` and ``args`` are what upstream's decoder gives, of JSON any values at all. A keyword
    None stands for ``**`` in Python, in Java and JavaScript for a value without a name.
    ``positional`` makes the values that have no name, by their places among all arguments; each
    raises `NotCalls` or `Refused` where there is none. ``bare`` counts those that upstream does not
    drop: it fails on more than one. ``repeated`` is a name that is given twice: of its values
    upstream's decoder takes the last.
    """

    name: Any
    args: Any
    positional: Mapping[int, Callable[[], Any]] = MappingProxyType({})
    bare: int = 0
    repeated: str | None = None


def read_of(
    name: str,
    arguments: Any,
    text: Callable[[Any], str],
    value: Callable[[Any], str],
    *,
    bare: tuple[str, ...],
    comments: tuple[str, ...],
) -> Read:
    """The call of ``name`` with the nodes of a syntax tree as its ``arguments``.

    ``bare`` and ``comments`` are types of nodes. Raises `NotCalls` for a name that is given twice.
    """
    args: dict[str | None, Any] = {}
    positional = {}
    place = count = 0
    for node in arguments:
        if node.type == "assignment_expression":
            left, _, right = node.children[:3]
            key = text(left)
            if key in args:
                raise NotCalls("a repeated argument")
            place += 1
            args[key] = value(right)
        elif node.is_named and node.type not in comments:
            positional[place] = partial(value, node)
            place += 1
            if node.type in bare:
                count += 1
                args.setdefault(None, text(node))
    return Read(name, args, positional, count)
