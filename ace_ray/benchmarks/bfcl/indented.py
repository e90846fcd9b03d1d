"""JSON text with an indent, as ``json.dumps(value, indent=4)`` writes it, in less time.

The standard library has no compiled encoder for indented text, and the lists of functions in
prompts are long: this one appends whole lines and leaves only the escaping to the compiled part.
"""

from __future__ import annotations

import json
from json.encoder import encode_basestring_ascii
from typing import Any

_STEP = "    "


def indented(value: Any) -> str:
    """Exactly ``json.dumps(value, indent=4)`` for JSON values with texts as keys.

    Raises `TypeError` for other values and keys, `RecursionError` for very deep ones.
    """
    parts: list[str] = []
    _write(value, "\n", parts)
    return "".join(parts)


def _write(value: Any, line: str, parts: list[str]) -> None:
    """``line`` begins a new line at the indent of the value's own closing bracket."""
    kind = type(value)
    if kind is str:
        parts.append(encode_basestring_ascii(value))
    elif kind is dict:
        if not value:
            parts.append("{}")
            return
        inner = line + _STEP
        before = "{" + inner
        for key, item in value.items():
            if type(key) is not str:
                raise TypeError(f"keys must be texts, not {type(key).__name__}")
            if type(item) is str:
                parts.append(
                    f"{before}{encode_basestring_ascii(key)}: {encode_basestring_ascii(item)}"
                )
            else:
                parts.append(f"{before}{encode_basestring_ascii(key)}: ")
                _write(item, inner, parts)
            before = "," + inner
        parts.append(line + "}")
    elif kind is list or kind is tuple:
        if not value:
            parts.append("[]")
            return
        inner = line + _STEP
        before = "[" + inner
        for item in value:
            if type(item) is str:
                parts.append(before + encode_basestring_ascii(item))
            else:
                parts.append(before)
                _write(item, inner, parts)
            before = "," + inner
        parts.append(line + "]")
    elif value is None or kind in (bool, int, float):
        parts.append(json.dumps(value))
    else:
        raise TypeError(f"{kind.__name__} is no JSON value")
