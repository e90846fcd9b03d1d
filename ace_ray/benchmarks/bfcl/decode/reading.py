"""What decoders give: calls as upstream reads them, and what it drops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple


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
