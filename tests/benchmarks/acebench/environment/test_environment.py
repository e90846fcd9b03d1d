"""Opening an environment, dispatch, recorded state, and what hostile calls cannot do."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest

from ace_ray.benchmarks.acebench.environment.app import fill
from ace_ray.benchmarks.acebench.environment.environment import (
    APPS,
    MAX_SHOWN,
    Environment,
    as_message,
    check_entry,
    open_environment,
)
from ace_ray.errors import UserError
from ace_ray.sandbox.protocol import Scenario
from tests.benchmarks.acebench.environment.mini_environments import (
    ON,
    agent_entry,
    answer,
    initial,
    mini,
    part,
    start,
)

EVERYTHING = list(APPS)
DEEP: list[Any] = []
for _ in range(500):
    DEEP = [DEEP]
JUNK: list[Any] = [
    None,
    True,
    0,
    -1,
    3,
    2.5,
    10**60,
    10**200,
    "",
    "Nora",
    "user1",
    "res_1",
    "QX101",
]
JUNK += ["{0.__class__}", "cash", [], ["Nora"], {}, {"product": "Beet Wrap"}, ("Nora",), DEEP]
JUNK += ["x" * 2_000_000, {"a": {"b": 1}}, {1: 2}, float("nan"), float("inf"), b"", object()]


def test_an_environment_is_a_scenario() -> None:
    scenario: Scenario = start("BaseApi")
    assert scenario.state() == [{"BaseApi": {"wifi": True, "logged_in": True}}]


def test_classes_are_recorded_in_the_entrys_order_with_integer_keys_as_texts() -> None:
    environment = start(["Travel", "MessageApi", "BaseApi", "ReminderApi", "FoodPlatform"])
    state = environment.state()
    assert [(name, list(value)) for entry in state for name, value in entry.items()] == [
        ("Travel", ["users", "reservations"]),
        ("MessageApi", ["inbox"]),
        ("BaseApi", ["wifi", "logged_in"]),
        ("ReminderApi", ["reminder_list"]),
        ("FoodPlatform", ["users", "logged_in_users", "orders"]),
    ]
    assert part(environment, "MessageApi")["inbox"] == initial("en", "MessageApi", "inbox")
    assert state == json.loads(json.dumps(state))


@pytest.mark.parametrize("config", [{}, {"Baspi": ON["BaseApi"]}, {"MessageApi": {"wifi": True}}])
def test_only_the_phones_own_key_sets_switches(config: dict[str, Any]) -> None:
    environment = start(["BaseApi", "MessageApi"], "en", config)
    assert part(environment, "BaseApi") == {"wifi": False, "logged_in": True}


def test_defaults_are_those_of_the_app_specs() -> None:
    app_specs = copy.deepcopy(mini())
    source = {"key": "online", "default": True}
    app_specs["multi_step"]["zh"]["BaseApi"]["load_scenario"]["wifi"] = source
    config = {"BaseApi": {"logged_in": False}}
    entry = agent_entry(["BaseApi"], config, loop="multi_step", language="zh")
    environment = open_environment(app_specs, entry)
    assert environment.state() == [{"BaseApi": {"wifi": True, "logged_in": False}}]


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ("plain", "plain"),
        ("500.0", 500.0),
        ('{"a": 1}', {"a": 1}),
        ({1: "x", "y": (2,)}, {"1": "x", "y": [2]}),
        ([], []),
        ([1, 2], [1, 2]),
        ([{"a": "b"}], "[{'a': 'b'}]"),
        (0.0, 0.0),
        (3, 3),
        (True, "True"),
        (None, "None"),
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
    "name",
    [
        "",
        "__class__",
        "__init__",
        "_check_capacity",
        "_load_scenario",
        "load_scenario",
        "state",
        "wifi",
        "inbox",
        "turn_on_wifi ",
        "MessageApi.send_message",
        "phone.wifi",
        "call",
        "x" * 9999,
    ],
)
def test_only_declared_names_can_be_called(name: str) -> None:
    environment = start(EVERYTHING, "en")
    before = environment.state()
    observation = environment.call(name, {})
    assert observation.error == "unknown_tool"
    assert len(observation.value) < 200
    assert environment.state() == before


def test_apps_that_are_not_involved_cannot_be_called() -> None:
    environment = start(["BaseApi", "ReminderApi"])
    assert environment.call("get_latest_message_id", {}).error == "unknown_tool"


def test_environments_share_nothing() -> None:
    pristine = copy.deepcopy(mini())
    first, second = start(EVERYTHING), start(EVERYTHING)
    before = second.state()
    assert first.state() == before
    for seed in range(20):
        wander(first, seed, 20)
    assert first.state() != before
    assert second.state() == before
    assert mini() == pristine


def test_a_recorded_state_is_a_copy() -> None:
    environment = start(EVERYTHING)
    recorded = environment.state()
    recorded[1]["MessageApi"]["inbox"].clear()
    answer(environment, "view_reminder_by_title", title="Piano")["reminder"]["title"] = "?"
    assert part(environment, "MessageApi")["inbox"] == initial("en", "MessageApi", "inbox")
    assert part(environment, "ReminderApi")["reminder_list"]["1"]["title"] == "Piano"


def test_arguments_are_not_kept() -> None:
    environment = start("ReminderApi")
    time: list[Any] = [{"h": 1}]
    environment.call("add_reminder", {"title": "t", "description": "d", "time": time})
    time[0]["h"] = 2
    assert part(environment, "ReminderApi")["reminder_list"]["3"]["time"] == [{"h": 1}]


def wander(environment: Environment, seed: int, steps: int) -> list[str]:
    """Make random calls, some sensible, and return the observations as text."""
    random_ = random.Random(seed)
    described = mini()["multi_turn"]["en"]
    methods = [
        (name, method["params"])
        for app in described.values()
        for name, method in app["methods"].items()
    ]
    seen = []
    for _ in range(steps):
        name, params = random_.choice(methods)
        arguments = {param["name"]: guess(random_, param["name"]) for param in params}
        if arguments and random_.random() < 0.1:
            arguments.pop(random_.choice(list(arguments)))
        if random_.random() < 0.05:
            arguments[random_.choice(["self", "__class__", "x"])] = 1
        seen.append(repr(environment.call(name, arguments))[:2000])
    return seen


def guess(random_: random.Random, parameter: str) -> Any:
    good: dict[str, list[Any]] = {
        "username": ["Nora"],
        "user_name": ["Nora"],
        "password": ["pear11"],
        "user_id": ["user1"],
        "reservation_id": ["res_1", "res_2"],
        "flight_no": ["QX101", "QX202"],
        "new_flight_no": ["QX101", "QX202"],
        "cabin": ["Economy Class"],
        "new_cabin": ["Economy Class", "Business Class"],
        "payment_method": ["cash", "bank"],
        "merchant_name": ["Green Ladle"],
        "items": [[{"product": "Beet Wrap", "quantity": 1}]],
        "amount": [5, 2.5],
        "receiver_name": ["Timo"],
        "sender_name": ["Nora"],
        "message_id": [1, 2, 3, 4],
        "reminder_id": [1, 2, 2001],
    }
    if parameter in good and random_.random() < 0.8:
        return random_.choice(good[parameter])
    return random_.choice(JUNK)


def test_hostile_calls_never_raise_and_replay_to_the_same_state() -> None:
    for seed in range(15):
        environments = [start(EVERYTHING, "en") for _ in range(2)]
        seen = [wander(environment, seed, 40) for environment in environments]
        assert seen[0] == seen[1]
        assert json.dumps(environments[0].state()) == json.dumps(environments[1].state())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": ["BaseApi", "Mail"]}, "an unknown class 'Mail'; known are BaseApi"),
        ({"classes": ["__class__"]}, "involves an unknown class '__class__'"),
        ({"config": {"BaseApi": []}}, "initial_config.BaseApi is not an object"),
        ({"config": {"BaseApi": {"wifi": 1}}}, "BaseApi.wifi is neither true nor false"),
        ({"config": {"BaseApi": {"logged_in": "no"}}}, "BaseApi.logged_in is neither"),
        ({"config": {"BaseApi": {"logged_in_users": "Nora"}}}, "not a list of names"),
    ],
)
def test_environments_that_cannot_be_opened(changes: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"classes": ["FoodPlatform"], "config": {}}
    open_environment(mini(), agent_entry(**arguments))
    entry = agent_entry(**{**arguments, **changes})
    with pytest.raises(UserError, match=f"{entry.language} one: .*{message}"):
        check_entry(mini(), entry)


def test_answers_show_what_later_calls_change() -> None:
    environment = start("FoodPlatform")
    users = initial("en", "FoodPlatform", "users")
    (one, _), (two, _) = ((name, users[name]) for name in list(users)[:2])
    for name in (one, two):
        login = {"username": name, "password": users[name]["password"]}
        environment.call("login_food_platform", login)
        if name == one:
            before = environment.call("view_logged_in_users", {})
    assert before.value["logged_in_users"] == [one]
    shown, _ = environment.shown(2)
    assert shown["logged_in_users"] == [one, two]
    assert environment.shown(0) == []
    assert len(environment.shown(10_000)) == 3


def test_few_answers_are_kept() -> None:
    environment = start("FoodPlatform")
    for _ in range(MAX_SHOWN + 5):
        environment.call("view_logged_in_users", {})
    assert len(environment.shown(10_000)) == MAX_SHOWN


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"self": 1}, "got multiple values for argument 'self'"),
        ({"self": 1, "x": 2}, "got multiple values for argument 'self'"),
        ({"x": 2, "self": 1}, "got an unexpected keyword argument 'x'"),
    ],
)
def test_the_receiver_is_bound(arguments: dict[str, Any], problem: str) -> None:
    found = start("FoodPlatform").call("turn_on_wifi", arguments)
    assert (found.error, found.value) == ("bad_arguments", f"BaseApi.turn_on_wifi() {problem}")
