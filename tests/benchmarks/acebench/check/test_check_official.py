"""The official rule set, rule by rule, on small entries of our own."""

from __future__ import annotations

from typing import Any

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
    "odd": {"type": "uuid"},
}
FORMAT, CRASH, UNSAFE = "wrong_output_format", "official_crash", "official_unsafe"
ROME = {"plan": {"city": "Rome"}}


def function(name: str, *required: str) -> dict[str, Any]:
    return {"name": name, "parameters": {"properties": PROPERTIES, "required": list(required)}}


def verdict(output: str | None, gold: Any, *functions: Any, category: str = "atom_bool") -> str:
    data = {"question": "?", "function": list(functions) or [function("plan")]}
    category = category if category.startswith("special") else f"normal_{category}"
    result = check(Entry("acebench", category, "en", "x", data, gold), output)["official"]
    assert result.valid == (result.error_type == "")
    return result.error_type


FIRST_LIST = {
    "Sure: [plan(1, city='Oslo', city='Rome')] or [plan()]": "",
    "[plan(city=Rome)]": "",
    "[plan(city='Rome'[0])]": "",
    "[plan(city='Rome')] \ud800\x01": "",
    "(plan(city='Rome'),)": FORMAT,
    "Step [1]: [plan(city='Rome')]": FORMAT,
    "] [plan(city='Rome')]": FORMAT,
    "[plan(city='[Rome')]": FORMAT,
    "[plan(city=-'Rome')]": FORMAT,
    None: FORMAT,
}
WITHOUT_WHITESPACE = {
    "[ plan ( city = 'Ro\tme' ) ]\n": "",
    "(plan(city='Rome'),)": "",
    "{plan(city='Rome')}": "",
    "Sure: [plan(city='Rome')]": FORMAT,
    "[plan(options={'a': ['x y']})]": "addition_args",
}
OPERATIONS = {
    "1 + [1, 2][0]": "",
    "1 + (2 or print(1))": "",
    "2025-Q2": FORMAT,
    "1 / 0, city=x + 1": FORMAT,
    "json + 1": FORMAT,
    "ast.x + 1": UNSAFE,
    "max(1, 2) + days": UNSAFE,
    "max(1, days) + 2": FORMAT,
}


def test_outputs_are_decoded_as_upstream_decodes_them() -> None:
    for output, error_type in FIRST_LIST.items():
        assert verdict(output, ROME) == error_type, output
    spaced = {"plan": {"city": "Ro me"}}
    for output, error_type in WITHOUT_WHITESPACE.items():
        assert verdict(output, spaced, category="multi_turn_user_switch") == error_type, output
    for value, error_type in OPERATIONS.items():
        gold = {"plan": {"days": 3, "city": "Rome"}}
        assert verdict(f"[plan(days={value})]", gold) == error_type, value


SCALARS: list[tuple[str, Any, str, str]] = [
    ("city", "New York", "'in new-york, ny'", ""),
    ("city", "New York", "'York'", "value_error:string"),
    ("city", "true", "'true'", "type_error"),
    ("city", "", "'anything'", ""),
    ("days", 5, "6", ""),
    ("days", 5, "5.0", ""),
    ("days", 5, "True", "type_error"),
    ("price", 2.5, "7.1", ""),
    ("ratio", 2.5, "3", ""),
    ("ratio", 2.5, f"0x{'f' * 300}", CRASH),
    ("open", True, "'false'", ""),
    ("odd", "a", "'a'", CRASH),
]
CONTAINERS: list[tuple[str, Any, str, str]] = [
    ("tags", ["Ab", "c d"], "['ab', 'cd']", ""),
    ("tags", ["Ab", "c d"], "['cd', 'ab']", "value_error:list/tuple"),
    ("pair", ["Ab"], "('Ab',)", ""),
    ("tags", [], "[]", "type_error"),
    ("tags", [["a"]], "[1]", "type_error"),
    ("tags", [["a"]], f"[0x{'f' * 4000}]", CRASH),
    ("stops", [{"a": "X y"}], "[{'a': 'xy z'}]", ""),
    ("stops", [{"a": 1}], "[{'a': 1}, {'a': 2}]", "value_error:list_dict_count"),
    ("stops", [{"a": 1}], "['a']", "value_error"),
    ("rows", [{"a": 1}], "[{'a': 1}, {'a': 2}]", "value_error:dict_items"),
    ("rows", [{"a": 1}], "[{'a': 1}]", CRASH),
    ("options", {"a": 5, "b": {"c": True}}, "{'b': {'c': 'true'}, 'a': '15 kg'}", ""),
    ("options", {"a": 5}, "{'b': 5}", "value_error"),
    ("options", {"a": {"b": 1}}, "{'a': {'b': 2}}", "value_error"),
    ("options", {"a": 5}, f"{{'a': 0x{'f' * 4000}}}", CRASH),
]


