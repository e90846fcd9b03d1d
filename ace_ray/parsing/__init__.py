"""Model text to tool calls and back, within bounds; nothing a model says is executed.

Layers, each usable alone:

- `syntax`: any Python expression as an `ast` tree, with bounds on length, depth and digits;
- `literals` and `fold`: the meaning of such a tree: literal calls, a lenient decoder's calls, or
  bounded arithmetic;
- `known`: the formats in which models write calls.

Benchmarks differ in how lenient they decode; what they share is here, their quirks are theirs.
"""

from __future__ import annotations

from ace_ray.parsing.fold import Refused, operate
from ace_ray.parsing.literals import (
    Call,
    LenientReader,
    dotted_name,
    literal,
    literal_calls,
    render,
)
from ace_ray.parsing.syntax import (
    MAX_CHARS,
    MAX_CODE,
    MAX_DEPTH,
    MAX_DIGITS,
    NotCalls,
    check_json_depth,
    expression,
)

__all__ = [
    "MAX_CHARS",
    "MAX_CODE",
    "MAX_DEPTH",
    "MAX_DIGITS",
    "Call",
    "LenientReader",
    "NotCalls",
    "Refused",
    "check_json_depth",
    "dotted_name",
    "expression",
    "literal",
    "literal_calls",
    "operate",
    "parse_calls",
    "render",
]


def parse_calls(text: str) -> list[Call]:
    """Read the calls of a text that is exactly one list of literal calls.

    Raises `NotCalls` for anything else."""
    return literal_calls(expression(text))
