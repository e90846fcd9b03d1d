"""Bounds on what calls of the tools take.

Every argument is bounded by size: values, nesting, digits, and the digits and exponents of strings
that a method makes numbers of. Beyond that, found by reading upstream's classes: powers and
roundings of integers, precisions, replacements that multiply a text, listings of directory trees
whose copies share what they hold. All other methods take time and memory in proportion to their
arguments and the state, which the episode's `Budget` bounds. So is what is printed or stored of a
value: the classes share lists and directories among several places, so that values which are small
in memory can be endless in print.

These bounds are the same everywhere. Under them lie those that the kernel holds (`limited`).
"""

from __future__ import annotations

import inspect
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from decimal import localcontext
from functools import wraps
from typing import Any

MAX_VALUES = 20_000
MAX_CHARS = 2_000_000
"""Of one result or one memory: values and characters of strings, counted as printed."""
MAX_STATE_VALUES = 20_000
MAX_STATE_CHARS = 256 << 10
"""Of one recorded state. The largest that an entry begins with has 20,000 characters of JSON."""
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
    """A value beyond these bounds; the message is shown to the model."""


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
        size = seen[key]
        if size is None:
            raise RecursionError("maximum recursion depth exceeded")
        return size
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
    return _Writer(MAX_VALUES, MAX_CHARS).write(value, 0)


def recorded(state: Any) -> Any:
    """``state`` as what rows store: as `as_json` writes it, within narrower bounds, and numbers
    that are not finite as their text, since no reader of JSON takes them."""
    return _Writer(MAX_STATE_VALUES, MAX_STATE_CHARS, finite=True).write(state, 0)


