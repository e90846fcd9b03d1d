"""Decode an output into calls for both rule sets; the text is parsed once if both read the same.

The official reading reimplements ``eval_main.py`` and ``model_inference/utils.py`` at upstream
commit 56dd66c. It is lenient: names become strings, positional arguments are dropped, and any
unary operator negates: ``+1`` is -1. Upstream runs binary operations with ``eval``;
`ace_ray.parsing.constant_folding` computes or refuses them. Most unquoted values (``2025-Q2``)
contain an undefined name, which is an error.
"""

from __future__ import annotations

import ast
import builtins
import re
from functools import lru_cache
from typing import NamedTuple

from ace_ray.parsing.constant_folding import Refusal
from ace_ray.parsing.literals import Call, LenientReader, literal_calls, replace_json_words
from ace_ray.parsing.syntax import NotCalls, expression

_BRACKETS = re.compile(r"[\[\]]")
# Names defined where upstream calls `eval`: builtins, and names in its module and function.
_KNOWN = frozenset([
    *dir(builtins), "__builtins__", "__cached__", "__file__", "ast", "ast_parse", "decode_ast",
    "json", "resolve_ast_by_type", "resolve_ast_call", "value",
])  # fmt: skip


def fragment(output: str, *, whole_output: bool) -> str | None:
    """Return the part of an output that the official reading parses, or None.

    With ``whole_output`` (multi-turn categories) it is the complete output without whitespace, even
    in strings. Otherwise it is the first outermost balanced ``[...]``. All brackets from the start
    of the output count, even in strings, so that a stray ``]`` shifts the count."""
    if whole_output:
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


def calls_of_list(tree: ast.expr) -> list[Call]:
    """Return the calls in the syntax tree of a list, tuple or set of calls, in order.

    Raises `NotCalls` where upstream's decoder raises and `Refusal` for an operation that
    `constant_folding` refuses, whichever comes first in upstream's order of evaluation."""
    if not isinstance(tree, (ast.List, ast.Tuple, ast.Set)):
        raise NotCalls(f"{type(tree).__name__} in place of a list")
    reader = LenientReader(_KNOWN.__contains__, bare_as_source=False)
    calls = []
    for item in tree.elts:
        if not isinstance(item, ast.Call):
            raise NotCalls(f"{type(item).__name__} in place of a call")
        calls.append(reader.call(item))
    return calls


# The syntax tree of a text, or the reason why the text has none.
_Parsed = ast.expr | NotCalls


class DecodedOutput(NamedTuple):
    """Calls that each rule set reads in an output, or a sentence that says why it reads none."""

    official: list[Call] | str
    strict: list[Call] | str
    unsafe: bool = False
    """True if upstream's decoder would run code of the model, or do unbounded work."""
    chars: int = 0
    """Length of the text that the official reading parses."""


# Cached: the check, and then the search for unread calls, decode the same output.
@lru_cache(maxsize=1)
def decode_for_both_rules(output: str | None, *, whole_output: bool) -> DecodedOutput:
    """Decode an output by both rule sets. ``whole_output``: the category is multi-turn."""
    if output is None:
        return DecodedOutput("there is no output", "there is no output")
    official_text, strict_text = fragment(output, whole_output=whole_output), output.strip()
    official_parsed = _parse(official_text)
    if strict_text == official_text:
        strict = _read_calls(official_parsed, strict_text)
    elif strict_text[:1] == "[" and strict_text[-1:] == "]":
        strict = _read_calls(_parse(strict_text), strict_text)
    else:
        strict = "the output is not one [...] list"
    chars = 0 if official_text is None else len(official_text)
    if isinstance(official_parsed, NotCalls):
        return DecodedOutput(str(official_parsed), strict, chars=chars)
    try:
        return DecodedOutput(calls_of_list(official_parsed), strict, chars=chars)
    except (NotCalls, Refusal, RecursionError) as error:
        return DecodedOutput(str(error), strict, isinstance(error, Refusal), chars)


def _parse(text: str | None) -> _Parsed:
    if text is None:
        return NotCalls("no balanced [...] in the output")
    try:
        return expression(text)
    except NotCalls as error:
        return error


def _read_calls(parsed: _Parsed, text: str) -> list[Call] | str:
    if isinstance(parsed, NotCalls):
        return str(parsed)
    # `([F()])` and `[F()] # [1]` have the same tree as the list alone; only its position differs.
    lines = text.replace("\r\n", "\n").replace("\r", "\n").encode().split(b"\n")
    if (parsed.lineno, parsed.col_offset) != (1, 0) or (
        (parsed.end_lineno, parsed.end_col_offset) != (len(lines), len(lines[-1]))
    ):
        return "the output is more than one [...] list"
    try:
        # A second tree: the official reading needs the names in the first.
        return literal_calls(replace_json_words(expression(text)))
    except (NotCalls, RecursionError) as error:
        return str(error)
