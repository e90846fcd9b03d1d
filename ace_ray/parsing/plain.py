"""A quick reader for the everyday form of tool calls.

Most model outputs are ``[F(k='v', n=5, d={'a': [True, None]})]``. Building an `ast` tree for them
takes most of a checker's time, so this form is read straight from its tokens. The reader
answers None for everything it is not sure to read as Python would: escapes, prefixes, joined
strings, exponents, tuples, names, comments, repeated keywords, identifiers beyond ASCII, deep
nesting.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable
from typing import Any

from ace_ray.parsing.literals import Call
from ace_ray.parsing.syntax import MAX_CODE

# A string with an escape, a line break, NUL or a lone surrogate in it is left to the parser.
_TOKENS = re.compile(
    r"""[ \t\n]*+("""
    r"""'[^'\\\n\r\0\ud800-\udfff]*+'|"[^"\\\n\r\0\ud800-\udfff]*+\""""
    r"""|[A-Za-z_][A-Za-z0-9_]*+|[0-9]++(?:\.[0-9]++)?|.)""",
    re.DOTALL,
).findall
_WORDS: dict[str, bool | None] = {"True": True, "False": False, "None": None}
_NOT_NAMES = frozenset([*keyword.kwlist, "__debug__"])
_MAX_PLAIN_DEPTH = 20
_MAX_PLAIN_DIGITS = 18

_Next = Callable[[], str]


class _NotPlain(Exception):
    """Leave this text to the parser."""


def plain_calls(text: str) -> list[Call] | None:
    """The calls of a text that is exactly one non-empty list of plain calls, else None."""
    if text[:1] != "[" or text[-1:] != "]" or len(text) > MAX_CODE:
        return None
    tokens = iter(_TOKENS(text))
    after = tokens.__next__
    after()
    calls = []
    try:
        while True:
            calls.append(_call(after))
            token = after()
            if token == "]":
                break
            if token != ",":
                return None
    except (_NotPlain, StopIteration):
        return None
    return calls if next(tokens, None) is None else None


def _is_name(token: str) -> bool:
    # Python would normalise names beyond ASCII, so they are not plain.
    return token.isidentifier() and token not in _NOT_NAMES and token.isascii()


def _call(after: _Next) -> Call:
    name = after()
    if not _is_name(name) or after() != "(":
        raise _NotPlain
    args: dict[str, Any] = {}
    key = after()
    if key == ")":
        return Call(name, args)
    while True:
        if not _is_name(key) or key in args or after() != "=":
            raise _NotPlain
        args[key] = _value(after(), after, 0)
        token = after()
        if token == ")":
            return Call(name, args)
        if token != ",":
            raise _NotPlain
        key = after()


def _value(token: str, after: _Next, depth: int) -> Any:
    first = token[0]
    if first in "'\"":
        if len(token) == 1:  # a quote whose partner was out of reach
            raise _NotPlain
        return token[1:-1]
    if "0" <= first <= "9":
        return _number(token)
    if token in _WORDS:
        return _WORDS[token]
    if first == "-":
        token = after()
        if not "0" <= token[0] <= "9":
            raise _NotPlain
        return -_number(token)
    if depth == _MAX_PLAIN_DEPTH:
        raise _NotPlain
    if first == "[":
        return _list(after, depth + 1)
    if first == "{":
        return _dict(after, depth + 1)
    raise _NotPlain


def _number(token: str) -> int | float:
    if "." in token:
        return float(token)
    if len(token) > _MAX_PLAIN_DIGITS or (token[0] == "0" and len(token) > 1):
        raise _NotPlain
    return int(token)


def _list(after: _Next, depth: int) -> list[Any]:
    values: list[Any] = []
    token = after()
    if token == "]":
        return values
    while True:
        values.append(_value(token, after, depth))
        token = after()
        if token == "]":
            return values
        if token != ",":
            raise _NotPlain
        token = after()


def _dict(after: _Next, depth: int) -> dict[str, Any]:
    pairs: dict[str, Any] = {}
    token = after()
    if token == "}":
        return pairs
    while True:
        if token[0] not in "'\"" or len(token) == 1 or after() != ":":
            raise _NotPlain
        pairs[token[1:-1]] = _value(after(), after, depth)
        token = after()
        if token == "}":
            return pairs
        if token != ",":
            raise _NotPlain
        token = after()
