"""Answer readers: one answer, read as several formats of tool calls.

A reader turns an answer in its format into the official syntax, so that every checker can judge it
as such; an answer in any other format, or in none, it leaves as it is. None executes anything,
raises on any text, or grows beyond the bounds of `ace_ray.calls`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from ace_ray.benchmarks.acebench.categories import MULTI_TURN
from ace_ray.benchmarks.acebench.check import check
from ace_ray.benchmarks.acebench.check.decode import decode
from ace_ray.benchmarks.acebench.native import UNREADABLE, NotJson, calls_of, load_json
from ace_ray.benchmarks.results import ScoredRow
from ace_ray.calls import Call, render
from ace_ray.records import RULE_SETS, Entry, Verdict

_BLOCK = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_FENCE = re.compile(r"```[ \t]*+([A-Za-z0-9_+-]*+)\s*+(.*?)```", re.DOTALL)
_LANGUAGES = frozenset(["", "json", "py", "python", "python3"])


def official(text: str) -> str:
    """The answer as it is: each rule set decodes the official syntax in its own way."""
    return text


def hermes(text: str) -> str:
    """``<tool_call>{"name": ..., "arguments": {...}}</tool_call>`` blocks, whatever is around them.

    As in the reference parser the last block may lack its end; one unreadable block spoils all.
    """
    blocks = _BLOCK.findall(text)
    try:
        calls: list[Call] = []
        for block in blocks:
            value = load_json(block)
            if not isinstance(value, dict):
                return text
            calls += calls_of(value, marked=True)
    except NotJson:
        return text
    return render(calls) if calls else text


def openai(text: str) -> str:
    """A whole answer that is JSON in one of OpenAI's forms (`native.calls_of`)."""
    if text.strip()[:1] not in ("{", "["):
        return text
    try:
        return render(calls_of(load_json(text)))
    except NotJson:
        return text


def fenced(text: str) -> str:
    """The first block fenced in three backticks, of Python, JSON or no language, read as `official`
    or `openai`. A fence that is never closed, or of another language, is no block."""
    block = _FENCE.search(text)
    if block is None or block[1].lower() not in _LANGUAGES:
        return text
    return openai(block[2].strip())


READERS: dict[str, Callable[[str], str]] = {
    "official": official,
    "hermes": hermes,
    "openai": openai,
    "fenced": fenced,
}


def check_read(entry: Entry, answer: str, names: Sequence[str]) -> dict[str, Verdict]:
    """The verdicts on ``answer`` as the first reader reads it.

    With several readers, metrics ``parser_<name>`` say (1 or 0) whether it is valid as each of them
    reads it.
    """
    read = read_all(answer, names)
    verdicts = {text: check(entry, text) for text in read.values()}
    first = verdicts[read[names[0]]]
    if len(names) == 1:
        return first
    return {
        rules: replace(
            verdict,
            metrics={
                **verdict.metrics,
                **{f"parser_{name}": float(verdicts[read[name]][rules].valid) for name in names},
            },
        )
        for rules, verdict in first.items()
    }


def holds_calls(entry: Entry, answer: str, names: Sequence[str]) -> bool:
    """Whether either rule set reads a call in the answer, as the first reader reads it, or would
    have to run something to know. Calls that cannot be written (`UNREADABLE`) count."""
    text = READERS[names[0]](answer)
    decoded = decode(text, whole=entry.category in MULTI_TURN)
    calls = [read for read in (decoded.official, decoded.strict) if isinstance(read, list)]
    return text == UNREADABLE or decoded.unsafe or any(calls)


class Compared:
    """What each reader gains and loses against the first, counted while rows pass by."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)
        self._counts = {
            rules: {name: {"valid": 0, "gained": 0, "lost": 0} for name in names}
            for rules in RULE_SETS
        }
        self._n = 0

    def through(self, rows: Iterable[ScoredRow]) -> Iterator[ScoredRow]:
        for row in rows:
            self._n += self._count(row)
            yield row

    def _count(self, row: ScoredRow) -> bool:
        wanted = [f"parser_{name}" for name in self._names]
        counted = False
        for rules, verdict in row.verdicts.items():
            if not all(name in verdict.metrics for name in wanted):
                continue
            counted = True
            before = verdict.metrics[wanted[0]]
            for name in self._names:
                valid, count = verdict.metrics[f"parser_{name}"], self._counts[rules][name]
                count["valid"] += valid > 0
                count["gained"] += valid > before
                count["lost"] += valid < before
        return counted

    def result(self) -> dict[str, Any]:
        """``{"n": rows, rule set: {reader: {"valid", "gained", "lost"}}}``; agent rows, whose
        answers are read by the protocol, are left out."""
        return {"n": self._n, **self._counts}

    def table(self) -> dict[str, Any]:
        """The result for people."""
        lines = [
            [rules, name, str(count["valid"]), f"+{count['gained']}", f"-{count['lost']}"]
            for rules, counts in self._counts.items()
            for name, count in counts.items()
        ]
        return {
            "title": f"the same {self._n} answers, read by several parsers",
            "header": ["rules", "parser", "valid", "gained", "lost"],
            "lines": lines,
        }


def read_all(answer: str, names: Iterable[str]) -> dict[str, str]:
    """The answer as each of the readers ``names`` reads it, in their order."""
    return {name: READERS[name](answer) for name in names}
