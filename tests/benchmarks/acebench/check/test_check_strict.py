"""The strict rule set on small entries of our own."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from ace_ray.benchmarks.acebench.check import check
from ace_ray.benchmarks.acebench.check.strict import assign
from ace_ray.types import Entry

SCHEMA = {
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "price": {"type": "number"},
        "box": {
            "type": "object",
            "properties": {"lat": {"type": "float"}, "n": {"type": "integer"}},
        },
        "sizes": {"type": "array", "items": {"type": "number"}},
        "names": {"type": "array"},
        "counts": {"type": "array", "items": {"type": "integer"}},
        "rows": {
            "type": "array",
            "items": {"type": "object", "properties": {"n": {"type": "int"}}},
        },
    }
}


def verdict(
    output: str | None,
    gold: Any,
    *names: str,
    category: str = "normal_atom_bool",
) -> str:
    functions = [{"name": name, "parameters": SCHEMA} for name in names or ("plan",)]
    entry = Entry("acebench", category, "en", "x", {"question": "?", "function": functions}, gold)
    result = check(entry, output)["strict"]
    assert result.valid == (result.error_type == "")
    return result.error_type


FORMATS = {
    "[plan(city='Rome')]": "",
    '\n [ plan(\n  city = "Rome",\n) ] \n': "",
    "[plan(\r\n\rcity='Rome')\r\n]": "",
    "[plan(city='Rome')].": "output_format",
    "Sure: [plan(city='Rome')]": "output_format",
    "```\n[plan(city='Rome')]\n```": "output_format",
    "[plan(city='Rome')][plan(city='Rome')]": "output_format",
    "[plan(city='Rome')] # [1]": "output_format",
    "# [1]\n[plan(city='Rome')]": "output_format",
    "[plan(city='Rome')] + [plan()]": "output_format",
    "[plan(city='Rome')][0]": "output_format",
    "([plan(city='Rome')])": "output_format",
    "(plan(city='Rome'),)": "output_format",
    "plan(city='Rome')": "output_format",
    "[plan('Rome')]": "output_format",
    "[plan(city='Rome', **x)]": "output_format",
    "[plan(city='Rome', city='Rome')]": "output_format",
    "[plan(city=Rome)]": "output_format",
    "[plan(city='Ro' + 'me')]": "output_format",
    "[plan(city=true)]": "output_format",
    "[plan(city=null)]": "output_format",
    "": "output_format",
    "[]": "function_name",
    "[Plan(city='Rome')]": "function_name",
    "[plan(city='Rome'), plan(city='Rome')]": "function_name",
    "[plan()]": "param_num",
    "[plan(city='Rome', days=1)]": "param_num",
    "[plan(town='Rome')]": "param_num",
    "[plan(city=['Rome'])]": "param_type",
    "[plan(city='rome')]": "param_value",
    "[plan(city='Rome, Italy')]": "param_value",
}


@pytest.mark.parametrize(("output", "error_type"), FORMATS.items())
@pytest.mark.parametrize("category", ["normal_atom_bool", "normal_multi_turn_user_adjust"])
def test_formats_and_errors(output: str, error_type: str, category: str) -> None:
    assert verdict(output, {"plan": {"city": "Rome"}}, category=category) == error_type


def test_a_missing_output_is_a_format_error() -> None:
    assert verdict(None, {"plan": {"city": "Rome"}}) == "output_format"


VALUES: list[tuple[str, Any, str, str]] = [
    ("days", 5, "5", ""),
    ("days", 5, "5.0", ""),
    ("days", 5, "5.5", "param_type"),
    ("days", 5, "6.0", "param_value"),
    ("days", 5, "1e999", "param_type"),
    ("days", 5, "-1e999", "param_type"),
    ("days", 0, "-0.0", ""),
    ("days", 0, "False", "param_type"),
    ("days", 2.5, "2.5", ""),
    ("days", 5, "True", "param_type"),
    ("days", 1, "True", "param_type"),
    ("days", 5, "'5'", "param_type"),
    ("days", -5, "-5", ""),
    ("price", 75, "75.0", ""),
    ("price", 75, "75.5", "param_value"),
    ("price", 5.0, "5", ""),
    ("price", 0.1, "0.10000000000000002", "param_value"),
    ("price", 2**53, f"{2**53}.0", ""),
    ("price", 2**53 + 1, f"{2**53}.0", "param_value"),
    ("price", 5.0, "5.5", "param_value"),
    ("price", 5, "True", "param_type"),
    ("price", None, "None", ""),
    ("price", None, "0", "param_type"),
    ("box", {"lat": 1.0, "n": 2}, "{'n': 2, 'lat': 1.0}", ""),
    ("box", {"lat": 1.0, "n": 2}, "{'n': 2, 'lat': 1}", ""),
    ("box", {"lat": 1.0, "n": 2}, "{'n': 2.0, 'lat': 1}", ""),
    ("box", {"lat": 1.0, "n": 2}, "{'n': 2.5, 'lat': 1}", "param_type"),
    ("box", {"lat": 1.0, "n": 1}, "{'n': True, 'lat': 1}", "param_type"),
    ("box", {"lat": 1.0, "n": 1}, "{'n': 1, 'lat': True}", "param_type"),
    ("rows", [{"n": 2}], "[{'n': 2.0}]", ""),
    ("rows", [{"n": 2}], "[{'n': 2.5}]", "param_type"),
    ("rows", [{"n": 1}], "[{'n': True}]", "param_type"),
    ("counts", [1, 2], "[1.0, 2]", ""),
    ("counts", [1, 2], "[1.5, 2]", "param_type"),
    ("counts", [1, 0], "[True, False]", "param_type"),
    ("box", {"lat": 1.0, "n": 2}, "{'n': 2}", "param_value"),
    ("box", {"lat": 1.0}, "{'lat': 1.0, 'm': 2}", "param_value"),
    ("sizes", [1, 2.0], "[1, 2.0]", ""),
    ("sizes", [1, 2.0], "[1.0, 2]", ""),
    ("sizes", [1, 2.0], "[1.5, 2]", "param_value"),
    ("sizes", [1], "[True]", "param_type"),
    ("sizes", [1, 2.0], "[2, 1.0]", "param_value"),
    ("sizes", [1, 2.0], "[1]", "param_value"),
    ("sizes", [1, 2.0], "(1, 2.0)", "param_type"),
    ("names", ["a", ["b"]], "['a', ['b']]", ""),
    ("names", ["a", ["b"]], "['a', ['B']]", "param_value"),
    ("names", ["a", ["b"]], "['a', 'b']", "param_type"),
    ("names", [1], "[1.0]", ""),
    ("names", [True], "[1]", "param_type"),
    ("names", [], "[]", ""),
]


@pytest.mark.parametrize(("param", "gold", "value", "error_type"), VALUES)
def test_types_and_values(param: str, gold: Any, value: str, error_type: str) -> None:
    assert verdict(f"[plan({param}={value})]", {"plan": {param: gold}}) == error_type


def test_parallel_calls_need_a_call_each_in_any_order() -> None:
    gold = {"plan_1": {"days": 1}, "plan_2": {"days": 2}, "trip": {"days": 3}}
    names = ("plan", "trip")
    assert verdict("[trip(days=3), plan(days=2), plan(days=1)]", gold, *names) == ""
    assert verdict("[trip(days=3), plan(days=1), plan(days=1)]", gold, *names) == "param_value"
    assert verdict("[trip(days=3), plan(days=1), plan(days='2')]", gold, *names) == "param_type"
    assert verdict("[trip(days=3), plan(days=1), plan()]", gold, *names) == "param_num"
    assert verdict("[trip(days=3), plan(days=1)]", gold, *names) == "function_name"
    assert verdict("[trip(days=3), trip(days=2), plan(days=1)]", gold, *names) == "function_name"


def test_the_error_is_that_of_the_closest_assignment() -> None:
    gold = {"plan_1": {"days": 1}, "plan_2": {"days": 2, "city": "Rome"}}
    for calls in itertools.permutations(["plan(days=9)", "plan(days=2, city='Oslo')"]):
        assert verdict(f"[{', '.join(calls)}]", gold) == "param_value"


def test_numbers_are_kept_where_a_candidate_has_that_name() -> None:
    gold = {"level_2": {"city": "Rome"}}
    assert verdict("[level_2(city='Rome')]", gold, "level_1", "level_2") == ""
    assert verdict("[level(city='Rome')]", gold, "level_1", "level_2") == "function_name"
    assert verdict("[level(city='Rome')]", gold, "level") == ""


def test_alternatives() -> None:
    gold = [{"plan": {"days": 1}}, {"plan": {"city": "Oslo"}}]
    assert verdict("[plan(city='Oslo')]", gold) == ""
    assert verdict("[plan(days='1')]", gold) == "param_type"


def test_assignments_cost_least() -> None:
    source = random.Random(5)
    for size in (1, 2, 3, 4, 5):
        for _ in range(60):
            costs = [[source.randrange(6) for _ in range(size)] for _ in range(size)]
            columns = assign(costs)
            assert sorted(columns) == list(range(size))
            best = min(
                sum(costs[row][column] for row, column in enumerate(order))
                for order in itertools.permutations(range(size))
            )
            assert sum(costs[row][column] for row, column in enumerate(columns)) == best
