"""Every regular expression of the package takes time in proportion to its text.

Patterns are found in the sources. For each, texts repeat the pattern's own words and characters,
behind a possible beginning. A linear pattern takes milliseconds for such a text. A quadratic one
takes minutes and is interrupted.
"""

import ast
import importlib
import os
import pkgutil
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ace_ray
from tests.limits import cpu_limit

SHORT, LONG = 10_000, 50_000
LOOK_AGAIN_S = 0.005
"""CPU time for a short text from which on a long text is tried, too."""
MAX_TEXTS = int(os.environ.get("REGEX_TEXTS", "120"))
MOST_GROWTH = 15
"""Maximum growth of CPU time from a short to a long text: 5 is linear, 25 is quadratic."""

METHODS = {"search", "match", "fullmatch", "split", "findall", "finditer", "sub", "subn"}
FROM_START = {"match", "fullmatch"}
CHARACTERS = " \t\n\\\"'`aA0_-.,:;([{<é"
BOUNDED = {"ace_ray.benchmarks.bfcl.check.source_values"}
"""Modules whose patterns read at most 1,024 characters; `test_source_values` times them."""
Found = tuple[str, "re.Pattern[Any]", frozenset[str]]
"""Place, pattern and the methods that are called."""


def patterns_in(value: Any, depth: int = 0) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(getattr(value, "__self__", None), re.Pattern):  # a method of a pattern
        yield value.__self__
    elif isinstance(value, dict | tuple | list | set | frozenset) and depth < 3:
        for item in (*value, *value.values()) if isinstance(value, dict) else value:
            yield from patterns_in(item, depth + 1)


def patterns_of(module_name: str) -> Iterator[Found]:
    """Yield the patterns of a module's names, and the constants that its functions give to `re`."""
    module = importlib.import_module(module_name)
    assert module.__file__ is not None
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    uses: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in METHODS:
            name = node.value.id if isinstance(node.value, ast.Name) else ""
            uses.setdefault(name, set()).add(node.attr)
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        of_re = isinstance(node.func.value, ast.Name) and node.func.value.id == "re"
        if of_re and node.func.attr in METHODS and isinstance(node.args[0], ast.Constant):
            flags = re.DOTALL if "DOTALL" in ast.unparse(node) else 0
            text: Any = node.args[0].value
            pattern = re.compile(text, flags)
            yield f"{module_name}:{node.lineno}", pattern, frozenset({node.func.attr})
    names = {name for name, value in vars(module).items() if isinstance(value, re.Pattern)}
    # A pattern of a table is called by the name of a loop, or by an index.
    unnamed = set().union(*(methods for name, methods in uses.items() if name not in names))
    for name, value in vars(module).items():
        methods = uses.get(name, METHODS) if name in names else unnamed or METHODS
        if hasattr(value, "__self__"):
            methods = {value.__name__} & METHODS
        for pattern in patterns_in(value):
            yield f"{module_name}.{name}", pattern, frozenset(methods)


def texts_for(source: str) -> list[tuple[str, str, str]]:
    """Return beginnings, repeated parts and ends of texts that are hard for a pattern."""
    without_syntax = re.sub(r"\(\?[:=!<>P]*\w*>?|\\[a-zA-Z]|\{\d*,?\d*\}|\[[^\]]*\]", "|", source)
    pieces = re.findall(r"(?:\\[^\w\s]|[^\\\[\](){}|?*+^$.])+", without_syntax)
    words = list(dict.fromkeys(re.sub(r"\\(.)", r"\1", word) for word in pieces))[:12]
    classes = "".join(re.findall(r"\[([^\]]*)\]", source))
    pairs = (first + second for first in words for second in words)
    pumps = dict.fromkeys([*words, *pairs, "".join(words), *classes, *CHARACTERS])
    texts = [
        (lead, pump, end)
        for pump in pumps
        if pump
        for lead in dict.fromkeys(["", *words, "".join(words)])
        for end in ("\0", "x")
    ]
    return texts[:: max(1, len(texts) // MAX_TEXTS)]


def check(case: Found) -> None:
    """Raise `AssertionError` if a text takes more than linear time."""
    location, pattern, methods = case
    source = pattern.pattern
    is_bytes = isinstance(source, bytes)
    calls = [getattr(pattern, name) for name in sorted(methods & FROM_START)]
    if methods - FROM_START:
        calls.append(lambda text: sum(1 for _ in pattern.finditer(text)))
    for lead, pump, end in texts_for(source.decode("latin-1") if is_bytes else source):
        for call in calls:
            limit = None
            for length in (SHORT, LONG):
                text: Any = lead + pump * (length // len(pump)) + end
                text = text.encode("latin-1", "replace") if is_bytes else text
                before = time.thread_time()
                with cpu_limit(f"{location} {source!r} on {(lead, pump, end)}", limit or 3.0):
                    call(text)
                spent = time.thread_time() - before
                if spent <= LOOK_AGAIN_S:
                    break
                limit = MOST_GROWTH * spent


ROOMS = sorted(info.name for info in pkgutil.iter_modules(ace_ray.__path__))


# By room: a search for all patterns while tests are collected would cost every run 4 s.
@pytest.mark.nightly
@pytest.mark.parametrize("room", ROOMS)
def test_every_pattern_is_linear(room: str) -> None:
    names = [info.name for info in pkgutil.walk_packages(ace_ray.__path__, "ace_ray.")]
    below = [n for n in names if n.split(".")[1] == room and not n.endswith("__main__")]
    patterns = {
        case[1:]: case for name in below if name not in BOUNDED for case in patterns_of(name)
    }
    for case in patterns.values():
        check(case)
