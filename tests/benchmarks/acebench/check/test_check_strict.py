"""The strict rule set on small entries of our own: exact calls, and the prompt's sentences."""

from __future__ import annotations

import itertools
import random
from typing import Any

from ace_ray.benchmarks.acebench.check import check
from ace_ray.benchmarks.acebench.check.strict import assign
from ace_ray.types import Entry

INTEGERS = {"type": "object", "properties": {"n": {"type": "integer"}}}
SCHEMA = {
    "properties": {
        "days": {"type": "integer"},
        "price": {"type": "number"},
        "box": INTEGERS,
        "rows": {"type": "array", "items": INTEGERS},
        "counts": {"type": "array", "items": {"type": "integer"}},
    }
}


def verdict(output: str | None, gold: Any, *names: str, category: str = "normal_atom_bool") -> str:
    functions = [{"name": name, "parameters": SCHEMA} for name in names or ("plan",)]
    entry = Entry("acebench", category, "zh", "x", {"question": "?", "function": functions}, gold)
    result = check(entry, output)["strict"]
    assert result.valid == (result.error_type == "")
    return result.error_type


FORMATS = [
    None,
    "[plan(city='Rome')].",
    "[plan(city='Rome')] # [1]",
    "# [1]\n[plan(city='Rome')]",
    "([plan(city='Rome')])",
    "(plan(city='Rome'),)",
    "[plan('Rome')]",
    "[plan(city='Rome', city='Rome')]",
    "[plan(city=Rome)]",
    "[plan(city='Ro' + 'me')]",
]
ERRORS = {
    "[]": "function_name",
    "[Plan(city='Rome')]": "function_name",
    "[plan()]": "param_num",
    "[plan(city='Rome', days=1)]": "param_num",
    "[plan(city=['Rome'])]": "param_type",
    "[plan(city='rome')]": "param_value",
}


def test_the_output_is_the_list_and_nothing_else() -> None:
    gold = {"plan": {"city": "Rome"}}
    right = '\n [ plan(\n  city = "Rome",\n) ] \n'
    assert verdict(right, gold) == verdict("[plan(\r\n\rcity='Rome')\r\n]", gold) == ""
    assert verdict(right, gold, category="normal_multi_turn_user_adjust") == ""
    for wrong in FORMATS:
        assert verdict(wrong, gold) == "output_format", wrong
    for output, error_type in ERRORS.items():
        assert verdict(output, gold) == error_type


NUMBERS: list[tuple[str, Any, str, str]] = [
    ("days", 5, "5.0", ""),
    ("days", 5, "5.5", "param_type"),
    ("days", 5, "1e999", "param_type"),
    ("days", 1, "True", "param_type"),
    ("days", 5, "'5'", "param_type"),
    ("price", 75, "75.0", ""),
    ("price", 75, "75.5", "param_value"),
    ("price", 2**53 + 1, f"{2**53}.0", "param_value"),
    ("price", None, "0", "param_type"),
]
CONTAINERS: list[tuple[str, Any, str, str]] = [
    ("box", {"lat": 1.0, "n": 2}, "{'n': 2.0, 'lat': 1}", ""),
    ("box", {"n": 2}, "{'n': 2.5}", "param_type"),
    ("box", {"n": 1}, "{'n': True}", "param_type"),
    ("box", {"lat": 1.0, "n": 2}, "{'n': 2}", "param_value"),
    ("rows", [{"n": 2}], "[{'n': 2.0}]", ""),
    ("rows", [{"n": 2}], "[{'n': 2.5}]", "param_type"),
    ("counts", [1, 2], "[1.5, 2]", "param_type"),
    ("counts", [1, 2], "[1]", "param_value"),
    ("names", ["a", 1.5], "('a', 1.5)", "param_type"),
    ("names", ["a", ["b"]], "['a', 'b']", "param_type"),
    ("names", [], "[]", ""),
]


def test_types_and_values() -> None:
    for param, gold, value, error_type in NUMBERS + CONTAINERS:
        found = verdict(f"[plan({param}={value})]", {"plan": {param: gold}})
        assert found == error_type, (param, gold, value)


def test_parallel_calls_need_a_call_each_in_any_order() -> None:
    gold = {"plan_1": {"days": 1}, "plan_2": {"days": 2}, "trip": {"days": 3}}
    names = ("plan", "trip")
    assert verdict("[trip(days=3), plan(days=2), plan(days=1)]", gold, *names) == ""
    assert verdict("[trip(days=3), plan(days=1), plan(days=1)]", gold, *names) == "param_value"
    assert verdict("[trip(days=3), plan(days=1), plan(days='2')]", gold, *names) == "param_type"
    assert verdict("[trip(days=3), plan(days=1), plan()]", gold, *names) == "param_num"
    assert verdict("[trip(days=3), plan(days=1)]", gold, *names) == "function_name"
    assert verdict("[trip(days=3), trip(days=2), plan(days=1)]", gold, *names) == "function_name"
    # The closest assignment names the error.
    gold = {"plan_1": {"days": 1}, "plan_2": {"days": 2, "city": "Rome"}}
    for calls in (
        "plan(days=9), plan(days=2, city='Oslo')",
        "plan(days=2, city='Oslo'), plan(days=9)",
    ):
        assert verdict(f"[{calls}]", gold) == "param_value"


