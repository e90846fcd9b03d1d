"""One output decoded for both rule sets, with the work that they share done once."""

from __future__ import annotations

import ast
from typing import NamedTuple

from ace_ray.benchmarks.acebench.check.official_decode import calls_of, fragment
from ace_ray.calls import (
    Call,
    NotCalls,
    Refused,
    expression,
    literal_calls,
    plain_calls,
)

_Parsed = list[Call] | ast.expr | NotCalls
"""Plain calls, which mean the same to both rule sets; else a tree; else why there is none."""


class Decoded(NamedTuple):
    """What each rule set reads in an output: calls, or a sentence on why there are none."""

    official: list[Call] | str
    strict: list[Call] | str
    unsafe: bool = False
    """The official decoder would run code here, or do unbounded work."""
    chars: int = 0
    """Length of the text that the official decoder parses."""


def decode(output: str | None, *, whole: bool) -> Decoded:
    """Both readings of an output; ``whole`` as in `fragment`."""
    if output is None:
        return Decoded("there is no output", "there is no output")
    official_text, strict_text = fragment(output, whole=whole), output.strip()
    official_parsed = _parse(official_text)
    if strict_text == official_text:
        strict = _strict(official_parsed, strict_text)
    elif strict_text[:1] == "[" and strict_text[-1:] == "]":
        strict = _strict(_parse(strict_text), strict_text)
    else:
        strict = "the output is not one [...] list"
    chars = 0 if official_text is None else len(official_text)
    if isinstance(official_parsed, list):
        return Decoded(official_parsed, strict, chars=chars)
    if isinstance(official_parsed, NotCalls):
        return Decoded(str(official_parsed), strict, chars=chars)
    try:
        return Decoded(calls_of(official_parsed), strict, chars=chars)
    except (NotCalls, Refused, RecursionError) as error:
        return Decoded(str(error), strict, isinstance(error, Refused), chars)


def _parse(text: str | None) -> _Parsed:
    if text is None:
        return NotCalls("no balanced [...] in the output")
    plain = plain_calls(text)
    if plain is not None:
        return plain
    try:
        return expression(text)
    except NotCalls as error:
        return error


def _strict(parsed: _Parsed, text: str) -> list[Call] | str:
    if isinstance(parsed, list):
        return parsed
    if isinstance(parsed, NotCalls):
        return str(parsed)
    # The tree of `([F()])` or of `[F()] # [1]` is that of the list alone; its place tells.
    lines = text.replace("\r\n", "\n").replace("\r", "\n").encode().split(b"\n")
    if (parsed.lineno, parsed.col_offset) != (1, 0) or (
        (parsed.end_lineno, parsed.end_col_offset) != (len(lines), len(lines[-1]))
    ):
        return "the output is more than one [...] list"
    try:
        return literal_calls(parsed)
    except (NotCalls, RecursionError) as error:
        return str(error)
