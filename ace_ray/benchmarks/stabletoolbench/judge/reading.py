"""What a judge's reply says: one verdict, or nothing.

A reply counts when everything in it that states a verdict states the same one: a JSON object with
the field, a labelled word (``Answer Status: Solved``), or a last line of the word alone. Prose that
merely mentions a verdict states none, and a word that is asked or stands among alternatives is no
statement.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

STATUSES = ("Solved", "Unsure", "Unsolved")
MAX_REPLY = 20_000
_MAX_OBJECTS = 50
_WORD = r"un-?solved|unsolved|unsure|solved"
_ASKED_FIELDS = ("answer_status", "answer status")
_OTHER_FIELDS = ("status", "verdict")
"""What the judge quotes may have these too: a value that is no verdict says nothing."""
_LABELLED = re.compile(
    rf"\b(?:status|verdict|judge?ment|decision)\b(?:\s{{0,3}}\bis\b)?[\W_]{{1,20}}({_WORD})\b"
    rf"(?!\W{{0,4}}\?|[\W_]{{0,8}}(?:or\b|and\W{{1,4}}(?:{_WORD})|{_WORD}))",
    re.IGNORECASE,
)
_ALONE = re.compile(rf"[\W_]*({_WORD})(?:[^\w?]|_)*", re.IGNORECASE)
_INDEX = re.compile(
    r"\b(?:index|better(?:\s{0,3}answer)?|choice|choose|select(?:ed)?|verdict)\b(?:\s{0,3}\bis\b)?"
    r"[\W_]{1,20}(?:answer)?[\W_]{0,4}([01])\b(?![\W_]{0,8}(?:or\b|and\b|for\b|[01]\b)|\.\d)",
    re.IGNORECASE,
)
_INDEX_ALONE = re.compile(r"[\W_]*(?:answer)?[\W_]{0,4}([01])[\W_]*", re.IGNORECASE)


def read_status(reply: str) -> str | None:
    """One of `STATUSES`, None for a reply that states none or several."""
    reply = _bounded(reply)
    found = {_status(str(value)[:20]) for value in _fields(reply, _ASKED_FIELDS)}
    found |= {_status(str(value)[:20]) for value in _fields(reply, _OTHER_FIELDS)} - {""}
    found |= {_status(match[1]) for match in _LABELLED.finditer(reply)}
    if alone := _ALONE.fullmatch(_last_line(reply)):
        found.add(_status(alone[1]))
    return (found.pop() or None) if len(found) == 1 else None


def read_complete(reply: str) -> str | None:
    """``Solved`` or ``Unsolved`` as `read_status` finds it: for our own question on completeness,
    which knows no Unsure."""
    status = read_status(reply)
    return None if status == "Unsure" else status


def read_fac(reply: str) -> str | None:
    """``Solved`` or ``Unsolved`` by upstream's rule, for upstream's question
    (``fac_eval.py::get_response``): "unsolved" anywhere decides before "solved" does. A reply with
    neither is None; upstream scores it as unsolved."""
    text = reply[:MAX_REPLY].lower()
    if "unsolved" in text:
        return "Unsolved"
    return "Solved" if "solved" in text else None


def read_index(reply: str) -> int | None:
    """0 or 1, the better one of two answers; None for a reply that states neither or both."""
    reply = _bounded(reply)
    found = set()
    for value in _fields(reply, ("index", "better", "choice")):
        if isinstance(value, bool) or str(value).strip() not in ("0", "1"):
            return None
        found.add(int(value))
    if not found:
        found = {int(match[1]) for match in _INDEX.finditer(reply)}
        if alone := _INDEX_ALONE.fullmatch(_last_line(reply)):
            found.add(int(alone[1]))
    return found.pop() if len(found) == 1 else None


def _bounded(reply: str) -> str:
    if len(reply) <= MAX_REPLY:
        return reply
    half = MAX_REPLY // 2
    return f"{reply[:half]}\n{reply[-half:]}"


def _status(word: str) -> str:
    """The word as in `STATUSES`, "" if it is none of them."""
    plain = word.strip().lower().replace("-", "")
    return next((status for status in STATUSES if status.lower() == plain), "")


def _last_line(reply: str) -> str:
    lines = [line for line in reply.splitlines() if re.search(r"\w", line)]
    return lines[-1][:500] if lines else ""


def _fields(reply: str, names: tuple[str, ...]) -> Iterator[Any]:
    """What the reply's JSON objects, or their ``arguments``, have under these names."""
    at, decoder = 0, json.JSONDecoder(strict=False)
    for _ in range(_MAX_OBJECTS):
        at = reply.find("{", at)
        if at < 0:
            return
        try:
            value, at = decoder.raw_decode(reply, at)
        except (ValueError, RecursionError):
            at += 1
            continue
        call = value.get("arguments")
        for held in (value, call if isinstance(call, dict) else {}):
            yield from (held[name] for name in held if name.strip().lower() in names)