def test_gold_calls_lose_their_number_unless_a_function_has_that_name() -> None:
    gold = {"level_2": {"city": "Rome"}}
    assert verdict("[level_2(city='Rome')]", gold, "level_1", "level_2") == ""
    assert verdict("[level(city='Rome')]", gold, "level_1", "level_2") == "function_name"
    assert verdict("[level(city='Rome')]", gold, "level") == ""
    # Any alternative counts, and the first names the error.
    either = [{"plan": {"days": 1}}, {"plan": {"city": "Oslo"}}]
    assert verdict("[plan(city='Oslo')]", either) == ""
    assert verdict("[plan(days='1')]", either) == "param_type"


def test_assignments_cost_least() -> None:
    source = random.Random(5)
    for size in [1, 2, 3, 4, 5] * 40:
        costs = [[source.randrange(6) for _ in range(size)] for _ in range(size)]
        columns = assign(costs)
        assert sorted(columns) == list(range(size))
        orders = itertools.permutations(range(size))
        best = min(sum(costs[row][column] for row, column in enumerate(o)) for o in orders)
        assert sum(costs[row][column] for row, column in enumerate(columns)) == best


ONE = {"book": ["day", "room"]}
TWO = {"book": ["day", "room"], "pay": ["card"]}
BOOK = "Missing necessary parameters (day, room) for the api (book)"
PAY = "Missing necessary parameters (card) for the api (pay)"
REFUSAL = "Due to the limitations of the function, I cannot solve this problem."


def wrong(value: str, param: str) -> str:
    place = "in the conversation history."
    return f"There is incorrect value ({value}) for the parameters ({param}) {place}"


RIGHT = [
    (ONE, f"Sorry. {BOOK}. Which day would you like? I need it to use book (a hotel service)."),
    (ONE, "Missing necessary parameters (room，`day`) for the api ('book')"),
    (ONE, f"<think>{PAY}, so [pay(card='1')]?</think>{BOOK}"),
    (TWO, f'["{PAY}", "{BOOK}"]'),
]
UNDETECTED = [
    None,
    "The api (book) is missing the parameters (day, room).",
    BOOK.lower(),
    f"<think>{BOOK}</think>Which day, and which room?",
    f"{BOOK} [pay(card='1')]",
    f"{BOOK} book()",
    f"{BOOK} [other('x')]",
    f'{BOOK} {{"name": "pay", "arguments": {{}}}}',
]
UNCORRECTED = [
    (ONE, BOOK.replace("day, ", "")),
    (ONE, BOOK.replace("day", "day, x")),
    (ONE, BOOK.replace("book", "pay")),
    (ONE, f"{BOOK} {PAY}"),
    (TWO, BOOK),
    (ONE, f"{BOOK} {REFUSAL}"),
    (ONE, f"{BOOK} {wrong('x', 'day')}"),
]


def test_missing_parameters_are_named_exactly_and_nothing_is_called() -> None:
    def special(gold: Any, output: str | None) -> str:
        return verdict(output, gold, "book", "pay", category="special_incomplete")

    for gold, output in RIGHT:
        assert special(gold, output) == "", output
    for missed in UNDETECTED:
        assert special(ONE, missed) == "detection_failed", missed
    for gold, output in UNCORRECTED:
        assert special(gold, output) == "correction_failed", output


def test_wrong_values_are_named_with_their_parameters() -> None:
    def special(gold: Any, output: str) -> str:
        return verdict(output, gold, category="special_error_param")

    assert special({"place": ["4.A,-1.3 (b)"]}, wrong("4.A,-1.3 (b)", "place")) == ""
    assert special({"day": ["x1", "x2"]}, wrong("x2, x1", "day")) == ""
    pairs = {"day": ["x1"], "room": ["y"]}
    for right in (wrong("x1，y", "day，room"), wrong("y", "room") + wrong("'x1'", "`day`")):
        assert special(pairs, right) == ""
    for other in (wrong("y, x1", "day, room"), wrong("x1", "day"), wrong("x1", "day, room")):
        assert special(pairs, other) == "correction_failed"
    assert special(pairs, "There is incorrect value (x1) for day.") == "detection_failed"


def test_a_refusal_is_the_sentence_alone() -> None:
    category = "special_irrelevant"
    assert verdict(f'Sorry: ["{REFUSAL}"]', REFUSAL, category=category) == ""
    more = (f"{REFUSAL} [book(day=1)]", f"{REFUSAL} {BOOK}", "I cannot solve this problem.", None)
    for output in more:
        assert verdict(output, REFUSAL, category=category) == "false_positive"
