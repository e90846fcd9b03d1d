"""One output decoded for both rule sets, with the work that they share done once.

How the official evaluator finds and reads calls are facts of ``eval_main.py`` and
``model_inference/utils.py`` at upstream commit 56dd66c, restated: it is lenient (names become
strings, positional arguments vanish, every sign negates) and it runs binary operations through
``eval``. Here they are folded (`ace_ray.parsing.fold`) or refused; most unquoted values
(``2025-Q2``) hold a name that means nothing there, which only raises.
"""

from __future__ import annotations

import ast
import builtins
import re
from functools import lru_cache
from typing import Any, NamedTuple

from ace_ray.parsing import (
    Budget,
    Call,
    LenientReader,
    NotCalls,
    Refused,
    expression,
    fold,
    literal_calls,
    plain_calls,
)

_BRACKETS = re.compile(r"[\[\]]")
# Frames that Python's default recursion limit leaves the upstream decoder for writing an operation
# back as text, and what one level of that and of its own descent costs (measured on 3.11).
_FRAMES = 991
_FRAMES_PER_OPERATION = 3
_FRAMES_PER_VALUE = 2
# The names that mean something where upstream evaluates: builtins, its module's and its function's.
_KNOWN = frozenset([
    *dir(builtins), "__builtins__", "__cached__", "__file__", "ast", "ast_parse", "decode_ast",
    "json", "resolve_ast_by_type", "resolve_ast_call", "value",
])  # fmt: skip


def fragment(output: str, *, whole: bool) -> str | None:
    """The part of an output that is parsed.

    With ``whole`` (the multi-turn categories) all of it, without any whitespace, even in strings.
    Otherwise the first outermost balanced ``[...]``, counting brackets from the very start and in
    strings too, so that a stray ``]`` shifts the count; None when there is none.
    """
    if whole:
        return "".join(output.split())
    start, depth = -1, 0
    for bracket in _BRACKETS.finditer(output):
        if bracket.group() == "[":
            if depth == 0:
                start = bracket.start()
            depth += 1
        else:
            depth -= 1
            if depth == 0 and start >= 0:
                return output[start : bracket.end()]
    return None


def calls_of(tree: ast.expr) -> list[Call]:
    """The calls in a list, tuple or set of calls, in order.

    Raises `NotCalls` where the upstream decoder raises and `Refused` on reaching an operation that
    is not folded, whichever comes first in its order of evaluation.
    """
    if not isinstance(tree, (ast.List, ast.Tuple, ast.Set)):
        raise NotCalls(f"{type(tree).__name__} in place of a list")
    reader = LenientReader(_operation, bare_as_source=False)
    calls = []
    for item in tree.elts:
        if not isinstance(item, ast.Call):
            raise NotCalls(f"{type(item).__name__} in place of a call")
        calls.append(reader.call(item, 1))
    return calls


def _operation(node: ast.BinOp, budget: Budget, depth: int) -> Any:
    frames = _FRAMES - depth * _FRAMES_PER_VALUE
    return fold(node, budget, frames // _FRAMES_PER_OPERATION, _KNOWN.__contains__)


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


# A check and the search for unread calls decode the same output, one after the other.
@lru_cache(maxsize=1)
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
