"""Every regular expression of the package takes time in proportion to its text.

Patterns are found in the sources. Texts are made from each: what leads to a repetition, then what
it may repeat, many times over, then what almost ends it. Of such a text a linear pattern is done
in milliseconds, a quadratic one in minutes of CPU time; it is interrupted long before.
"""

from __future__ import annotations

import ast
import importlib
import os
import pkgutil
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import pytest

import ace_ray
from tests.limits import cpu_limit

SHORT, LONG = 10_000, 50_000
LOOK_AGAIN_S = 0.005
"""CPU time of a short text from which on a long one is tried: a linear pattern takes a tenth of it,
a quadratic one tens of times as much. That decides nothing but how long the tests take."""
MAX_TEXTS = int(os.environ.get("REGEX_TEXTS", "120"))
"""For one pattern; 600 are all kinds that there are of most."""
MOST_GROWTH = 15
"""Of CPU time from a short to a long text: a linear pattern takes 5 times as much, a quadratic one
25 times."""

METHODS = {"search", "match", "fullmatch", "split", "findall", "finditer", "sub", "subn"}
FROM_START = {"match", "fullmatch"}
CHARACTERS = " \t\n\\\"'`aA0_-.,:;([{<é"

MADE_WHILE_RUNNING = {
    "ace_ray.benchmarks.acebench.native": "names of functions, escaped; published patterns, "
    "compiled to see whether they are some and not used",
    "ace_ray.benchmarks.bfcl.check.conversations": "a gold answer, escaped",
    "ace_ray.benchmarks.tau2.verdicts": "a fact of a task, escaped",
}
"""Modules with a pattern that is no constant, and what it is made of."""
BOUNDED = {"ace_ray.benchmarks.bfcl.check.source_values"}
"""Modules whose patterns see texts of at most 1,024 characters; `test_source_values` times them."""


@dataclass(frozen=True)
class Found:
    where: str
    pattern: re.Pattern[str]
    methods: frozenset[str]


@cache
def trees() -> dict[str, ast.Module]:
    """Module name -> its syntax tree."""
    names = [info.name for info in pkgutil.walk_packages(ace_ray.__path__, "ace_ray.")]
    found = {}
    for name in names:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        found[name] = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    return found


def regex_calls(tree: ast.Module) -> Iterator[tuple[ast.Call, bool]]:
    """Calls of `re`, and whether each is inside of a function."""

    def below(node: ast.AST, inside: bool) -> Iterator[tuple[ast.Call, bool]]:
        inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of_re = isinstance(node.func.value, ast.Name) and node.func.value.id == "re"
            if of_re and node.func.attr in METHODS | {"compile"}:
                yield node, inside
        for child in ast.iter_child_nodes(node):
            yield from below(child, inside)

    return below(tree, False)


