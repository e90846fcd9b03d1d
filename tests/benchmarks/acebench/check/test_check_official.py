"""The official rule set, rule by rule, on small entries of our own."""

from __future__ import annotations

from typing import Any

import pytest

from ace_ray.benchmarks.acebench.check import check
from ace_ray.types import Entry

PROPERTIES: dict[str, Any] = {
    "city": {"type": "string"},
    "days": {"type": "integer"},
    "price": {"type": "number"},
    "ratio": {"type": "float"},
    "open": {"type": "boolean"},
    "tags": {"type": "array", "items": {"type": "string"}},
    "pair": {"type": "tuple", "items": {"type": "string"}},
    "stops": {"type": "array", "items": {"type": "object"}},
    "rows": {"type": "objectArray"},
    "options": {"type": "object"},
    "kind": {"type": "enum"},
    "odd": {"type": "uuid"},
}


def function(name: str, required: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"name": name, "parameters": {"properties": PROPERTIES, "required": list(required)}}


def verdict(
    output: str | None,
    gold: Any,
    *functions: dict[str, Any],
    category: str = "normal_atom_bool",
) -> str:
    data = {"question": "?", "function": list(functions) or [function("plan")]}
    result = check(Entry("acebench", category, "en", "x", data, gold), output)["official"]
    assert result.valid == (result.error_type == "")
    return result.error_type


@pytest.mark.parametrize(
    "output",
    [
        "Sure: [plan(city='Rome')] - done",
        "[plan(city='Rome')] or [plan()]",
        "[plan(1, city='Rome')]",
        "[plan(city='Oslo', city='Rome')]",
        "[plan(city=Rome)]",
        "[plan(city='%s' % 'Rome')]",
        "[plan(city='Rome'[0])]",
        "[plan(city='Rome')] \ud800\x01",
    ],
)
def test_the_first_list_is_read_leniently(output: str) -> None:
    assert verdict(output, {"plan": {"city": "Rome"}}) == ""


@pytest.mark.parametrize(
    "output",
    [
        "plan(city='Rome')",
        "(plan(city='Rome'),)",
        "Step [1]: [plan(city='Rome')]",
        "] [plan(city='Rome')]",
        "[plan(city='[Rome')]",
        "[plan(city=-'Rome')]",
        "[plan(city='\ud800')]",
        None,
    ],
)
def test_other_outputs_are_a_format_error(output: str | None) -> None:
    assert verdict(output, {"plan": {"city": "Rome"}}) == "wrong_output_format"


@pytest.mark.parametrize(
    ("output", "error_type"),
    [
        ("[ plan ( city = 'New\tYork' ) ]\n", ""),
        ("(plan(city='NewYork'),)", ""),
        ("{plan(city='NewYork')}", ""),
        ("[plan(city='NewYork')].", "wrong_output_format"),
        ("Sure: [plan(city='NewYork')]", "wrong_output_format"),
        ("[plan(options={'a': ['x y']})]", "addition_args"),
    ],
)
def test_multi_turn_deletes_whitespace_and_looks_for_no_brackets(
    output: str, error_type: str
) -> None:
    gold = {"plan": {"city": "New York"}}
    category = "normal_multi_turn_user_switch"
    assert verdict(output, gold, category=category) == error_type


@pytest.mark.parametrize(
    ("value", "error_type"),
    [
        ("1 + [1, 2][0]", ""),
        ("1 + (2 or print(1))", ""),
        ("2025-Q2", "wrong_output_format"),
        ("1 / 0, city=x + 1", "wrong_output_format"),
        ("json + 1", "wrong_output_format"),
        ("ast.x + 1", "official_unsafe"),
        ("9 ** 9 ** 9", "official_unsafe"),
        ("max(1, 2) + days", "official_unsafe"),
        ("max(1, days) + 2", "wrong_output_format"),
        ("[1, 2][0]", "type_error"),
    ],
)
def test_operations_on_literals_are_done_and_others_named(value: str, error_type: str) -> None:
    assert verdict(f"[plan(days={value})]", {"plan": {"days": 3, "city": "Rome"}}) == error_type


SCALARS: list[tuple[str, Any, str, str]] = [
    ("city", "New York", "'in new-york, ny'", ""),
    ("city", "New York", "'York'", "value_error:string"),
    ("city", "New York", "5", "type_error"),
    ("city", "true", "'true'", "type_error"),
    ("city", None, "'anything'", ""),
    ("city", "", "'anything'", ""),
    ("days", 5, "6", ""),
    ("days", 5, "5.0", ""),
    ("days", 5, "5.5", "type_error"),
    ("days", 5, "True", "type_error"),
    ("price", 2.5, "7.1", ""),
    ("ratio", 2.5, "3", ""),
    ("ratio", 2.5, f"0x{'f' * 300}", "official_crash"),
    ("open", True, "'false'", ""),
    ("open", True, "'False'", "type_error"),
]
LISTS: list[tuple[str, Any, str, str]] = [
    ("tags", ["Ab", "c d"], "['ab', 'cd']", ""),
    ("tags", ["Ab", "c d"], "['cd', 'ab']", "value_error:list/tuple"),
    ("tags", ["Ab"], "('Ab',)", "type_error"),
    ("pair", ["Ab"], "('Ab',)", ""),
    ("tags", [], "[]", "type_error"),
    ("tags", {"a": 1}, "[1]", ""),
    ("tags", [["a"]], "[1]", "type_error"),
    ("tags", [["a"]], f"[0x{'f' * 4000}]", "official_crash"),
    ("tags", 5, "[1]", "official_crash"),
]
OBJECTS: list[tuple[str, Any, str, str]] = [
    ("stops", [{"a": "X y"}], "[{'a': 'xy z'}]", ""),
    ("stops", [{"a": 1}], "[{'a': 1}, {'a': 2}]", "value_error:list_dict_count"),
    ("stops", [{"a": 1}], "['a']", "value_error"),
    ("stops", ["a"], "[{'a': 1}]", "official_crash"),
    ("rows", [{"a": 1}], "[{'a': 1}, {'a': 2}]", "value_error:dict_items"),
    ("rows", [{"a": 1}], "[{'a': 1}]", "official_crash"),
    ("options", {"a": 5, "b": {"c": True}}, "{'b': {'c': 'true'}, 'a': '15 kg'}", ""),
    ("options", {"a": 5}, "{'a': 6}", "value_error"),
    ("options", {"a": 5}, "{'a': 5, 'b': 6}", "value_error"),
    ("options", {"a": 5}, "{'b': 5}", "value_error"),
    ("options", {"a": {"b": 1}}, "{'a': {'b': 2}}", "value_error"),
    ("options", {"a": 5}, f"{{'a': 0x{'f' * 4000}}}", "official_crash"),
    ("kind", "a", "'a'", ""),
    ("odd", "a", "'a'", "official_crash"),
]


