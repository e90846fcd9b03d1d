"""App specifications, opening an environment, recorded state, and hostile calls."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.acebench.environment.app import fill
from ace_ray.benchmarks.acebench.environment.environment import (
    APPS,
    MAX_SHOWN,
    Environment,
    as_message,
    check_entry,
    load_app_specs,
    open_environment,
)
from ace_ray.errors import UserError
from tests.benchmarks.acebench.environment.mini_environments import (
    ON,
    Sandbox,
    agent_entry,
    initial,
    mini,
    start,
)


def write_app_specs(folder: Path, text: str) -> Path:
    (folder / "upstream").mkdir(parents=True)
    (folder / "upstream" / "worlds.json").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda w: w.pop("multi_step"), r"multi_step en BaseApi cannot be opened \(KeyError"),
        (lambda w: w["multi_turn"]["en"].pop("Travel"), "multi_turn en Travel cannot be opened"),
        (
            lambda w: w["multi_turn"]["en"]["MessageApi"]["state"]["inbox"].update(x={}),
            "en MessageApi cannot be opened",
        ),
        (
            lambda w: w["multi_turn"]["zh"]["FoodPlatform"]["methods"].pop("view_orders"),
            r"zh FoodPlatform cannot be opened \(KeyError: 'view_orders'\)",
        ),
        (
            lambda w: w["multi_turn"]["zh"]["Travel"]["methods"]["modify_flight"]["texts"].pop(),
            "zh Travel cannot be opened",
        ),
    ],
)
def test_missing_parts_of_app_specs_are_named(
    tmp_path: Path, edit: Callable[[dict[str, Any]], Any], message: str
) -> None:
    app_specs = copy.deepcopy(mini())
    edit(app_specs)
    folder = write_app_specs(tmp_path, json.dumps(app_specs))
    with pytest.raises(UserError, match=message) as caught:
        load_app_specs(folder)
    assert str(caught.value).startswith(str(folder / "upstream" / "worlds.json"))


def test_official_app_specs_need_no_bank(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"worlds\.json"):
        load_app_specs(tmp_path)
    official = copy.deepcopy(mini())
    for loop in official.values():
        for classes in loop.values():
            del classes["Finance"]
    app_specs = load_app_specs(write_app_specs(tmp_path, json.dumps(official)))
    check_entry(app_specs, agent_entry(["Travel"], {}))
    with pytest.raises(UserError, match="unknown class 'Finance'"):
        check_entry(app_specs, agent_entry(["Finance"], {}))


@pytest.mark.parametrize(
    ("classes", "config", "message"),
    [
        (["BaseApi", "Mail"], {}, "an unknown class 'Mail'; known are BaseApi"),
        (["BaseApi"], {"BaseApi": []}, "initial_config.BaseApi is not an object"),
        (["BaseApi"], {"BaseApi": {"wifi": 1}}, "BaseApi.wifi is neither true nor false"),
        (["BaseApi"], {"BaseApi": {"logged_in": "no"}}, "BaseApi.logged_in is neither"),
        (["BaseApi"], {"BaseApi": {"logged_in_users": "Nora"}}, "not a list of names"),
        (["BaseApi"], {"BaseApi": {"logged_in_users": [1]}}, "not a list of names"),
    ],
)
def test_environments_that_cannot_be_opened(
    classes: list[str], config: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=f"en one: .*{message}"):
        check_entry(mini(), agent_entry(classes, config))


def test_classes_are_recorded_in_the_entrys_order_with_integer_keys_as_texts() -> None:
    state = start("Travel", "MessageApi", "BaseApi", "ReminderApi", "FoodPlatform").state()
    assert [(name, list(value)) for entry in state for name, value in entry.items()] == [
        ("Travel", ["users", "reservations"]),
        ("MessageApi", ["inbox"]),
        ("BaseApi", ["wifi", "logged_in"]),
        ("ReminderApi", ["reminder_list"]),
        ("FoodPlatform", ["users", "logged_in_users", "orders"]),
    ]
    assert state[1]["MessageApi"]["inbox"] == initial("MessageApi", "inbox")


def test_only_the_phones_own_key_sets_switches() -> None:
    for config in ({}, {"Baspi": ON["BaseApi"]}, {"MessageApi": {"wifi": True}}):
        assert Sandbox("BaseApi", config=config).state == {"wifi": False, "logged_in": True}


def test_defaults_are_those_of_the_app_specs() -> None:
    app_specs = copy.deepcopy(mini())
    source = {"key": "online", "default": True}
    app_specs["multi_step"]["zh"]["BaseApi"]["load_scenario"]["wifi"] = source
    entry = agent_entry(["BaseApi"], {"BaseApi": {"logged_in": False}}, "multi_step", "zh")
    environment = open_environment(app_specs, entry)
    assert environment.state() == [{"BaseApi": {"wifi": True, "logged_in": False}}]


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ("plain", "plain"),
        ("500.0", 500.0),
        ({1: "x", "y": (2,)}, {"1": "x", "y": [2]}),
        ([1, 2], [1, 2]),
        ([{"a": "b"}], "[{'a': 'b'}]"),
        (3, 3),
        (True, "True"),
    ],
)
def test_results_are_shown_as_the_official_execution_does(result: Any, message: Any) -> None:
    shown = as_message(result)
    assert shown == message
    assert type(shown) is type(message)


def test_texts_are_filled_in_one_pass_and_values_not_looked_into() -> None:
    values = {"a": "{b}", "b": "{0.__class__}", "-n": -3}
    assert fill("{a}|{b}|{-n}|{c}|{}|{a!r}", values) == "{b}|{0.__class__}|-3|{c}|{}|{a!r}"


@pytest.mark.parametrize(
    "name", ["", "__init__", "state", "turn_on_wifi ", "BaseApi.turn_on_wifi", "view_all_reminders"]
)
def test_only_tools_of_the_involved_apps_can_be_called(name: str) -> None:
    environment = start("MessageApi")
    observation = environment.call(name, {})
    assert observation.error == "unknown_tool"
    assert len(observation.value) < 200


def test_the_receiver_is_bound() -> None:
    app = start("FoodPlatform")
    found = app.call("turn_on_wifi", {"self": 1, "x": 2})
    problem = "BaseApi.turn_on_wifi() got multiple values for argument 'self'"
    assert (found.error, found.value) == ("bad_arguments", problem)
    found = app.call("turn_on_wifi", {"x": 2, "self": 1})
    assert found.value == "BaseApi.turn_on_wifi() got an unexpected keyword argument 'x'"


def test_states_answers_and_arguments_are_copies() -> None:
    app = Sandbox("ReminderApi")
    before = app.state
    app.state["reminder_list"].clear()
    app("view_reminder_by_title", title="Piano")["reminder"]["title"] = "?"
    assert app.state == before
    time: list[Any] = [{"h": 1}]
    app("add_reminder", title="t", description="d", time=time)
    time[0]["h"] = 2
    assert app.state["reminder_list"]["3"]["time"] == [{"h": 1}]


DEEP: list[Any] = []
for _ in range(500):
    DEEP = [DEEP]
GOOD: list[Any] = ["Nora", "user1", "res_1", "QX101", "QX202", "pear11", "Economy Class"]
GOOD += ["bank", "Green Ladle", [{"product": "Beet Wrap", "quantity": 1}], 1, 2, 5.5]
JUNK: list[Any] = [None, True, -1, 10**60, 10**200, "{0.__class__}", ["Nora"], {"a": {"b": 1}}]
JUNK += [DEEP, "x" * 2_000_000, {1: 2}, float("nan"), float("inf"), b"", object()]


def wander(environment: Environment, seed: int, steps: int) -> list[str]:
    """Make random calls, some sensible, and return the observations as text."""
    random_ = random.Random(seed)
    methods = [
        (name, [param["name"] for param in method["params"]])
        for app in mini()["multi_turn"]["en"].values()
        for name, method in app["methods"].items()
    ]
    seen = []
    for _ in range(steps):
        name, params = random_.choice(methods)
        if random_.random() < 0.2:
            params = [*params[1:], random_.choice(["self", "__class__"])]
        values = [random_.choice(GOOD if random_.random() < 0.8 else JUNK) for _ in params]
        arguments = dict(zip(params, values, strict=True))
        seen.append(repr(environment.call(name, arguments))[:2000])
    return seen


def test_hostile_calls_never_raise_and_replay_to_the_same_state() -> None:
    pristine = copy.deepcopy(mini())
    untouched = start(*APPS)
    before = untouched.state()
    changed = 0
    for seed in range(15):
        environments = [start(*APPS) for _ in range(2)]
        seen = [wander(environment, seed, 40) for environment in environments]
        assert seen[0] == seen[1]
        assert json.dumps(environments[0].state()) == json.dumps(environments[1].state())
        changed += environments[0].state() != before
    assert changed
    assert untouched.state() == before
    assert mini() == pristine


def test_answers_show_changes_by_later_calls() -> None:
    app = Sandbox("FoodPlatform")
    app("login_food_platform", username="Nora", password="pear11")
    assert app("view_logged_in_users")["logged_in_users"] == ["Nora"]
    app("login_food_platform", username="Timo", password="plum22")
    shown = app.environment.shown
    assert shown(2)[0]["logged_in_users"] == ["Nora", "Timo"]
    assert (len(shown(0)), len(shown(10_000))) == (0, 3)
    for _ in range(MAX_SHOWN):
        app("view_logged_in_users")
    assert len(shown(10_000)) == MAX_SHOWN
