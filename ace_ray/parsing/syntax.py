"""Parse Python expressions in a model's text to `ast` trees, with limits on length and depth.

CPython's own parser rejects most hostile texts (200 nested brackets, 6,000 levels of grammar,
4,300 digits). The limits here do not depend on the interpreter's version and settings."""

from __future__ import annotations

import ast
import json
import re
import threading
import warnings
from typing import Any

# Maximum characters outside of string literals. Parsing the worst text takes under half a second.
MAX_CODE = 131_072
# Maximum characters of a text, string literals included.
MAX_CHARS = 4 * 1024 * 1024
# Maximum nesting of brackets, as in CPython's tokenizer.
MAX_DEPTH = 200
# Maximum digits of a decimal integer, CPython's default.
MAX_DIGITS = 4_300

_SPECIAL = re.compile(
    r"""'''|\"\"\"|['"#(){}\[\]]|(?<![\w.])[0-9][0-9_]{""" + str(MAX_DIGITS) + r""",}(?![\w.])"""
)
_STRING_END = {
    "'": re.compile(r"[^\\\n']*+(?:\\.[^\\\n']*+)*+'", re.DOTALL),
    '"': re.compile(r'[^\\\n"]*+(?:\\.[^\\\n"]*+)*+"', re.DOTALL),
    "'''": re.compile(r"[^\\']*+(?:(?:\\.|'(?!''))[^\\']*+)*+'''", re.DOTALL),
    '"""': re.compile(r'[^\\"]*+(?:(?:\\.|"(?!""))[^\\"]*+)*+"""', re.DOTALL),
}
# The parser warns about invalid escapes, and about a keyword right after a number (`1or`).
_WARNS = re.compile(r"\\|[0-9a-fA-FjJ_.](?:and|else|for|if|in|is|not|or)")
_FSTRING_WEIGHT = 4  # Python 3.11 parses an f-string in time quadratic in its fields
_WARNINGS_LOCK = threading.Lock()


class NotCalls(ValueError):
    """The text contains no calls in the expected form."""


def expression(text: str) -> ast.expr:
    """Parse the text as one Python expression. Raises `NotCalls` if Python cannot parse the text,
    or if the text exceeds the limits. The parser's warnings about the text are suppressed."""
    if len(text) > MAX_CHARS:
        raise NotCalls(f"longer than {MAX_CHARS} characters")
    opened = text.count("(") + text.count("[") + text.count("{")
    if opened > MAX_DEPTH or len(text) > MAX_DIGITS:
        _check_bounds(text)
    try:
        if _WARNS.search(text) is None:
            return ast.parse(text, mode="eval").body
        # All threads share the filters of `warnings`, so one thread at a time may change them.
        with _WARNINGS_LOCK, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NotCalls(f"{type(error).__name__}: {str(error)[:200]}") from None


_JSON_NESTING = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)


def check_json_depth(text: str, at: int = 0) -> None:
    """Raise `NotCalls` if the JSON value at index ``at`` is nested more than `MAX_DEPTH` deep."""
    depth = 0
    # Stop at the value's end: for many values, reading on would take quadratic time.
    for match in _JSON_NESTING.finditer(text, at) if text[at : at + 1] in ("[", "{") else ():
        bracket = match[0]
        depth += (bracket in "[{") - (bracket in "]}")
        if depth > MAX_DEPTH:
            raise NotCalls(f"nested more than {MAX_DEPTH} deep")
        if depth <= 0:
            return


def bounded_json(text: str, max_chars: int = MAX_CHARS) -> Any:
    """Parse JSON as Python does, which also accepts NaN and Infinity.

    Raises `json.JSONDecodeError` if the text is not JSON, and `NotCalls` if it exceeds
    ``max_chars``, `MAX_DEPTH` or Python's limit on digits."""
    if len(text) > max_chars:
        raise NotCalls(f"longer than {max_chars} characters")
    check_json_depth(text, len(text) - len(text.lstrip()))
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except (ValueError, RecursionError) as error:
        raise NotCalls(f"{type(error).__name__} in JSON") from None


def _check_bounds(text: str) -> None:
    """Raise `NotCalls` if the code outside of string literals exceeds a limit (`MAX_CODE` etc.).
    Characters inside f-strings count towards the length, each `_FSTRING_WEIGHT` times."""
    depth = position = quoted = 0
    while match := _SPECIAL.search(text, position):
        token, position = match.group(), match.end()
        _check_code(position - quoted)
        if token in "([{":
            depth += 1
            if depth > MAX_DEPTH:
                raise NotCalls(f"brackets nested more than {MAX_DEPTH} deep")
        elif token in ")]}":
            depth -= 1
        elif token == "#":
            position = text.find("\n", position)
            if position < 0:
                break
        elif token in _STRING_END:
            end = _STRING_END[token].match(text, position)
            if end is None:  # unterminated: the parser rejects it at once
                return
            inside = end.end() - position
            if "f" in text[max(match.start() - 2, 0) : match.start()].lower():
                inside *= 1 - _FSTRING_WEIGHT
            quoted += inside
            position = end.end()
        elif sum(map(str.isdigit, token)) > MAX_DIGITS and token.strip("0_"):
            raise NotCalls(f"an integer of more than {MAX_DIGITS} digits")
    _check_code(len(text) - quoted)


def _check_code(length: int) -> None:
    if length > MAX_CODE:
        raise NotCalls(f"more than {MAX_CODE} characters outside of strings")
