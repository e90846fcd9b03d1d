"""Python expressions in model text, as `ast` trees within bounds.

CPython's own parser refuses most hostile texts (200 nested brackets, 6,000 levels of grammar,
4,300 digits). The bounds here make that independent of the interpreter's version and settings.
"""

from __future__ import annotations

import ast
import re
import threading
import warnings

MAX_CHARS = 65_536
"""Longest text that is parsed; the worst text of this length takes well under a second."""
MAX_DEPTH = 200
"""Deepest bracket nesting, as in CPython's tokenizer."""
MAX_DIGITS = 4_300
"""Longest decimal integer, CPython's default."""

_SPECIAL = re.compile(
    r"""'''|\"\"\"|['"#(){}\[\]]|(?<![\w.])[0-9][0-9_]{""" + str(MAX_DIGITS) + r""",}(?![\w.])"""
)
_STRING_END = {
    "'": re.compile(r"(?:[^\\\n']|\\.)*+'", re.DOTALL),
    '"': re.compile(r'(?:[^\\\n"]|\\.)*+"', re.DOTALL),
    "'''": re.compile(r"(?:[^\\]|\\.)*?'''", re.DOTALL),
    '"""': re.compile(r'(?:[^\\]|\\.)*?"""', re.DOTALL),
}
# What makes the parser warn: odd escapes, and numbers that run into a keyword (`1or`).
_WARNS = re.compile(r"\\|[0-9a-fA-FjJ_.](?:and|else|for|if|in|is|not|or)")
_WARNINGS_LOCK = threading.Lock()


class NotCalls(ValueError):
    """The text is not what was asked for."""


class TooLarge(NotCalls):
    """The text is longer than `MAX_CHARS` and was not looked at."""


def expression(text: str) -> ast.expr:
    """The text as one Python expression.

    Raises `TooLarge` beyond `MAX_CHARS` and `NotCalls` for everything that Python would not parse.
    Warnings about odd escapes, which are about the model's text and not about ours, are silenced.
    """
    if len(text) > MAX_CHARS:
        raise TooLarge(f"longer than {MAX_CHARS} characters")
    opened = text.count("(") + text.count("[") + text.count("{")
    if opened > MAX_DEPTH or len(text) > MAX_DIGITS:
        _check_bounds(text)
    try:
        if _WARNS.search(text) is None:
            return ast.parse(text, mode="eval").body
        # The filters of `warnings` belong to the process: one thread at a time changes them.
        with _WARNINGS_LOCK, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NotCalls(f"{type(error).__name__}: {str(error)[:200]}") from None


def _check_bounds(text: str) -> None:
    """Raise `NotCalls` for nesting or digits beyond the bounds, outside of string literals."""
    depth = position = 0
    while found := _SPECIAL.search(text, position):
        token, position = found.group(), found.end()
        if token in "([{":
            depth += 1
            if depth > MAX_DEPTH:
                raise NotCalls(f"brackets nested more than {MAX_DEPTH} deep")
        elif token in ")]}":
            depth -= 1
        elif token == "#":
            position = text.find("\n", position)
            if position < 0:
                return
        elif token in _STRING_END:
            end = _STRING_END[token].match(text, position)
            if end is None:  # unterminated: the parser says so at once
                return
            position = end.end()
        elif sum(map(str.isdigit, token)) > MAX_DIGITS and token.strip("0_"):
            raise NotCalls(f"an integer of more than {MAX_DIGITS} digits")
