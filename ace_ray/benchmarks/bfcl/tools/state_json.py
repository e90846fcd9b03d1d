"""Write the state of tools as JSON values, within bounds.

The classes share lists and directories among several places, so that a value which is small in
memory can be endless in print.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

MAX_STATE_CHARS = 256 << 10
"""Bound of one recorded state. The largest initial state has 20,000 characters of JSON."""
MAX_MEMORY_CHARS = 4 << 20
"""Bound of one snapshot of a memory."""
MAX_DEPTH = 100
_CHARS_PER_VALUE = 8
"""Characters that a value counts for, beside its text."""


def as_json(value: Any, max_chars: int = MAX_STATE_CHARS) -> Any:
    """Return ``value`` as JSON values: directories and files as objects, sets sorted, anything else
    that is not JSON as its text, and "..." for what is beyond the bounds."""
    return _Writer(max_chars).write(value, 0)


class _Writer:
    def __init__(self, chars: int) -> None:
        self.chars = chars

    def write(self, value: Any, depth: int) -> Any:
        self.chars -= _CHARS_PER_VALUE + (len(value) if isinstance(value, str) else 0)
        if self.chars < 0 or depth > MAX_DEPTH:
            return "..."
        if type(value) is int:
            return value if value.bit_length() < 64 else f"{value:#x}"[:100]
        if isinstance(value, float) and not math.isfinite(value):
            return repr(float(value))  # no reader of JSON takes it
        if value is None or isinstance(value, (str, int, float)):
            return value
        if isinstance(value, Mapping):
            return self._object(value, depth + 1)
        if isinstance(value, (set, frozenset)):
            return self._list(sorted(value, key=repr), depth + 1)
        if isinstance(value, (list, tuple)):
            return self._list(value, depth + 1)
        if hasattr(value, "contents"):
            return {"type": "directory", "contents": self.write(value.contents, depth + 1)}
        if hasattr(value, "content"):
            return {"type": "file", "content": self.write(value.content, depth + 1)}
        return f"<{type(value).__name__}>"

    def _object(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        written: dict[str, Any] = {}
        for key, item in value.items():
            text = key if isinstance(key, str) else repr(key)[:100]
            self.chars -= len(text)
            if self.chars < 0:
                return {**written, "...": "..."}
            written[text] = self.write(item, depth)
        return written

    def _list(self, value: Sequence[Any], depth: int) -> list[Any]:
        written: list[Any] = []
        for item in value:
            if self.chars < 0:
                return [*written, "..."]
            written.append(self.write(item, depth))
        return written
