"""The mini set is complete, consistent with its own functions, and short."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from ace_ray.benchmarks.bfcl.categories import (
    CATEGORIES,
    FORMAT_SENSITIVITY,
    FORMS,
    MEMORY,
    MULTI_TURN,
    RELEVANCE,
    SCORING,
    SINGLE_TURN,
)
from ace_ray.benchmarks.bfcl.data.loader import function_docs, load, prerequisites
from ace_ray.benchmarks.bfcl.data.upstream_package import UpstreamPackage
from ace_ray.benchmarks.bfcl.functions import offered
from ace_ray.benchmarks.bfcl.tools.own import CLASSES
from ace_ray.types import Entry

COPY = UpstreamPackage.locate("mini")
ENTRIES = load(COPY)
DOCS = function_docs(COPY)
ANSWERED = [c for c in SINGLE_TURN if c not in RELEVANCE]


def of(*categories: str) -> list[Any]:
    return [pytest.param(e, id=e.id) for e in ENTRIES if e.category in categories]


def test_every_category_is_there() -> None:
    counts = Counter(entry.category for entry in ENTRIES)
    assert set(counts) == set(CATEGORIES)
    assert {counts[category] for category in SCORING} == {3, 4}
    assert counts[FORMAT_SENSITIVITY] == 4 * len(FORMS)
    assert len({entry.key for entry in ENTRIES}) == len(ENTRIES)
    for entry in ENTRIES:
        assert entry.id.startswith(f"{entry.category}_")


def test_questions_are_short_enough_for_a_small_model() -> None:
    for entry in ENTRIES:
        if entry.category in SINGLE_TURN:
            assert len(json.dumps(entry.data)) < 2500, entry.id


def test_the_shapes_that_the_format_allows_occur() -> None:
    answered = [entry for entry in ENTRIES if entry.category in ANSWERED]
    calls = [call for entry in answered for call in entry.gold]
    names = [name for call in calls for name in call]
    values = [value for call in calls for args in call.values() for value in args.values()]
    kinds = {type(choice) for choices in values for choice in choices}
    assert kinds == {str, int, float, bool, list, dict}
    assert any("" in choices for choices in values)
    assert any("." in name for name in names)
    roles = {message["role"] for e in ENTRIES for turn in e.data["question"] for message in turn}
    assert roles == {"system", "user", "assistant"}
    assert any(e.data.get("function") == [] for e in ENTRIES if e.category == "live_irrelevance")


@pytest.mark.parametrize("entry", of(*ANSWERED))
def test_gold_calls_fit_their_functions(entry: Entry) -> None:
    functions = {function["name"]: function for function in entry.data["function"]}
    for call in entry.gold:
        ((name, arguments),) = call.items()
        parameters = functions[name]["parameters"]
        assert arguments.keys() <= parameters["properties"].keys()
        assert set(parameters["required"]) <= arguments.keys()
        for key, choices in arguments.items():
            assert choices, "nothing is acceptable"
            if key in parameters["required"]:
                assert "" not in choices
    if "parallel" in entry.category:
        assert len(entry.gold) > 1
    else:
        assert len(entry.gold) == 1


def literal_calls(turns: list[list[str]]) -> Iterator[tuple[int, str, list[Any], dict[str, Any]]]:
    for number, calls in enumerate(turns):
        for text in calls:
            call = ast.parse(text, mode="eval").body
            assert isinstance(call, ast.Call)
            assert isinstance(call.func, ast.Name)
            arguments = [ast.literal_eval(argument) for argument in call.args]
            named = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
            yield number, call.func.id, arguments, named


@pytest.mark.parametrize("entry", of(*MULTI_TURN))
def test_gold_turns_work_out(entry: Entry) -> None:
    """Every gold call is one of an offered function, and succeeds; each turn that has some does
    something that the checks can see."""
    held_out: Mapping[str, Any] = entry.data.get("missed_function", {})
    functions, later = offered(DOCS, entry.data["involved_classes"], held_out)
    since = {function["name"]: 0 for function in functions}
    since |= {one["name"]: int(turn) for turn, more in later.items() for one in more}
    (name,) = entry.data["involved_classes"]
    tools = CLASSES[name]()
    tools._load_scenario(entry.data["initial_config"][name])
    for turn, method, arguments, named in literal_calls(entry.gold):
        assert since[method] <= turn, f"{method} is held out in turn {turn}"
        result = getattr(tools, method)(*arguments, **named)
        assert "error" not in result, (entry.id, turn, result)
    empty = [number for number, calls in enumerate(entry.gold) if not calls]
    assert bool(empty) == (entry.category in ("multi_turn_miss_func", "multi_turn_miss_param"))
    assert all(str(number + 1) in held_out for number in empty if held_out)


def test_documents_name_the_methods_of_the_classes() -> None:
    for name, tools in CLASSES.items():
        methods = {
            method: getattr(tools, method).__annotations__.keys() - {"return"}
            for method in dir(tools)
            if not method.startswith("_")
        }
        documented = {doc["name"]: doc["parameters"]["properties"].keys() for doc in DOCS[name]}
        assert documented == methods


@pytest.mark.parametrize("entry", of(*MEMORY))
def test_what_is_asked_was_said_before(entry: Entry) -> None:
    said = str(prerequisites(COPY)[entry.data["scenario"]]).lower()
    assert any(answer.lower() in said for answer in entry.gold["ground_truth"])


def test_conversations_come_before_every_scenario() -> None:
    conversations = prerequisites(COPY)
    assert {e.data["scenario"] for e in ENTRIES if e.category in MEMORY} == set(conversations)
    for scenario, rows in conversations.items():
        assert len(rows) == 2
        for number, row in enumerate(rows):
            assert re.fullmatch(rf"memory_prereq_{number}-{scenario}-{number}", row["id"])
