"""The mini set is complete, joined, consistent with its own schemas, and solvable."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from ace_ray.benchmarks.acebench.categories import (
    AGENT,
    CATEGORIES,
    GENERATION,
    LANGUAGES,
    MULTI_TURN,
    NORMAL,
)

from ace_ray.benchmarks.acebench.data import loader as data
from ace_ray.benchmarks.acebench.gold import alternatives, function_name
from ace_ray.types import Entry

ENTRIES = data.load(data.MINI)
APP_SPECS = json.loads((data.MINI / "upstream" / "worlds.json").read_text(encoding="utf-8"))
TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


def of(*categories: str) -> list[Entry]:
    return [entry for entry in ENTRIES if entry.category in categories]


def schema(entry: Entry, name: str) -> dict[str, Any]:
    (found,) = [f["parameters"] for f in entry.data["function"] if f["name"] == name]
    return dict(found)


def check_value(value: Any, rule: Mapping[str, Any], where: str) -> None:
    assert isinstance(value, TYPES[rule["type"]]), where
    assert isinstance(value, bool) == (rule["type"] == "boolean"), where
    assert value != "", where
    if "enum" in rule:
        assert value in rule["enum"], where
    if isinstance(value, list):
        assert value, f"{where}: an empty container in gold cannot be matched"
        for item in value:
            check_value(item, rule["items"], where)
    if isinstance(value, dict):
        assert value.keys() == rule["properties"].keys(), where
        for key, item in value.items():
            check_value(item, rule["properties"][key], f"{where}.{key}")


def test_every_category_and_language_is_there() -> None:
    counts = Counter((entry.language, entry.category) for entry in ENTRIES)
    assert set(counts) == {(lang, category) for lang in LANGUAGES for category in CATEGORIES}
    assert set(counts.values()) == {4}
    assert len({entry.key for entry in ENTRIES}) == len(ENTRIES)
    for entry in ENTRIES:
        turns = r"\d+_\d+" if entry.category in MULTI_TURN else r"\d+"
        assert re.fullmatch(f"{entry.category}_{turns}", entry.id)


def test_rows_are_short_enough_for_a_laptop() -> None:
    for language, limit in (("en", 1000), ("zh", 700)):
        for entry in ENTRIES:
            if entry.language == language and entry.category in GENERATION:
                shown = [entry.data["question"], entry.data["function"]]
                assert len(json.dumps(shown, ensure_ascii=False)) < limit, entry.id


def test_the_shapes_that_the_format_allows_occur() -> None:
    for language in LANGUAGES:
        normal = [e for e in ENTRIES if e.language == language and e.category in NORMAL]
        calls = [call for e in normal for one in alternatives(e) for call in one.items()]
        assert any(isinstance(e.gold, list) for e in normal), "alternatives"
        assert any(re.search(r"_2$", name) for name, _ in calls), "one function called twice"
        assert any("." in name for name, _ in calls), "dotted names"
        assert any(e.data.get("time") for e in normal), "a current date"
        values = [value for _, args in calls for value in args.values()]
        assert {type(value) for value in values} == {str, int, float, bool, list, dict}


def test_no_function_name_is_part_of_another() -> None:
    """The official checker finds schemas by substring and drops numbers at the end of names."""
    for entry in of(*GENERATION):
        names = [function["name"] for function in entry.data["function"]]
        assert not any(a in b for a in names for b in names if a is not b)
        assert not any(re.search(r"_\d+$", name) for name in names)


def test_gold_calls_fit_their_schemas() -> None:
    for entry in of(*NORMAL):
        for calls in alternatives(entry):
            for key, arguments in calls.items():
                parameters = schema(entry, function_name(entry, key))
                assert arguments.keys() == parameters["properties"].keys()
                assert arguments.keys() == set(parameters["required"])
                for name, value in arguments.items():
                    check_value(value, parameters["properties"][name], f"{entry.id}.{name}")


def test_missing_parameters_are_required_ones() -> None:
    for entry in of("special_incomplete"):
        for api, missing in entry.gold.items():
            assert missing
            assert set(missing) <= set(schema(entry, api)["required"])


def test_wrong_values_stand_in_the_question_and_break_the_schema() -> None:
    for entry in of("special_error_param"):
        ((name, (value,)),) = entry.gold.items()
        rules = [f["parameters"]["properties"].get(name) for f in entry.data["function"]]
        (rule,) = [rule for rule in rules if rule]
        assert value in entry.data["question"]
        if "pattern" in rule:
            assert not re.search(rule["pattern"], value)
        elif "enum" in rule:
            assert value not in rule["enum"]
        else:
            assert float(value) > rule["maximum"]


def test_agent_rows_agree_with_their_app_specs() -> None:
    for entry in of(*AGENT):
        app_specs = APP_SPECS[entry.category.removeprefix("agent_")][entry.language]
        classes = entry.data["involved_classes"]
        states = entry.gold["ground_truth"]
        assert [name for state in states for name in state] == classes
        for state in states:
            for name, attributes in state.items():
                initial = {
                    a: v for c in (name, *app_specs[name]["bases"]) for a, v in _state(app_specs, c)
                }
                assert attributes.keys() <= initial.keys()
                for attribute, value in attributes.items():
                    assert type(value) is type(initial[attribute])

        offered = {function["name"]: function["parameters"] for function in entry.data["function"]}
        known = {method for name in classes for method in app_specs[name]["methods"]}
        assert offered.keys() <= known
        paths = entry.gold["mile_stone"]
        for step in [s for path in ([paths] if isinstance(paths[0], str) else paths) for s in path]:
            (call,) = ast.parse(step, mode="eval").body.elts
            arguments = {keyword.arg for keyword in call.keywords}
            parameters = offered[call.func.id]
            assert set(parameters["required"]) <= arguments <= parameters["properties"].keys()


def _state(app_specs: Mapping[str, Any], name: str) -> list[tuple[str, Any]]:
    return list(app_specs[name]["state"].items())
