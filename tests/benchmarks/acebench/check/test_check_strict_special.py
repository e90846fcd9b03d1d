"""The strict rule set on the special categories: the prompt's sentence, exactly, and no call."""

from __future__ import annotations

from typing import Any

import pytest

from ace_ray.benchmarks.acebench.check import check
from ace_ray.types import Entry

ONE = {"book": ["day", "room"]}
TWO = {"book": ["day", "room"], "pay": ["card"]}
BOOK = "Missing necessary parameters (day, room) for the api (book)"
PAY = "Missing necessary parameters (card) for the api (pay)"
REFUSAL = "Due to the limitations of the function, I cannot solve this problem."


def wrong(value: str, param: str) -> str:
    place = "in the conversation history."
    return f"There is incorrect value ({value}) for the parameters ({param}) {place}"


def verdict(category: str, gold: Any, output: str | None) -> str:
    data = {"question": "?", "function": [{"name": "book"}, {"name": "pay"}]}
    entry = Entry("acebench", f"special_{category}", "zh", "x", data, gold)
    result = check(entry, output)["strict"]
    assert result.valid == (result.error_type == "")
    return result.error_type


@pytest.mark.parametrize(
    "output",
    [
        BOOK,
        f'["{BOOK}"]',
        f"Sorry. {BOOK}. Which day would you like? I need it to use book (a hotel service).",
        "Missing necessary parameters (room，`day`) for the api ('book')",
        f"<think>{PAY}, so [pay(card='1')]?</think>{BOOK}",
    ],
)
def test_a_message_with_the_sentence_that_is_asked_for(output: str) -> None:
    assert verdict("incomplete", ONE, output) == ""


@pytest.mark.parametrize(
    "output",
    [
        None,
        "The api (book) is missing the parameters (day, room).",
        BOOK.lower(),
        f"<think>{BOOK}</think>Which day, and which room?",
        f"{BOOK} [pay(card='1')]",
        f"{BOOK} book()",
        f"{BOOK} [other('x')]",
        f'{BOOK} {{"name": "pay", "arguments": {{}}}}',
    ],
)
def test_other_words_and_calls_are_no_detection(output: str | None) -> None:
    assert verdict("incomplete", ONE, output) == "detection_failed"


@pytest.mark.parametrize(
    ("gold", "output"),
    [
        (ONE, BOOK.replace("day, ", "")),
        (ONE, BOOK.replace("day", "day, x")),
        (ONE, BOOK.replace("book", "pay")),
        (ONE, f"{BOOK} {PAY}"),
        (TWO, BOOK),
        (ONE, f"{BOOK} {REFUSAL}"),
        (ONE, f"{BOOK} {wrong('x', 'day')}"),
    ],
)
def test_another_name_or_a_second_problem_is_no_correction(gold: Any, output: str) -> None:
    assert verdict("incomplete", gold, output) == "correction_failed"


def test_several_apis_have_a_sentence_each() -> None:
    assert verdict("incomplete", TWO, f'["{PAY}", "{BOOK}"]') == ""


PAIRS = {"day": ["x1"], "room": ["y"]}


@pytest.mark.parametrize(
    ("gold", "output", "error_type"),
    [
        ({"place": ["4.A,-1.3 (b)"]}, wrong("4.A,-1.3 (b)", "place"), ""),
        ({"day": ["x1", "x2"]}, wrong("x2, x1", "day"), ""),
        (PAIRS, wrong("x1，y", "day，room"), ""),
        (PAIRS, wrong("y", "room") + wrong("'x1'", "`day`"), ""),
        (PAIRS, wrong("y, x1", "day, room"), "correction_failed"),
        (PAIRS, wrong("x1", "day"), "correction_failed"),
        (PAIRS, wrong("x1", "day, room"), "correction_failed"),
        ({"day": ["x1"]}, "There is incorrect value (x1) for day.", "detection_failed"),
    ],
)
def test_wrong_values_are_named_with_their_parameters(
    gold: Any, output: str, error_type: str
) -> None:
    assert verdict("error_param", gold, output) == error_type


@pytest.mark.parametrize(
    ("output", "error_type"),
    [
        (REFUSAL, ""),
        (f'Sorry: ["{REFUSAL}"]', ""),
        ("Sorry, I cannot solve this problem.", "false_positive"),
        (f"{REFUSAL} [book(day=1)]", "false_positive"),
        (f"{REFUSAL} {BOOK}", "false_positive"),
        (None, "false_positive"),
    ],
)
def test_a_refusal_is_the_sentence_alone(output: str | None, error_type: str) -> None:
    assert verdict("irrelevant", REFUSAL, output) == error_type