@pytest.mark.parametrize("rows", [SCALARS, LISTS, OBJECTS], ids=["scalars", "lists", "objects"])
def test_values(rows: list[tuple[str, Any, str, str]]) -> None:
    for param, gold, value, error_type in rows:
        found = verdict(f"[plan({param}={value})]", {"plan": {param: gold}})
        assert found == error_type, (param, gold, value[:30])


def test_parameters() -> None:
    gold = {"plan": {"city": "Rome", "days": 5}}
    needs_city = function("plan", required=("city",))
    assert verdict("[plan(city='Rome')]", gold, needs_city) == ""
    assert verdict("[plan(days=5)]", gold, needs_city) == "lack_args"
    assert verdict("[plan(city='Rome', open=True)]", gold, needs_city) == "addition_args"
    assert verdict("[plan(**city)]", gold) == "addition_args"
    assert verdict("[plan()]", gold, needs_city) == "wrong_param"
    assert verdict("[plan(city='x')]", {"plan": {}}, needs_city) == "wrong_param"
    assert verdict("[plan()]", {"plan": {}}, {"name": "plan", "parameters": {}}) == ""
    assert verdict("[plan(city='x')]", {"plan": PROPERTIES}) == ""
    assert verdict("[plan(city='x')]", gold, {"name": "plan", "arguments": {}}) == "official_crash"
    assert verdict("[plan(city='x')]", gold, {"name": "trip"}) == "official_crash"


def test_calls_are_counted_and_matched_by_name() -> None:
    gold = {"plan_1": {"days": 1}, "plan_2": {"city": "Rome"}}
    assert verdict("[plan(city='Rome'), plan(days=7)]", gold) == ""
    assert verdict("[]", gold) == verdict("[plan(days=1)]", gold) == "wrong functions number"
    assert verdict("[plan(days=1), trip(days=1)]", gold) == "function_mismatch"
    assert verdict("[trip(days=1)]", {"plan": {"days": 1}}) == "function_mismatch"
    # One call can satisfy two gold calls; the rest of the output is then not looked at.
    twice = {"plan_1": {"city": "Rome"}, "plan_2": {"city": "Rome"}}
    assert verdict("[plan(city='Rome'), plan(nonsense=1)]", twice) == ""
    assert verdict("[plan(city='Oslo'), plan(nonsense=1)]", twice) == "addition_args"
    # Schemas are found by substring, and numbers are cut from the names.
    mixed = {"plan": {"city": "Rome"}, "plan_all": {"days": 1}}
    functions = function("plan"), function("plan_all")
    output = "[plan(city='Rome'), plan_all(days=1)]"
    assert verdict(output, mixed, *functions) == "wrong_function_name"
    output = "[plan(city='Oslo'), plan_all(days=1)]"
    assert verdict(output, mixed, *functions) == "simple_function_checker:unclear"
    own = {"level_2": {"city": "Rome"}}
    assert verdict("[level_2(city='Rome')]", own, function("level_2")) == "function_mismatch"


def test_any_alternative_counts_and_the_first_names_the_error() -> None:
    gold = [{"plan": {"city": "Rome"}}, {"plan": {"city": "Oslo"}}]
    assert verdict("[plan(city='Oslo')]", gold) == ""
    assert verdict("[plan(city=5)]", [*gold, {"trip": {}}]) == "type_error"


INCOMPLETE = {"book": ["day", "room"], "pay": ["card"]}
WRONG = {"day": ["x1"]}


@pytest.mark.parametrize(
    ("category", "gold", "output", "error_type"),
    [
        ("incomplete", INCOMPLETE, "Missing necessary parameters: book pay day room card", ""),
        ("incomplete", INCOMPLETE, "Missing necessary parameters (day, room)", "error_correction"),
        ("incomplete", INCOMPLETE, "missing necessary parameters", "error_detection"),
        ("incomplete", INCOMPLETE, None, "official_crash"),
        ("error_param", WRONG, "There is incorrect value (x1) for (hour)", ""),
        ("error_param", WRONG, "There is incorrect value (x)", "error_correction"),
        ("irrelevant", "...", "[f(x='the limitations of the function')]", ""),
        ("irrelevant", "...", "I cannot solve this problem.", "error_detection"),
    ],
)
def test_special_rows(category: str, gold: Any, output: str | None, error_type: str) -> None:
    assert verdict(output, gold, category=f"special_{category}") == error_type