def patterns_in(value: Any, depth: int = 0) -> Iterator[re.Pattern[str]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(getattr(value, "__self__", None), re.Pattern):  # a method of one
        yield value.__self__
    elif isinstance(value, dict) and depth < 3:
        for item in (*value, *value.values()):
            yield from patterns_in(item, depth + 1)
    elif isinstance(value, tuple | list | set | frozenset) and depth < 3:
        for item in value:
            yield from patterns_in(item, depth + 1)


def uses(tree: ast.Module) -> dict[str, set[str]]:
    """Name -> the methods of patterns that are asked of it; "" for what has no name."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in METHODS | {"pattern"}:
            name = node.value.id if isinstance(node.value, ast.Name) else ""
            found.setdefault(name, set()).add(node.attr)
    return found


def patterns_of(module_name: str) -> Iterator[Found]:
    """Those that the module's names hold, and the constants that its functions give to `re`."""
    tree, here = trees()[module_name], importlib.import_module(module_name)
    asked = uses(tree)
    names = {name for name, value in vars(here).items() if isinstance(value, re.Pattern)}
    # Those in a table are asked by the name of a loop or of an index.
    unnamed = set().union(*(methods for name, methods in asked.items() if name not in names))
    for name, value in vars(here).items():
        for pattern in patterns_in(value):
            methods = asked.get(name, set()) if name in names else unnamed
            if hasattr(value, "__self__"):
                methods = {value.__name__}
            if not methods or "pattern" in methods:  # for another module, or within another pattern
                methods = METHODS
            where = f"{module_name}.{name}" + (f"[{pattern.pattern}]" * (name not in names))
            yield Found(where, pattern, frozenset(methods & METHODS))
    for call, inside in regex_calls(tree):
        if inside and isinstance(call.args[0], ast.Constant):
            assert isinstance(call.func, ast.Attribute)
            flags = re.DOTALL if "DOTALL" in ast.unparse(call) else 0
            methods = {call.func.attr} & METHODS or METHODS
            pattern = re.compile(str(call.args[0].value), flags)
            yield Found(f"{module_name}:{call.lineno}", pattern, frozenset(methods))


def patterns_below(part: str) -> list[Found]:
    """Return the patterns of a module or package of ``ace_ray``, each once."""
    below = [name for name in sorted(trees().keys() - BOUNDED) if name.split(".")[1] == part]
    found = {(p.pattern, p.methods): p for name in below for p in patterns_of(name)}
    return list(found.values())


@pytest.mark.nightly
def test_all_patterns_are_found() -> None:
    """No module has more of them than are seen, or makes one in a way that nobody has looked at."""
    running = set()
    for name, tree in trees().items():
        calls = list(regex_calls(tree))
        made = [
            call
            for call, inside in calls
            if inside and not (call.args and isinstance(call.args[0], ast.Constant))
        ]
        running |= {name} if made else set()
        compiled = sum(not inside for _, inside in calls)
        seen = {p for v in vars(importlib.import_module(name)).values() for p in patterns_in(v)}
        assert len(seen) >= compiled, name
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                assert node.module not in ("re", "regex"), name
            elif isinstance(node, ast.Import):
                assert not {"regex", "re2"} & {alias.name for alias in node.names}, name
    assert running == MADE_WHILE_RUNNING.keys()


class Texts:
    """Texts that are hard for one pattern."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._flags = pattern.flags
        tree = parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG)
        written = [value for kind, value in self._literals(tree)]
        self._characters = "".join(dict.fromkeys([*map(chr, written), *CHARACTERS]))[:40]
        self.places: dict[tuple[str, str, str], None] = {}
        """(what leads to a repetition, what it repeats, what would follow it)."""
        self._walk(list(tree), "", "")
        self.leads = list(dict.fromkeys(lead for lead, _, _ in self.places))

    def _literals(self, tree: Any) -> Iterator[tuple[Any, int]]:
        for kind, value in tree:
            if kind in (op.LITERAL, op.NOT_LITERAL):
                yield kind, value
            elif kind is op.IN:
                yield from ((k, v) for k, v in value if k is op.LITERAL)
                yield from ((k, v[0]) for k, v in value if k is op.RANGE)
            elif isinstance(value, tuple | list):
                for part in value:
                    if isinstance(part, parser.SubPattern):
                        yield from self._literals(part)
                    elif isinstance(part, list):
                        for branch in part:
                            if isinstance(branch, parser.SubPattern):
                                yield from self._literals(branch)
            elif isinstance(value, parser.SubPattern):
                yield from self._literals(value)

    def _sample(self, items: Iterable[Any]) -> str:
        """A short text that ``items`` match, mostly."""
        return "".join(self._one(kind, value) for kind, value in items)

    def _one(self, kind: Any, value: Any) -> str:
        if kind is op.LITERAL:
            return chr(value)
        if kind in (op.IN, op.NOT_LITERAL, op.ANY):
            return self._matching(kind, value)[:1]
        if kind is op.BRANCH:
            return self._sample(value[1][0])
        if kind is op.SUBPATTERN:
            return self._sample(value[3])
        if kind is op.ATOMIC_GROUP:
            return self._sample(value)
        if kind in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
            return self._sample(value[2]) * min(int(value[0]), 50)
        return ""

    def _matching(self, kind: Any, value: Any) -> str:
        single = parser.SubPattern(parser.State(), [(kind, value)])
        single.state.str, single.state.flags = "", self._flags
        matches = re._compiler.compile(single, self._flags).fullmatch  # type: ignore[attr-defined]
        return "".join(character for character in self._characters if matches(character))

    def _walk(self, items: list[Any], lead: str, after: str) -> None:
        for at, (kind, value) in enumerate(items):
            rest = self._sample(items[at + 1 :]) + after
            if kind in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
                body = list(value[2])
                self.places[(lead, self._sample(body), rest)] = None
                if len(body) == 1 and body[0][0] in (op.IN, op.NOT_LITERAL, op.ANY):
                    for character in self._matching(*body[0]):
                        self.places[(lead, character, rest)] = None
                self._walk(body, lead, rest)
            elif kind is op.BRANCH:
                for branch in value[1]:
                    self._walk(list(branch), lead, rest)
            elif kind is op.SUBPATTERN:
                self._walk(list(value[3]), lead, rest)
            elif kind is op.ATOMIC_GROUP:
                self._walk(list(value), lead, rest)
            elif kind in (op.ASSERT, op.ASSERT_NOT):
                self._walk(list(value[1]), lead, rest)
            lead += self._one(kind, value)
        self.places[(lead, "", after)] = None

    def __iter__(self) -> Iterator[tuple[str, str, str]]:
        """(beginning, what comes again and again, end), each once."""
        starts = [lead for lead in self.leads if lead]
        found = dict.fromkeys(
            (lead, pump, end)
            for lead, body, rest in self.places
            for pump in (body, lead + body, *starts)
            for end in ("\x00", rest[:-1] + "\x00")
            if pump
        )
        for lead in ("", *self.leads):
            found |= dict.fromkeys((lead, character, "\x00") for character in self._characters)
        return iter(list(found)[:: max(1, len(found) // MAX_TEXTS)])


def methods_of(found: Found) -> list[Callable[[str], Any]]:
    """The methods that cost most of those that are used."""
    calls: list[Callable[[str], Any]] = []
    if found.methods - FROM_START:
        calls.append(lambda text: sum(1 for _ in found.pattern.finditer(text)))
    calls += [getattr(found.pattern, name) for name in sorted(found.methods & FROM_START)]
    return calls


def text_of(parts: tuple[str, str, str], length: int) -> str:
    lead, pump, end = parts
    return lead + pump * (length // len(pump)) + end


def check(found: Found) -> None:
    """Raise `AssertionError` if there is a text that takes more than linear time."""

    def given(length: int) -> Any:
        text = text_of(parts, length)
        return (
            text.encode("latin-1", "replace") if isinstance(found.pattern.pattern, bytes) else text
        )

    for parts in Texts(found.pattern):
        short = given(SHORT)
        for call in methods_of(found):
            what = f"{found.where} {found.pattern.pattern!r} on {parts}"
            before = time.thread_time()
            with cpu_limit(what):
                call(short)
            spent = time.thread_time() - before
            if spent > LOOK_AGAIN_S:
                with cpu_limit(what, MOST_GROWTH * spent):
                    call(given(LONG))


PARTS = sorted(info.name for info in pkgutil.iter_modules(ace_ray.__path__))


# By part: a search for all patterns while tests are collected would cost every run 4 s.
@pytest.mark.nightly
@pytest.mark.parametrize("part", PARTS)
def test_every_pattern_is_linear(part: str) -> None:
    for found in patterns_below(part):
        check(found)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("written", "method"),
    [
        # What `read_answer` looked for, 18 s for 65,000 blanks behind three backticks.
        (r"```(?:json|JSON)?[ \t]*\n?(.*?)```", "search"),
        (r"\s+$", "search"),
        (r"(a+)+b", "match"),
        (r"(?:x|a|aa)*b", "fullmatch"),
        (r"\w*\d*!", "match"),
        (r"[a-z_]*(password|secret)[a-z_]*", "fullmatch"),
        (r"""'[^'\\\n]*+(?:\\.[^'\\\n]*+)*+'|[\[\]'"]""", "finditer"),
    ],
)
def test_what_is_not_linear_is_seen(
    written: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The measure itself: patterns that were in the package once, and textbook ones."""
    monkeypatch.setattr("tests.limits.CPU_S", 1.0)
    with pytest.raises(AssertionError, match="CPU time"):
        check(Found("", re.compile(written, re.DOTALL), frozenset({method})))


@pytest.mark.parametrize("written", [r"\s++x", r"[ab]*+c", r"```(?:json)?+(.*?)```", r"(?:ab)*c"])
def test_what_is_linear_passes(written: str) -> None:
    check(Found("", re.compile(written, re.DOTALL), frozenset({"match"})))
