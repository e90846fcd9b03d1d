"""The strict rule set on messages of special rows, each decided by hand.

``special_sentences.json``: groups of one category, language and gold answer; a sentence is the
expected error type ("valid": none), what makes it hard (claim, names, other; negation, quotation,
hedge), and the message.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.acebench.check import check
from ace_ray.records import Entry

_FILE = Path(__file__).with_name("special_sentences.json")
_GROUPS = json.loads(_FILE.read_text(encoding="utf-8"))
_DECIDED = [
    (group["category"], group["language"], group["gold"], kind, message, expected)
    for group in _GROUPS
    for expected, kind, message in group["sentences"]
]
_PARAMETERS = {name: {"type": "string"} for name in ("day", "room", "card", "city")}
_FUNCTIONS = [
    {"name": name, "parameters": {"type": "object", "properties": _PARAMETERS}}
    for name in ("book", "pay")
]


def error_type(category: str, language: str, gold: Any, message: str) -> str:
    data = {"question": "?", "function": _FUNCTIONS}
    verdict = check(Entry("acebench", category, language, "x", data, gold), message)["strict"]
    return verdict.error_type or "valid"


@pytest.mark.parametrize(
    ("category", "language", "gold", "kind", "message", "expected"),
    _DECIDED,
    ids=[f"{language}-{number}" for number, (_, language, *_) in enumerate(_DECIDED)],
)
def test_a_message_is_read_as_decided(
    category: str, language: str, gold: Any, kind: str, message: str, expected: str
) -> None:
    assert error_type(category, language, gold, message) == expected


@pytest.mark.parametrize("language", ["en", "zh"])
def test_half_of_the_sentences_are_not_plain(language: str) -> None:
    kinds = Counter(kind for _, of, _, kind, *_ in _DECIDED if of == language)
    assert kinds.total() >= 100
    assert kinds["negation"] + kinds["quotation"] + kinds["hedge"] >= kinds.total() / 2