def test_values() -> None:
    for param, gold, value, error_type in SCALARS + CONTAINERS:
        found = verdict(f"[plan({param}={value})]", {"plan": {param: gold}})
        assert found == error_type, (param, gold, value[:30])


def test_parameters() -> None:
    gold, needs_city = {"plan": {"city": "Rome", "days": 5}}, function("plan", "city")
    assert verdict("[plan(city='Rome')]", gold, needs_city) == ""
    assert verdict("[plan(days=5)]", gold, needs_city) == "lack_args"
    assert verdict("[plan(city='Rome', open=True)]", gold, needs_city) == "addition_args"
    assert verdict("[plan()]", gold, needs_city) == "wrong_param"
    assert verdict("[plan(city='x')]", {"plan": {}}, needs_city) == "wrong_param"
    assert verdict("[plan()]", {"plan": {}}, {"name": "plan", "parameters": {}}) == ""
    assert verdict("[plan(city='x')]", {"plan": PROPERTIES}) == ""
    assert verdict("[plan(city='x')]", gold, {"name": "plan", "arguments": {}}) == CRASH


def test_calls_are_counted_and_matched_by_name() -> None:
    gold = {"plan_1": {"days": 1}, "plan_2": {"city": "Rome"}}
    assert verdict("[plan(city='Rome'), plan(days=7)]", gold) == ""
    assert verdict("[]", gold) == verdict("[plan(days=1)]", gold) == "wrong functions number"
    assert verdict("[plan(days=1), trip(days=1)]", gold) == "function_mismatch"
    assert verdict("[trip(city='Rome')]", ROME) == "function_mismatch"
    # One call can satisfy two gold calls; the rest of the output is then not looked at.
    twice = {"plan_1": {"city": "Rome"}, "plan_2": {"city": "Rome"}}
    assert verdict("[plan(city='Rome'), plan(nonsense=1)]", twice) == ""
    assert verdict("[plan(city='Oslo'), plan(nonsense=1)]", twice) == "addition_args"
    # Schemas are found by substring, and numbers are cut from the names.
    mixed = {**ROME, "plan_all": {"days": 1}}
    functions = function("plan"), function("plan_all")
    for city, error in (
        ("Rome", "wrong_function_name"),
        ("Oslo", "simple_function_checker:unclear"),
    ):
        assert verdict(f"[plan(city='{city}'), plan_all(days=1)]", mixed, *functions) == error
    own = {"level_2": {"city": "Rome"}}
    assert verdict("[level_2(city='Rome')]", own, function("level_2")) == "function_mismatch"
    # Any alternative counts, and the first names the error.
    assert verdict("[plan(city='Rome')]", [{"plan": {"city": "Oslo"}}, ROME]) == ""
    assert verdict("[plan(city=5)]", [ROME, {"trip": {}}]) == "type_error"


INCOMPLETE, WRONG = {"book": ["day", "room"], "pay": ["card"]}, {"day": ["x1"]}
SPECIAL: list[tuple[str, Any, str | None, str]] = [
    ("incomplete", INCOMPLETE, "Missing necessary parameters: book pay day room card", ""),
    ("incomplete", INCOMPLETE, "Missing necessary parameters (day, room)", "error_correction"),
    ("incomplete", INCOMPLETE, "missing necessary parameters", "error_detection"),
    ("incomplete", INCOMPLETE, None, CRASH),
    ("error_param", WRONG, "There is incorrect value (x1) for (hour)", ""),
    ("error_param", WRONG, "There is incorrect value (x)", "error_correction"),
    ("irrelevant", "...", "[f(x='the limitations of the function')]", ""),
    ("irrelevant", "...", "I cannot solve this problem.", "error_detection"),
]


def test_special_rows() -> None:
    for category, gold, output, error_type in SPECIAL:
        assert verdict(output, gold, category=f"special_{category}") == error_type, output