class _Writer:
    def __init__(self, values: int, chars: int, *, finite: bool = False) -> None:
        self.values, self.chars, self._finite = values, chars, finite

    def write(self, value: Any, depth: int) -> Any:
        self.values -= 1
        if isinstance(value, str):
            self.chars -= len(value)
        if self._full or depth > MAX_DEPTH:
            return "..."
        if type(value) is int:
            return value if value.bit_length() < 64 else f"{value:#x}"[:100]
        if self._finite and isinstance(value, float) and not math.isfinite(value):
            return repr(float(value))
        if isinstance(value, _PLAIN):
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

    @property
    def _full(self) -> bool:
        return self.values < 0 or self.chars < 0

    def _object(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        written: dict[str, Any] = {}
        for key, item in value.items():
            text = key if isinstance(key, str) else repr(key)[:100]
            self.chars -= len(text)
            if self._full:
                return {**written, "...": "..."}
            written[text] = self.write(item, depth)
        return written

    def _list(self, value: Sequence[Any], depth: int) -> list[Any]:
        written: list[Any] = []
        for item in value:
            if self._full:
                return [*written, "..."]
            written.append(self.write(item, depth))
        return written


MAX_CALLS = 5_000
MAX_TEXT_CHARS = 2_000_000
MAX_RESULT_CHARS = 20_000_000
MAX_WALKED = 1_000_000
MAX_CPU_S = 6.0
BROKEN_CPU_S = 2.0
"""Bounds on all calls of an attempt, nested ones among them, on their texts and the results that
become arguments, on their results, and on what they look through: the paths that they list, and all
items that calls have added to the state. A model's 21 steps of 4,096 tokens a turn stay far below.
The processor time is a last bound under the others, which count what is the same everywhere; a call
that breaks a limit of its process costs `BROKEN_CPU_S` of it.
"""


class Budget:
    """Counts down; once any part is used up, every further call is refused."""

    def __init__(self) -> None:
        self.calls, self.text, self.results = MAX_CALLS, MAX_TEXT_CHARS, MAX_RESULT_CHARS
        self.walked = MAX_WALKED
        self.cpu_s = MAX_CPU_S

    def check(self) -> None:
        """Raise `TooLarge` where a part is used up."""
        # The clock may not see short calls: three broken ones are too many without any other.
        if min(self.calls, self.text, self.results, self.walked) < 0 or self.cpu_s <= 0:
            raise TooLarge("the calls of this conversation have used up their budget")

    def walk(self, paths: int) -> None:
        """Take what a listing costs, before it is made. Raises `TooLarge`."""
        self.walked -= paths
        self.check()


MAX_PRECISION = 1_000
"""Digits of `MathAPI`; the data asks for up to 10."""
MAX_PLACES = 10_000
MAX_MEMORY_CHARS = 200_000
"""Of the recursive summary, whose replacements upstream does not bound; its limit is 10,000."""

MAX_BITS = 14_284
"""Of an integer: 4,300 digits, the most that Python prints."""
MAX_NUMBER_CHARS = 1_000
MAX_EXPONENT = 10_000
"""Of a string that becomes a number: mpmath takes ``1e-300000000`` as it is."""

_NUMBERS = frozenset([("MathAPI", "logarithm")])
"""What makes numbers of strings beyond Python's own bounds, through mpmath."""
_EXPONENT = re.compile(r"e[+-]?([\d_]+)")
_BLANK = re.compile(r"\s+")

_Method = Callable[..., Any]
_Arguments = Mapping[str, Any]


def _precision(_: Any, arguments: _Arguments, __: Budget) -> None:
    try:
        digits = abs(int(arguments["precision"]))
    except (TypeError, ValueError, OverflowError):
        return  # the method says what is wrong with it
    if digits > MAX_PRECISION:
        raise TooLarge(f"precision beyond {MAX_PRECISION} digits")


def _power(_: Any, arguments: _Arguments, __: Budget) -> None:
    base, exponent = arguments["base"], arguments["exponent"]
    if isinstance(base, int) and isinstance(exponent, int):
        # A result that cannot be printed: upstream says the same, after having computed it.
        limit = sys.get_int_max_str_digits() or 4_300
        if (base.bit_length() - 1) * exponent > 4 * limit:
            raise TooLarge(
                f"Exceeds the limit ({limit} digits) for integer string conversion;"
                " use sys.set_int_max_str_digits() to increase the limit"
            )


def _places(_: Any, arguments: _Arguments, __: Budget) -> None:
    places = arguments.get("decimal_places", 0)
    if isinstance(places, int) and abs(places) > MAX_PLACES:
        raise TooLarge(f"more than {MAX_PLACES} decimal places")


def _replacement(memory: Any, arguments: _Arguments, _: Budget) -> None:
    old, new = str(arguments["old_text"]), str(arguments["new_text"])
    size = len(memory.memory) + memory.memory.count(old) * max(0, len(new) - len(old))
    if size > MAX_MEMORY_CHARS:
        raise TooLarge(f"the memory would hold more than {MAX_MEMORY_CHARS} characters")


def _listing(files: Any, arguments: _Arguments, budget: Budget) -> None:
    path = arguments.get("path", "")
    # From the root, so that no path has to be resolved here.
    for start in (files.root, files._current_dir):
        check_tree(start, path if isinstance(path, str) else "", budget.walk)


_GUARDS: Mapping[tuple[str, str], Callable[[Any, _Arguments, Budget], None]] = {
    ("MathAPI", "logarithm"): _precision,
    ("MathAPI", "square_root"): _precision,
    ("MathAPI", "power"): _power,
    ("MathAPI", "round_number"): _places,
    ("MemoryAPI_rec_sum", "memory_replace"): _replacement,
    ("GorillaFileSystem", "find"): _listing,
    ("GorillaFileSystem", "du"): _listing,
}


def check_arguments(values: Any, *, numbers: bool) -> None:
    """Raise `TooLarge` for arguments beyond the bounds; ``numbers`` says whether the method makes
    numbers of strings."""
    left, pending = MAX_VALUES, [(values, 0)]
    while pending:
        item, depth = pending.pop()
        left -= 1
        kind = type(item)
        if kind is int:
            if item.bit_length() > MAX_BITS:
                raise TooLarge("an argument is a number of too many digits")
        elif kind is str:
            if numbers:
                _check_number(item)
        elif kind in (list, tuple, dict):
            if depth > MAX_DEPTH:
                raise TooLarge("an argument is nested too deeply")
            pending += [(one, depth + 1) for one in item]
            if kind is dict:
                pending += [(one, depth + 1) for one in item.values()]
        if left < len(pending):
            raise TooLarge("an argument has too many values")


def _check_number(text: str) -> None:
    if len(text) > MAX_NUMBER_CHARS:
        raise TooLarge(f"an argument is a number of more than {MAX_NUMBER_CHARS} characters")
    for match in _EXPONENT.finditer(_BLANK.sub("", text.lower())):
        digits = match[1].replace("_", "")
        if digits and int(digits) > MAX_EXPONENT:
            raise TooLarge(f"an argument has an exponent beyond {MAX_EXPONENT}")


def guarded(class_name: str, name: str, method: _Method, owner: Any, budget: Budget) -> _Method:
    """``method``, or one that raises `TooLarge` first where its arguments ask for too much.

    Precisions that it sets for the thread end with the call."""
    guard = _GUARDS.get((class_name, name))
    numbers = (class_name, name) in _NUMBERS

    @wraps(method)
    def checked(*args: Any, **named: Any) -> Any:
        check_arguments((args, named), numbers=numbers)
        if guard is None:
            return method(*args, **named)
        try:
            arguments = inspect.signature(method).bind(*args, **named).arguments
        except TypeError:
            return method(*args, **named)  # raises it in Python's words
        guard(owner, arguments, budget)
        with localcontext():
            return method(*args, **named)

    return checked
