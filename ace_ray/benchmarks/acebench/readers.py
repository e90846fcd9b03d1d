"""Answer readers: one answer, read as several formats of tool calls.

A reader turns an answer in its format into the official syntax, so that every checker can judge it
as such; an answer in any other format, or in none, it leaves as it is. None executes anything,
raises on any text, or grows beyond the bounds of `ace_ray.calls`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from ace_ray.benchmarks.acebench.check import check
from ace_ray.benchmarks.acebench.json_calls import NotJson, calls_of, load_json
from ace_ray.calls import Call, render
from ace_ray.records import RULE_SETS, Entry

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
            calls += calls_of(value)
    except NotJson:
        return text
    return render(calls) if calls else text


def openai(text: str) -> str:
    """A whole answer that is JSON in one of OpenAI's forms (`json_calls.calls_of`)."""
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


def compare_readers(
    answers: Iterable[tuple[Entry, str]], names: Sequence[str]
) -> dict[str, dict[str, dict[str, int]]]:
    """What each reader gains and loses on the same answers, by rule set and reader.

    ``valid`` counts the answers that it makes valid, ``gained`` those of them that are not valid as
    they are, ``lost`` those that are valid only as they are.
    """
    counts = {
        rules: {name: {"valid": 0, "gained": 0, "lost": 0} for name in names} for rules in RULE_SETS
    }
    for entry, answer in answers:
        plain = check(entry, answer)
        for name, text in read_all(answer, names).items():
            verdicts = plain if text == answer else check(entry, text)
            for rules, verdict in verdicts.items():
                count, before = counts[rules][name], plain[rules].valid
                count["valid"] += verdict.valid
                count["gained"] += verdict.valid and not before
                count["lost"] += before and not verdict.valid
    return counts


def read_all(answer: str, names: Iterable[str]) -> dict[str, str]:
    """The answer as each of the readers ``names`` reads it, in their order."""
    return {name: READERS[name](answer) for name in names}
