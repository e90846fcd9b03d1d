"""The phone's switches, MessageApi and ReminderApi: every rule, both languages."""

from __future__ import annotations

from typing import Any

import pytest

from tests.benchmarks.acebench.environment.mini_environments import (
    ON,
    answer,
    failed,
    initial,
    part,
    refusal,
    start,
    success,
)

LANGUAGES = pytest.mark.parametrize("language", ["en", "zh"])
OFF = {"BaseApi": {"wifi": True, "logged_in": False}}
OFFLINE = {"BaseApi": {"wifi": False, "logged_in": True}}
M, R = "MessageApi", "ReminderApi"


def people(language: str) -> list[str]:
    return list(initial(language, M, "user_list"))


@LANGUAGES
def test_both_switches_turn_the_whole_phone_on(language: str) -> None:
    apps = ("BaseApi", M, R, "FoodPlatform")
    dark = {"BaseApi": {"wifi": False, "logged_in": False}}
    environment = start(apps, language, dark)
    assert part(environment, "BaseApi") == {"wifi": False, "logged_in": False}
    assert answer(environment, "turn_on_wifi") == success(language, "BaseApi", "turn_on_wifi", 0)
    assert part(environment, "BaseApi") == {"wifi": True, "logged_in": False}
    assert answer(environment, "login_device") == success(language, "BaseApi", "login_device", 0)
    assert part(environment, "BaseApi") == {"wifi": True, "logged_in": True}
    assert answer(environment, "get_latest_message_id")["status"] is True
    assert answer(environment, "login_food_platform", username="?", password="?")["status"] is False


@pytest.mark.parametrize("app", [M, R, "FoodPlatform"])
def test_each_phone_app_has_the_switches(app: str) -> None:
    environment = start(app, "en", {})
    assert answer(environment, "turn_on_wifi")["status"] is True
    assert [list(entry) for entry in environment.state()] == [[app]]
    observation = environment.call("turn_on_wifi", {"now": True})
    assert observation.error == "bad_arguments"
    assert observation.value == "BaseApi.turn_on_wifi() got an unexpected keyword argument 'now'"


@pytest.mark.parametrize("app", ["Travel", "Finance"])
def test_other_apps_have_no_switches(app: str) -> None:
    assert start(app).call("turn_on_wifi", {}).error == "unknown_tool"


@LANGUAGES
def test_sending_needs_login_wifi_room_and_known_people(language: str) -> None:
    a, b, *_ = people(language)
    call: dict[str, Any] = {"sender_name": a, "receiver_name": b, "message": "{time}"}
    for config, number in ((OFF, 1), (OFFLINE, 2), (ON, 3)):
        environment = start(M, language, config)
        assert answer(environment, "send_message", **call) == refusal(
            language, M, "send_message", number
        )
    answer(environment, "delete_message", message_id=1)
    for strangers in ({"sender_name": "?"}, {"receiver_name": "?"}):
        arguments = {**call, **strangers}
        assert answer(environment, "send_message", **arguments) == refusal(
            language, M, "send_message", 4
        )
    assert answer(environment, "send_message", **call) == success(
        language, M, "send_message", 0, receiver_name=b
    )
    assert part(environment, M)["inbox"]["4"] == {
        "sender_id": "P1",
        "receiver_id": "P2",
        "message": "{time}",
    }
    assert answer(environment, "send_message", **call) == refusal(language, M, "send_message", 3)


@LANGUAGES
def test_deleting_needs_login_and_a_message_and_frees_no_id(language: str) -> None:
    a, b, *_ = people(language)
    environment = start(M, language, OFF)
    assert answer(environment, "delete_message", message_id=1) == refusal(
        language, M, "delete_message", 1
    )
    environment = start(M, language, OFFLINE)  # no network needed
    assert answer(environment, "delete_message", message_id=9) == refusal(
        language, M, "delete_message", 2
    )
    assert answer(environment, "delete_message", message_id=3) == success(
        language, M, "delete_message", 0, message_id=3
    )
    assert list(part(environment, M)["inbox"]) == ["1", "2"]
    answer(environment, "turn_on_wifi")
    answer(environment, "send_message", sender_name=a, receiver_name=b, message="")
    assert list(part(environment, M)["inbox"]) == ["1", "2", "4"]


