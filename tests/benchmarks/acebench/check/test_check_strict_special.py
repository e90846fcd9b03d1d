"""The strict rule set on the special categories."""

from __future__ import annotations

from typing import Any

import pytest

from ace_ray.benchmarks.acebench.check import check
from ace_ray.records import Entry

ONE = {"book": ["day", "room"]}
TWO = {"book": ["day", "room"], "pay": ["card"]}
BOOK = "Missing necessary parameters (day, room) for the api (book)"
REFUSAL = "Due to the limitations of the function, I cannot solve this problem."


def verdict(category: str, gold: Any, output: str | None) -> str:
    data = {"question": "?", "function": [{"name": "book"}, {"name": "pay"}]}
    entry = Entry("acebench", f"special_{category}", "zh", "x", data, gold)
    result = check(entry, output)["strict"]
    assert result.valid == (result.error_type == "")
    return result.error_type


@pytest.mark.parametrize(
    ("gold", "output", "error_type"),
    [
        (ONE, BOOK, ""),
        (ONE, f'["{BOOK}"]', ""),
        (ONE, f"['{BOOK}.']\n", ""),
        (ONE, "Missing necessary parameters (room，day) for the API (book)", ""),
        (ONE, "Missing necessary parameters（room、 'day'）for the api（`book`）。", ""),
        (ONE, f"{BOOK}. Could you tell me which day you would like?", ""),
        (TWO, f"{BOOK}, Missing necessary parameters (card) for the api (pay)", ""),
        *[
            (ONE, f"Missing necessary parameters ({listed}) for the api (book)", "")
            for listed in ("day and room", "'day', and 'room'", "day和room", "day与 room")
        ],
        *[
            (ONE, f"Missing necessary parameters ({listed}) for the api (book)", "")
            for listed in ("day、room", "day; room", "day；room", "room AND day")
        ],
        (TWO, BOOK, "correction_failed"),
        (ONE, f"{BOOK} Missing necessary parameters (card) for the api (pay)", "correction_failed"),
        (ONE, "Missing necessary parameters (day) for the api (book)", "correction_failed"),
        (
            ONE,
            "Missing necessary parameters (day, room, x) for the api (book)",
            "correction_failed",
        ),
        (ONE, "Missing necessary parameters (day, room) for the api (pay)", "correction_failed"),
        (ONE, "Missing necessary parameters: day, room of book", "correction_failed"),
        (ONE, f"{BOOK} {REFUSAL}", "correction_failed"),
        (ONE, f"{BOOK} There is incorrect value (x) for the parameters (y)", "correction_failed"),
        (ONE, f"{BOOK} [pay(card='1')]", "detection_failed"),
        (ONE, f"{BOOK} [other()]", "detection_failed"),
        (ONE, f"{BOOK} book (day='x')", "detection_failed"),
        (ONE, f"{BOOK} [book ('x')]", "detection_failed"),
        (ONE, f"{BOOK} [other('x')]", "detection_failed"),
        (ONE, f"{BOOK} other()", "detection_failed"),
        (ONE, f"{BOOK} I need the day to use book (a hotel service), see pay (b).", ""),
        (ONE, f'{BOOK} {{"name": "pay", "arguments": {{}}}}', "detection_failed"),
        (ONE, "[book(day='?')]", "detection_failed"),
        (ONE, "Which day, and which room?", "detection_failed"),
        (ONE, "", "detection_failed"),
        (ONE, None, "detection_failed"),
    ],
)
def test_incomplete(gold: Any, output: str | None, error_type: str) -> None:
    assert verdict("incomplete", gold, output) == error_type


def wrong(value: str, param: str) -> str:
    return f"There is incorrect value ({value}) for the parameters ({param}) in the conversation"


@pytest.mark.parametrize(
    ("gold", "output", "error_type"),
    [
        ({"day": ["x1"]}, wrong("x1", "day") + " history.", ""),
        ({"day": ["x1"]}, f'["{wrong("x1", "day")} history."]', ""),
        ({"day": ["x1"]}, wrong("'x1'", "`day`"), ""),
        ({"day": ["x1"]}, "There is incorrect value（x1）for the parameters（day）", ""),
        ({"place": ["4.A,-1.3"]}, wrong("4.A,-1.3", "place"), ""),
        ({"place": ["a (b)"]}, wrong("a (b)", "place"), ""),
        ({"day": ["x1", "x2"]}, wrong("x2, x1", "day"), ""),
        ({"day": ["x1"], "room": ["y"]}, wrong("x1, y", "day, room"), ""),
        ({"day": ["x1"], "room": ["y"]}, wrong("x1", "day") + wrong("y", "room"), ""),
        ({"day": ["x1"], "room": ["y"]}, wrong("x1 and y", "day and room"), ""),
        ({"day": ["x1"], "room": ["a, b"]}, wrong("x1; a, b", "day; room"), "correction_failed"),
        ({"day": ["salt and oil"], "room": ["y"]}, wrong("salt and oil, y", "day, room"), ""),
        ({"day": ["x1"], "room": ["y"]}, wrong("y, x1", "day, room"), "correction_failed"),
        ({"day": ["x1"], "room": ["y"]}, wrong("x1", "day"), "correction_failed"),
        ({"day": ["x1"]}, wrong("x1", "room"), "correction_failed"),
        ({"day": ["x1"]}, wrong("x", "day"), "correction_failed"),
        ({"day": ["x1"]}, wrong("x1", "day") + wrong("y", "room"), "correction_failed"),
        ({"day": ["x1"]}, "There is incorrect value x1 for day", "correction_failed"),
        ({"day": ["x1"]}, f"{wrong('x1', 'day')} {BOOK}", "correction_failed"),
        ({"day": ["x1"]}, f"{wrong('x1', 'day')} [book(day='x1')]", "detection_failed"),
        ({"day": ["x1"]}, "The day x1 looks odd.", "detection_failed"),
    ],
)
def test_error_param(gold: Any, output: str, error_type: str) -> None:
    assert verdict("error_param", gold, output) == error_type


@pytest.mark.parametrize(
    ("output", "error_type"),
    [
        (REFUSAL, ""),
        (f'["{REFUSAL}"]', ""),
        ("Sorry, I cannot solve this problem.", ""),
        ("Because of the limitations of the functions given, no.", ""),
        (f"{REFUSAL} [book(day=1)]", "false_positive"),
        (f"{REFUSAL} [book()]", "false_positive"),
        (f"{REFUSAL} {BOOK}", "false_positive"),
        (BOOK, "false_positive"),
        ("[book(day=1)]", "false_positive"),
        (None, "false_positive"),
    ],
)
def test_irrelevant(output: str | None, error_type: str) -> None:
    assert verdict("irrelevant", REFUSAL, output) == error_type
