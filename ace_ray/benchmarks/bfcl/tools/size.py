"""How large a value of a tool class is, and what is stored of it; bounded, whatever it holds.

The classes share lists and directories among several places, so that values which are small in
memory can be endless in print.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

MAX_VALUES = 20_000
MAX_CHARS = 2_000_000
"""Of one result or one recorded state: values and characters of strings, counted as printed."""
MAX_PATHS = 20_000
MAX_PATH_CHARS = 2_000_000
MAX_CONTENT_CHARS = 20_000_000
"""Of a directory tree, counted along every path that leads to an item."""
_CONTENT_PER_PATH = 1_000
"""Characters that are read in about the time that one path takes."""
MAX_DEPTH = 100

_PLAIN = (str, int, float, bool, type(None))
_Size = tuple[int, int, int]
Charge = Callable[[int], None]


class TooLarge(Exception):
    """A value beyond these bounds; the message is what a model is told."""


def check_size(value: Any) -> int:
    """The values and characters of ``value``, as printed. Raises `TooLarge` beyond the bounds."""
    values, chars = MAX_VALUES, MAX_CHARS
    pending = [value]
    while pending:
        item = pending.pop()
        values -= 1
        kind = type(item)
        if kind is str:
            chars -= len(item)
        elif kind is dict:
            pending.extend(item)
            pending.extend(item.values())
        elif kind in (list, tuple, set):
            pending.extend(item)
        if values < len(pending) or chars < 0:
            raise TooLarge("the result is too large")
    return MAX_VALUES - values + MAX_CHARS - chars


def check_tree(directory: Any, prefix: str = "", charge: Charge = lambda paths: None) -> None:
    """Raise `TooLarge` where listing every path under an upstream ``Directory``, or reading every
    file, would take too long; `RecursionError`, as upstream, where it contains itself.

    ``charge`` is told what this check costs while it goes on, then what the listing will; it may
    raise."""
    paths, chars, content = _walk(directory, {}, 0, charge)
    chars += paths * len(prefix)
    charge(min(paths, MAX_PATHS))
    charge(min(chars + content, MAX_CONTENT_CHARS) // _CONTENT_PER_PATH)
    if paths > MAX_PATHS or chars > MAX_PATH_CHARS or content > MAX_CONTENT_CHARS:
        raise TooLarge("the directory tree is too large")


def _walk(directory: Any, seen: dict[int, _Size | None], depth: int, charge: Charge) -> _Size:
    """(paths, their characters, characters of content) below ``directory``."""
    key = id(directory)
    if key in seen:
        found = seen[key]
        if found is None:
            raise RecursionError("maximum recursion depth exceeded")
        return found
    seen[key] = None
    charge(len(directory.contents))
    paths = chars = content = 0
    for name, item in directory.contents.items():
        inside = _walk(item, seen, depth + 1, charge) if hasattr(item, "contents") else (0, 0, 0)
        paths += 1 + inside[0]
        chars += (len(str(name)) + 1) * (1 + inside[0]) + inside[1]
        content += inside[2] + (len(str(item.content)) if hasattr(item, "content") else 0)
    seen[key] = (paths, chars, content)
    return paths, chars, content


def as_json(value: Any) -> Any:
    """``value`` as JSON values: directories and files as objects, sets sorted, anything else that
    is no JSON as its text, and "..." for what is beyond the bounds."""
    return _Writer().write(value, 0)


class _Writer:
    def __init__(self) -> None:
        self.values, self.chars = MAX_VALUES, MAX_CHARS

    def write(self, value: Any, depth: int) -> Any:
        self.values -= 1
        if isinstance(value, str):
            self.chars -= len(value)
        if self.values < 0 or self.chars < 0 or depth > MAX_DEPTH:
            return "..."
        if type(value) is int:
            return value if value.bit_length() < 64 else f"{value:#x}"[:100]
        if isinstance(value, _PLAIN):
            return value
        if isinstance(value, Mapping):
            return {self._key(key): self.write(item, depth + 1) for key, item in value.items()}
        if isinstance(value, (set, frozenset)):
            return [self.write(item, depth + 1) for item in sorted(value, key=repr)]
        if isinstance(value, (list, tuple)):
            return [self.write(item, depth + 1) for item in value]
        if hasattr(value, "contents"):
            return {"type": "directory", "contents": self.write(value.contents, depth + 1)}
        if hasattr(value, "content"):
            return {"type": "file", "content": self.write(value.content, depth + 1)}
        return f"<{type(value).__name__}>"

    def _key(self, key: Any) -> str:
        text = key if isinstance(key, str) else repr(key)[:100]
        self.chars -= len(text)
        return text