@LANGUAGES
def test_viewing_goes_one_way_and_checks_in_order(language: str) -> None:
    a, b, *_ = people(language)
    method = "view_messages_between_users"
    environment = start(M, language, OFF)
    assert answer(environment, method, sender_name="?", receiver_name="?") == refusal(
        language, M, method, 0
    )
    answer(environment, "login_device")
    for sender, receiver, number in (("?", "?", 1), (a, "?", 2), (a, b, 3)):
        assert answer(environment, method, sender_name=sender, receiver_name=receiver) == refusal(
            language, M, method, number
        )
    text = initial(language, M, "inbox")["1"]["message"]
    assert answer(environment, method, sender_name=b, receiver_name=a) == {
        "status": True,
        "messages": [{"id": 1, "sender": b, "receiver": a, "message": text}],
    }


@LANGUAGES
def test_searching_messages(language: str) -> None:
    a, *_, d = people(language)
    text = initial(language, M, "inbox")["1"]["message"]
    environment = start(M, language)
    assert answer(environment, "search_messages", user_name="?", keyword="") == refusal(
        language, M, "search_messages", 0
    )
    assert answer(environment, "search_messages", user_name=d, keyword=text) == refusal(
        language, M, "search_messages", 1
    )
    found = {"id": 1, "sender_id": "P2", "receiver_id": "P1", "message": text}
    for keyword in (text.upper(), "07:15"):
        assert answer(environment, "search_messages", user_name=a, keyword=keyword) == {
            "status": True,
            "messages": [found],
        }
    both = answer(environment, "search_messages", user_name=a, keyword="")
    assert [message["id"] for message in both["messages"]] == [1, 2]


@LANGUAGES
def test_searching_needs_no_login(language: str) -> None:
    a = people(language)[0]
    environment = start(M, language, OFF)
    assert answer(environment, "search_messages", user_name=a, keyword="07:15")["status"] is True


@LANGUAGES
def test_times_latest_and_earliest(language: str) -> None:
    tools = ("get_all_message_times_with_ids", "get_latest_message_id", "get_earliest_message_id")
    environment = start(M, language, OFF)
    for tool, number in zip(tools, (0, 1, 1), strict=True):
        assert answer(environment, tool) == refusal(language, M, tool, number)
    answer(environment, "login_device")
    assert answer(environment, tools[0]) == {
        "1": "2024-06-04",
        "2": "2024-06-10",
        "3": "2024-05-21",
    }
    assert answer(environment, tools[1]) == {
        **success(language, M, tools[1], 0, latest_message_id=2),
        "message_id": 2,
    }
    assert answer(environment, tools[2]) == {
        **success(language, M, tools[2], 0, earliest_message_id=3),
        "message_id": 3,
    }
    for key in (1, 2, 3):
        answer(environment, "delete_message", message_id=key)
    assert answer(environment, tools[0]) == {}
    for tool in tools[1:]:
        assert answer(environment, tool) == refusal(language, M, tool, 2)


@LANGUAGES
def test_after_sending_times_are_lost(language: str) -> None:
    a, b, *_ = people(language)
    environment = start(M, language)
    answer(environment, "delete_message", message_id=1)
    answer(environment, "send_message", sender_name=a, receiver_name=b, message="x")
    for tool in ("get_all_message_times_with_ids", "get_latest_message_id"):
        assert failed(environment, tool) == "'time'"


def test_of_equal_times_the_latest_is_the_first() -> None:
    inbox = initial("en", M, "inbox")
    for message in inbox.values():
        message["time"] = "2024-06-04"
    environment = start(M, "en", changes={"inbox": inbox})
    for tool in ("get_latest_message_id", "get_earliest_message_id"):
        assert answer(environment, tool)["message_id"] == 1


