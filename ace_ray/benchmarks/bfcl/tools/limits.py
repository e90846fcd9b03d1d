"""Bounds on calls whose cost their arguments do not bound.

Every argument is bounded by size: values, nesting, digits, and the digits and exponents of strings
that a method makes numbers of. Beyond that, found by reading upstream's classes: powers and
roundings of integers, precisions, replacements that multiply a text, listings of directory trees
whose copies share what they hold. All other methods take time and memory in proportion to their
arguments and the state, which the episode's `Budget` bounds.

These bounds are the same everywhere. Under them lie those that the kernel holds (`limited`).
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping
from decimal import localcontext
from functools import wraps
from typing import Any

from ace_ray.benchmarks.bfcl.tools.budget import Budget
from ace_ray.benchmarks.bfcl.tools.size import MAX_DEPTH, MAX_VALUES, TooLarge, check_tree

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
    for found in _EXPONENT.finditer(_BLANK.sub("", text.lower())):
        digits = found[1].replace("_", "")
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
