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
    "stops": {"type": "array", "items": {"type": "object"}},
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


FORMATS = {
    "[plan(city='Rome')]": "",
    "Sure: [plan(city='Rome')] - done": "",
    "[plan(city='Rome')] or [plan()]": "",
    "[plan(1, city='Rome')]": "",
    "[plan(city='Oslo', city='Rome')]": "",
    "[plan(city=Rome)]": "",
    "[plan(city='Ro' + 'me')]": "",
    "[plan(city='%s' % 'Rome')]": "",
    "[plan(city='Rome'[0])]": "",
    "[plan(city='Rome' + str(1))]": "official_unsafe",
    "[plan(city='Rome' * 2 ** 19)]": "official_unsafe",
    "[plan(city=1 - 'Rome' + str(1))]": "wrong_output_format",
    "[plan(city=-'Rome')]": "wrong_output_format",
    "[plan(city=f'Rome')]": "wrong_output_format",
    "[plan(city={**Rome})]": "wrong_output_format",
    "[plan(city={[]: 'Rome'})]": "wrong_output_format",
    "[plan(city=lambda: 'Rome')]": "wrong_output_format",
    "[plan(city=1 - 'a'), plan(city=f() + 1)]": "wrong_output_format",
    "[plan(city=f() + 1), plan(city=1 - 'a')]": "wrong_output_format",
    "[plan(city=len('a') + 1), plan(city=1 - 'a')]": "official_unsafe",
    "[plan(**city)]": "addition_args",
    "plan(city='Rome')": "wrong_output_format",
    "(plan(city='Rome'),)": "wrong_output_format",
    "Step [1]: [plan(city='Rome')]": "wrong_output_format",
    "] [plan(city='Rome')]": "wrong_output_format",
    "[plan(city='Rome'": "wrong_output_format",
    "[plan(city='[Rome')]": "wrong_output_format",
    "[plan(city='\ud800')]": "wrong_output_format",
    "[plan(city='Rome')] \ud800\x01": "",
    "": "wrong_output_format",
    "[]": "wrong functions number",
    "[trip(city='Rome')]": "function_mismatch",
    "[plan(city='Rome'), plan(city='Rome')]": "wrong functions number",
}


@pytest.mark.parametrize(("output", "error_type"), FORMATS.items())
def test_formats(output: str, error_type: str) -> None:
    assert verdict(output, {"plan": {"city": "Rome"}}) == error_type


