"""The strict rule set on messages of special rows, each decided by hand.

``special_sentences.json``: groups of one category, language and gold answer; a sentence is the
expected error type ("valid": none), what makes it hard (claim, names, other; negation, quotation,
hedge), and the message. ``functions``: the candidates' names with those of their parameters.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.acebench.check import check
from ace_ray.benchmarks.acebench.check.claims import MAX_CHARS, MAX_CLAIMS, claims, names_of
from ace_ray.records import Entry

_FILE = Path(__file__).with_name("special_sentences.json")
_GROUPS = json.loads(_FILE.read_text(encoding="utf-8"))
_DECIDED = [
    (group["language"], group, kind, message, expected)
    for group in _GROUPS
    for expected, kind, message in group["sentences"]
]
_PARAMETERS = ("day", "room", "card", "city")
_FUNCTIONS = {"book": _PARAMETERS, "pay": _PARAMETERS}


def error_type(group: dict[str, Any], message: str) -> str:
    functions = group.get("functions", _FUNCTIONS)
    data = {
        "question": "?",
        "function": [
            {"name": name, "parameters": {"properties": {key: {"type": "string"} for key in names}}}
            for name, names in functions.items()
        ],
    }
    entry = Entry("acebench", group["category"], group["language"], "x", data, group["gold"])
    return check(entry, message)["strict"].error_type or "valid"


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("group", "message", "expected"),
    [(group, message, expected) for _, group, _, message, expected in _DECIDED],
    ids=[f"{language}-{number}" for number, (language, *_) in enumerate(_DECIDED)],
)
def test_a_message_is_read_as_decided(group: dict[str, Any], message: str, expected: str) -> None:
    assert error_type(group, message) == expected


@pytest.mark.parametrize("language", ["en", "zh"])
def test_half_of_the_sentences_are_not_plain(language: str) -> None:
    kinds = Counter(kind for of, _, kind, *_ in _DECIDED if of == language)
    assert kinds.total() >= 100
    assert kinds["negation"] + kinds["quotation"] + kinds["hedge"] >= kinds.total() / 2


_PARTS = [
    "missing parameters ", "缺少参数(", "incorrect value (", "value(a) ", "parameter(", "api(", "(",
    ")", "I cannot solve this problem ", "limitations of the function ", "no ", "not true that ",
    "if ", '"', "'", "`", "“", "「", "[", "]", "\n", "。", ". ", ",", ";", "?", "<think>",
    "</think>", "\x00", "you said ", "没有", "无法解决这个问题", "book", "day, room", "\ud800",
    "İ", "\u3000", "```",
]  # fmt: skip


@pytest.mark.nightly
def test_any_text_is_read_in_bounded_work() -> None:
    source = random.Random(18)
    for part in _PARTS:
        assert error_type(_GROUPS[0], part * 3_000) != "valid"
    for _ in range(400):
        text = "".join(source.choice(_PARTS) for _ in range(source.randrange(60)))
        for group in _GROUPS[::3]:
            error_type(group, text)


def test_no_more_than_the_bounds_is_read() -> None:
    many = claims("There are missing parameters. " * 1_000, names_of(None))
    assert MAX_CLAIMS <= len(many) < 2 * MAX_CLAIMS
    assert claims(" " * MAX_CHARS + "There are missing parameters.", names_of([])) == []
