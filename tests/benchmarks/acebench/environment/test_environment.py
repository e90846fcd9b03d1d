"""App specifications, opening an environment, recorded state, and hostile calls."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.acebench.environment.app import fill
from ace_ray.benchmarks.acebench.environment.environment import (
    APPS,
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


def test_missing_parts_of_app_specs_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"worlds\.json"):
        load_app_specs(tmp_path)
    edits: dict[str, Callable[[Any], Any]] = {
        "zh Travel cannot": lambda w: w["zh"]["Travel"]["methods"]["modify_flight"]["texts"].pop(),
        r"zh FoodPlatform cannot be opened \(KeyError: 'view_orders'\)": (
            lambda w: w["zh"]["FoodPlatform"]["methods"].pop("view_orders")
        ),
        "multi_turn en Travel cannot be opened": lambda w: w["en"].pop("Travel"),
    }
    for number, (message, edit) in enumerate(edits.items()):
        app_specs = copy.deepcopy(mini())
        edit(app_specs["multi_turn"])
        folder = write_app_specs(tmp_path / str(number), json.dumps(app_specs))
        with pytest.raises(UserError, match=message) as caught:
            load_app_specs(folder)
        assert str(caught.value).startswith(str(folder / "upstream" / "worlds.json"))
    # The official ones need no bank.
    official = copy.deepcopy(mini())
    for loop in official.values():
        for classes in loop.values():
            del classes["Finance"]
    app_specs = load_app_specs(write_app_specs(tmp_path / "official", json.dumps(official)))
    with pytest.raises(UserError, match="unknown class 'Finance'"):
        check_entry(app_specs, agent_entry(["Finance"], {}))


def test_switches_of_another_type_are_named() -> None:
    configs: list[tuple[Any, str]] = [
        ([], "initial_config.BaseApi is not an object"),
        ({"wifi": 1}, "BaseApi.wifi is neither true nor false"),
        ({"logged_in_users": "Nora"}, "not a list of names"),
        ({"logged_in_users": [1]}, "not a list of names"),
    ]
    for config, message in configs:
        with pytest.raises(UserError, match=f"en one: .*{message}"):
            check_entry(mini(), agent_entry(["BaseApi"], {"BaseApi": config}))


def test_classes_are_recorded_in_the_entrys_order_with_integer_keys_as_texts() -> None:
    state = start("Travel", "MessageApi", "BaseApi", "ReminderApi", "FoodPlatform").state()
    assert [{name: list(saved) for name, saved in entry.items()} for entry in state] == [
        {"Travel": ["users", "reservations"]},
        {"MessageApi": ["inbox"]},
        {"BaseApi": ["wifi", "logged_in"]},
        {"ReminderApi": ["reminder_list"]},
        {"FoodPlatform": ["users", "logged_in_users", "orders"]},
    ]
    assert state[1]["MessageApi"]["inbox"] == initial("MessageApi", "inbox")


def test_switches_come_from_the_config_or_the_app_specs() -> None:
    for config in ({}, {"Baspi": ON["BaseApi"]}, {"MessageApi": {"wifi": True}}):
        assert Sandbox("BaseApi", config=config).state == {"wifi": False, "logged_in": True}
    app_specs = copy.deepcopy(mini())
    source = {"key": "online", "default": True}
    app_specs["multi_step"]["zh"]["BaseApi"]["load_scenario"]["wifi"] = source
    entry = agent_entry(["BaseApi"], {"BaseApi": {"logged_in": False}}, "multi_step", "zh")
    state = open_environment(app_specs, entry).state()
    assert state == [{"BaseApi": {"wifi": True, "logged_in": False}}]


def test_results_are_shown_as_the_official_execution_does() -> None:
    results: list[tuple[Any, Any]] = [
        ("plain", "plain"),
        ("500.0", 500.0),
        ({1: "x", "y": (2,)}, {"1": "x", "y": [2]}),
        ([1, 2], [1, 2]),
        ([{"a": "b"}], "[{'a': 'b'}]"),
        (True, "True"),
    ]
    for result, message in results:
        assert repr(as_message(result)) == repr(message)
    # Texts are filled in one pass, and values are not looked into.
    values = {"a": "{b}", "b": "{0.__class__}", "-n": -3}
    assert fill("{a}|{b}|{-n}|{c}|{}|{a!r}", values) == "{b}|{0.__class__}|-3|{c}|{}|{a!r}"


def test_only_tools_of_the_involved_apps_with_their_arguments_can_be_called() -> None:
    environment = start("MessageApi")
    for name in ("__init__", "state", "BaseApi.turn_on_wifi", "view_all_reminders", "x" * 9999):
        observation = environment.call(name, {})
        assert observation.error == "unknown_tool"
        assert len(observation.value) < 200
    for app, error in (("FoodPlatform", ""), ("Travel", "unknown_tool")):
        assert start(app).call("turn_on_wifi", {}).error == error
    for arguments, problem in (
        ({"self": 1, "x": 2}, "got multiple values for argument 'self'"),
        ({"x": 2, "self": 1}, "got an unexpected keyword argument 'x'"),
    ):
        result = environment.call("turn_on_wifi", arguments)
        assert result.value == f"BaseApi.turn_on_wifi() {problem}"


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


def test_hostile_calls_never_raise_and_stay_in_their_environment() -> None:
    deep: list[Any] = []
    for _ in range(500):
        deep = [deep]
    junk: list[Any] = [None, True, -1, 10**60, 10**200, "{0.__class__}", ["Nora"], {"a": {"b": 1}}]
    junk += [deep, "x" * 2_000_000, {1: 2}, float("nan"), b"", object()]
    pristine, untouched = copy.deepcopy(mini()), start(*APPS)
    before, environment = untouched.state(), start(*APPS)
    for app in mini()["multi_turn"]["en"].values():
        for name, method in app["methods"].items():
            for value in junk:
                arguments = {param["name"]: value for param in method["params"]}
                assert environment.call(name, arguments).error != "unknown_tool"
    assert json.dumps(environment.state()) != json.dumps(before)
    assert untouched.state() == before
    assert mini() == pristine