@pytest.mark.parametrize(
    ("output", "error_type"),
    [
        ("[plan(city='New York')]", ""),
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


VALUES: list[tuple[str, Any, str, str]] = [
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
    ("days", 5, "'5'", "type_error"),
    ("days", 5, "+5", ""),
    ("price", 2.5, "7", ""),
    ("price", 2.5, "7.1", ""),
    ("ratio", 2.5, "3", ""),
    ("ratio", 2.5, f"0x{'f' * 300}", "official_crash"),
    ("open", True, "False", ""),
    ("open", True, "1", ""),
    ("open", True, "'false'", ""),
    ("open", True, "'False'", "type_error"),
    ("tags", ["Ab", "c d"], "['ab', 'cd']", ""),
    ("tags", ["Ab", "c d"], "['cd', 'ab']", "value_error:list/tuple"),
    ("tags", ["Ab"], "[1]", "value_error:list/tuple"),
    ("tags", ["Ab"], "('Ab',)", "type_error"),
    ("tags", [], "[]", "type_error"),
    ("tags", {"a": 1}, "[1]", ""),
    ("tags", [["a"]], "[1]", "type_error"),
    ("tags", [["a"]], f"[0x{'f' * 4000}]", "official_crash"),
    ("tags", 5, "[1]", "official_crash"),
    ("stops", [{"a": "X y"}], "[{'a': 'xy z'}]", ""),
    ("stops", [{"a": 1}], "[{'a': 1}, {'a': 2}]", "value_error:list_dict_count"),
    ("stops", [{"a": 1}], "['a']", "value_error"),
    ("stops", ["a"], "[{'a': 1}]", "official_crash"),
    ("options", {"a": 5, "b": {"c": True}}, "{'b': {'c': 'true'}, 'a': '5 kg'}", ""),
    ("options", {"a": 5}, "{'a': 15}", ""),
    ("options", {"a": 5}, "{'a': 6}", "value_error"),
    ("options", {"a": 5}, "{'a': 5, 'b': 6}", "value_error"),
    ("options", {"a": ["x y"]}, "{'a': ['xy']}", "value_error"),
    ("options", {"a": 5}, f"{{'a': 0x{'f' * 4000}}}", "official_crash"),
    ("options", {}, "{}", "type_error"),
    ("kind", "a", "'a'", ""),
    ("odd", "a", "'a'", "official_crash"),
]


@pytest.mark.parametrize(
    ("param", "gold", "value", "error_type"), VALUES, ids=lambda part: str(part)[:30]
)
def test_values(param: str, gold: Any, value: str, error_type: str) -> None:
    assert verdict(f"[plan({param}={value})]", {"plan": {param: gold}}) == error_type


def test_parameters() -> None:
    gold = {"plan": {"city": "Rome", "days": 5}}
    needs_city = function("plan", required=("city",))
    assert verdict("[plan(city='Rome')]", gold, needs_city) == ""
    assert verdict("[plan(days=5)]", gold, needs_city) == "lack_args"
    assert verdict("[plan(city='Rome', open=True)]", gold, needs_city) == "addition_args"
    assert verdict("[plan()]", gold, needs_city) == "wrong_param"
    assert verdict("[plan(city='x')]", {"plan": {}}, needs_city) == "wrong_param"
    assert verdict("[plan()]", {"plan": {}}, {"name": "plan", "parameters": {}}) == ""
    assert verdict("[plan(city='x')]", {"plan": PROPERTIES}) == ""
    assert verdict("[plan(city='x')]", gold, {"name": "plan", "arguments": {}}) == "official_crash"
    assert verdict("[plan(city='x')]", gold, {"name": "trip"}) == "official_crash"


def test_numbers_are_cut_from_gold_names_and_schemas_found_by_substring() -> None:
    gold = {"plan_1": {"days": 1}, "plan_2": {"city": "Rome"}}
    assert verdict("[plan(city='Rome'), plan(days=7)]", gold) == ""
    # One call can satisfy two gold calls; what the other one says is then not looked at.
    twice = {"plan_1": {"city": "Rome"}, "plan_2": {"city": "Rome"}}
    assert verdict("[plan(city='Rome'), plan(nonsense=1)]", twice) == ""
    assert verdict("[plan(city='Oslo'), plan(nonsense=1)]", twice) == "addition_args"
    mixed = {"plan": {"city": "Rome"}, "plan_all": {"days": 1}}
    functions = function("plan"), function("plan_all")
    output = "[plan(city='Rome'), plan_all(days=1)]"
    assert verdict(output, mixed, *functions) == "wrong_function_name"
    output = "[plan(city='Oslo'), plan_all(days=1)]"
    assert verdict(output, mixed, *functions) == "simple_function_checker:unclear"
    own = {"level_2": {"city": "Rome"}}
    assert verdict("[level_2(city='Rome')]", own, function("level_2")) == "function_mismatch"


def test_alternatives() -> None:
    gold = [{"plan": {"city": "Rome"}}, {"plan": {"city": "Oslo"}}]
    assert verdict("[plan(city='Oslo')]", gold) == ""
    assert verdict("[plan(city=5)]", [*gold, {"trip": {}}]) == "type_error"


def test_sums_too_deep_to_be_written_back_are_a_format_error() -> None:
    gold = {"plan": {"days": 5}}
    assert verdict(f"[plan(days={'1+' * 300}1)]", gold) == ""
    assert verdict(f"[plan(days={'1+' * 329}1)]", gold) == "wrong_output_format"
    assert verdict(f"[plan(days={'f()+' * 329}1)]", gold) == "wrong_output_format"


OPERATIONS = {
    "1 + [1, 2][0]": "",
    "1 + (2 if True else 3)": "",
    "1 + (0 or 2)": "",
    "1 + (2 > 1)": "",
    "1 + {1}": "wrong_output_format",
    "1 + (lambda: 0)": "wrong_output_format",
    "1 / 0, city=x + 1": "wrong_output_format",
    "x + 1, city=1 / 0": "wrong_output_format",
    "print + 1, city=1 / 0": "wrong_output_format",
    "'x' ** 2": "wrong_output_format",
    "'x' << 2": "wrong_output_format",
    "2 ** 2": "",
    "2 << 2": "",
    "9 ** 9 ** 9": "official_unsafe",
    "x ** 2": "wrong_output_format",
    "1 / 0 + open('x')": "wrong_output_format",
    "'a' - 1 + exit()": "wrong_output_format",
    "1 / 0 + x": "wrong_output_format",
    "1 + [y for y in 'a']": "official_unsafe",
    "1 + [y for y in x]": "wrong_output_format",
    # What models write without quotes: a name that means nothing to upstream raises NameError.
    "2025-Q2": "wrong_output_format",
    "john.doe@example.com": "wrong_output_format",
    "foo + bar": "wrong_output_format",
    "all-inclusive": "wrong_output_format",
    "3-5-days": "wrong_output_format",
    "id-123": "wrong_output_format",
    "max(1, 2) + days": "official_unsafe",
    "max(1, days) + 2": "wrong_output_format",
    "days(max) + 2": "wrong_output_format",
    "value + 1": "wrong_output_format",
    "json + 1": "wrong_output_format",
    "ast.x + 1": "official_unsafe",
    "x.ast + 1": "wrong_output_format",
    "1 + (2 or print(1))": "",
    "1 + (0 or print(1))": "official_unsafe",
    "1 + (2 if True else x)": "",
    "'%s' % list": "official_unsafe",
    "'%s' % lists": "wrong_output_format",
    "int | str": "official_unsafe",
    "__name__ + 'a'": "official_unsafe",
    "'a'.upper() + 'b'": "official_unsafe",
    "'a'.uppr() + 'b'": "wrong_output_format",
    "5(3) + 1": "wrong_output_format",
    "1 + (lambda: print(1))()": "official_unsafe",
    "1 + (await x)": "wrong_output_format",
    "1 + (x := 2)": "official_unsafe",
    "1 + (x := y)": "wrong_output_format",
    "[1, 2][0]": "type_error",
    "-" * 100_000 + "1": "wrong_output_format",
    "a" + ".a" * 50_000: "wrong_output_format",
    "1+" * 40_000 + "1": "wrong_output_format",
    "1" + " " * 70_000: "",
    "'" + "x" * 5_000_000 + "'": "wrong_output_format",
}


@pytest.mark.parametrize(("value", "error_type"), OPERATIONS.items(), ids=lambda text: text[:20])
def test_operations_on_literals_are_done_and_others_named(value: str, error_type: str) -> None:
    assert verdict(f"[plan(days={value})]", {"plan": {"days": 3, "city": "Rome"}}) == error_type


def test_long_texts_are_read() -> None:
    gold = {"plan": {"city": "Rome"}}
    assert verdict(f"[plan(city='Rome{'x' * 1_000_000}')]", gold) == ""
    assert verdict(f"[plan(city='Rome' + '{'x' * 1_000_000}')]", gold) == ""
    assert verdict("[plan(city='Ro' + f'me')]", gold) == ""
    multi_turn = "normal_multi_turn_user_adjust"
    assert verdict("[" * 200_000, gold, category=multi_turn) == "wrong_output_format"


def test_a_caller_deep_in_its_own_stack_gets_a_verdict_all_the_same() -> None:
    # Each output is another one: the last one is not decoded again.
    def deeper(levels: int, lists: int) -> str:
        if levels:
            return deeper(levels - 1, lists)
        return verdict(f"[plan(tags={'[' * lists}{']' * lists})]", {"plan": {"tags": ["x"]}})

    assert deeper(0, 190) == deeper(250, 189) == "value_error:list/tuple"
    assert deeper(850, 188) in ("wrong_output_format", "official_crash")


def test_an_output_may_be_missing() -> None:
    assert verdict(None, {"plan": {}}) == "wrong_output_format"
    assert verdict(None, {"a": ["b"]}, category="special_incomplete") == "official_crash"


INCOMPLETE = {"book": ["day", "room"], "pay": ["card"]}
SPECIAL = [
    ("special_incomplete", INCOMPLETE, "Missing necessary parameters: book pay day room card", ""),
    (
        "special_incomplete",
        INCOMPLETE,
        "Missing necessary parameters (day, room) for the api (book)",
        "error_correction",
    ),
    ("special_incomplete", INCOMPLETE, "missing necessary parameters", "error_detection"),
    ("special_error_param", {"day": ["x1"]}, "There is incorrect value (x1) for (hour)", ""),
    ("special_error_param", {"day": ["x1"]}, "There is incorrect value (x)", "error_correction"),
    ("special_error_param", {"day": ["x1"]}, "There is an incorrect value", "error_detection"),
    ("special_irrelevant", "...", "[f(x='the limitations of the function')]", ""),
    ("special_irrelevant", "...", "I cannot solve this problem.", "error_detection"),
]


@pytest.mark.parametrize(("category", "gold", "output", "error_type"), SPECIAL)
def test_special(category: str, gold: Any, output: str, error_type: str) -> None:
    assert verdict(output, gold, category=category) == error_type