def test_official_keys_follow_python() -> None:
    environment = start(M)
    assert answer(environment, "delete_message", message_id="1")["status"] is False
    assert answer(environment, "delete_message", message_id=True) == success(
        "en", M, "delete_message", 0, message_id=True
    )
    assert list(part(environment, M)["inbox"]) == ["2", "3"]
    assert failed(environment, "delete_message", message_id=[1]) == "unhashable type: 'list'"
    answer(environment, "send_message", sender_name="Nora", receiver_name="Timo", message=5)
    error = "'int' object has no attribute 'lower'"
    assert failed(environment, "search_messages", user_name="Nora", keyword="x") == error
    assert failed(environment, "search_messages", user_name="Timo", keyword=5) == error


@LANGUAGES
def test_reminders_are_viewed_added_and_listed(language: str) -> None:
    first = initial(language, R, "reminder_list")["1"]
    environment = start(R, language, OFFLINE)
    view, add = "view_reminder_by_title", "add_reminder"
    assert answer(environment, view, title="{x}") == refusal(language, R, view, 0, title="{x}")
    assert answer(environment, view, title=first["title"]) == {"status": True, "reminder": first}
    new = {"title": "{title}", "description": "d", "time": "t"}
    for key in (3, 4):
        assert answer(environment, add, **new) == success(language, R, add, 0, title="{title}")
        assert part(environment, R)["reminder_list"][str(key)] == {
            "reminder_id": key,
            **new,
            "notified": False,
        }
    assert answer(environment, add, **new) == refusal(language, R, add, 2)
    listed = answer(environment, "view_all_reminders")
    assert listed["status"] is True
    shown = {name: value for name, value in first.items() if name != "reminder_id"}
    assert listed["reminders"] == [
        shown,
        *listed["reminders"][1:2],
        *[{**new, "notified": False}] * 2,
    ]


@LANGUAGES
def test_reminders_need_a_login(language: str) -> None:
    environment = start(R, language, OFF)
    before = environment.state()
    for tool, arguments, number in (
        ("view_reminder_by_title", {"title": ""}, 1),
        ("add_reminder", {"title": "", "description": "", "time": ""}, 1),
        ("delete_reminder", {"reminder_id": 1}, 1),
    ):
        assert answer(environment, tool, **arguments) == refusal(language, R, tool, number)
    assert len(answer(environment, "view_all_reminders")["reminders"]) == 2
    assert environment.state() == before


@LANGUAGES
def test_reminders_are_deleted_by_their_key(language: str) -> None:
    environment = start(R, language)
    tool = "delete_reminder"
    assert answer(environment, tool, reminder_id=2001) == refusal(language, R, tool, 2)
    for reminder_id in (1, 2):
        assert answer(environment, tool, reminder_id=reminder_id) == success(
            language, R, tool, 0, reminder_id=reminder_id
        )
    assert part(environment, R)["reminder_list"] == {}
    assert answer(environment, "view_all_reminders") == refusal(
        language, R, "view_all_reminders", 0
    )
    answer(environment, "add_reminder", title="", description="", time="")
    assert answer(environment, tool, reminder_id=3)["status"] is True


def test_official_tools_are_those_of_the_app_specs() -> None:
    environment = start(R)
    for tool in ("search_reminders", "mark_as_notified"):
        assert environment.call(tool, {}).error == "unknown_tool"
    methods = {
        "search_reminders": {"texts": ["no hit", "%Y"]},
        "mark_as_notified": {"texts": ["{reminder_id} is marked", "no reminder"]},
    }
    environment = start(R, "zh", OFF, methods=methods)
    assert answer(environment, "search_reminders", keyword="\x00") == {
        "status": False,
        "message": "no hit",
    }
    error = "'str' object has no attribute 'strftime'"
    assert failed(environment, "search_reminders", keyword="") == error
    for reminder_id, reply in ((1, (True, "1 is marked")), (2001, (False, "no reminder"))):
        assert (
            tuple(answer(environment, "mark_as_notified", reminder_id=reminder_id).values())
            == reply
        )
    marked = part(environment, R)["reminder_list"]
    assert [record["notified"] for record in marked.values()] == [True, False]
