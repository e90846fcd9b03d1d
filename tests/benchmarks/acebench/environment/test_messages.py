"""The phone's switches, MessageApi and ReminderApi: every rule, both languages."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.benchmarks.acebench.environment.mini_environments import (
    LANGUAGES,
    answer,
    failed,
    initial,
    part,
    refusal,
    start,
    success,
)

OFF = {"BaseApi": {"wifi": True, "logged_in": False}}
OFFLINE = {"BaseApi": {"wifi": False, "logged_in": True}}
M, R = "MessageApi", "ReminderApi"


def people(language: str) -> list[str]:
    return list(initial(language, M, "user_list"))


@LANGUAGES
def test_switches_turn_the_whole_phone_on(language: str) -> None:
    dark = {"BaseApi": {"wifi": False, "logged_in": False}}
    environment = start(("BaseApi", M, R, "FoodPlatform"), language, dark)
    yes = partial(success, language, "BaseApi")
    assert answer(environment, "turn_on_wifi") == yes("turn_on_wifi", 0)
    assert part(environment, "BaseApi") == {"wifi": True, "logged_in": False}
    assert answer(environment, "login_device") == yes("login_device", 0)
    assert part(environment, "BaseApi") == {"wifi": True, "logged_in": True}
    assert answer(environment, "get_latest_message_id")["status"] is True


@pytest.mark.parametrize(
    ("app", "error"), [(M, ""), (R, ""), ("FoodPlatform", ""), ("Travel", "unknown_tool")]
)
def test_only_phone_apps_have_the_switches(app: str, error: str) -> None:
    environment = start(app, "en", {})
    assert environment.call("turn_on_wifi", {}).error == error
    assert [list(entry) for entry in environment.state()] == [[app]]


@LANGUAGES
def test_messages_are_sent_and_deleted(language: str) -> None:
    a, b, *_ = people(language)
    no, yes = partial(refusal, language, M), partial(success, language, M)
    send, delete = "send_message", "delete_message"
    letter: dict[str, Any] = {"sender_name": a, "receiver_name": b, "message": "{time}"}
    off, offline = start(M, language, OFF), start(M, language, OFFLINE)
    assert answer(off, send, **letter) == no(send, 1)
    assert answer(off, delete, message_id=1) == no(delete, 1)
    assert answer(offline, send, **letter) == no(send, 2)
    assert answer(offline, delete, message_id=9) == no(delete, 2)
    environment = start(M, language)
    assert answer(environment, send, **letter) == no(send, 3)
    assert answer(environment, delete, message_id=3) == yes(delete, 0, message_id=3)
    for stranger in ({"sender_name": "?"}, {"receiver_name": "?"}):
        assert answer(environment, send, **{**letter, **stranger}) == no(send, 4)
    assert answer(environment, send, **letter) == yes(send, 0, receiver_name=b)
    inbox = part(environment, M)["inbox"]
    assert list(inbox) == ["1", "2", "4"]
    assert inbox["4"] == {"sender_id": "P1", "receiver_id": "P2", "message": "{time}"}
    assert answer(environment, send, **letter) == no(send, 3)
    # A sent message has no time.
    for tool in ("get_all_message_times_with_ids", "get_latest_message_id"):
        assert failed(environment, tool) == "'time'"


@LANGUAGES
def test_messages_are_viewed_one_way_and_searched_both_ways(language: str) -> None:
    a, b, *_, d = people(language)
    no = partial(refusal, language, M)
    view, search = "view_messages_between_users", "search_messages"
    text = initial(language, M, "inbox")["1"]["message"]
    environment = start(M, language, OFF)
    assert answer(environment, view, sender_name="?", receiver_name="?") == no(view, 0)
    # A search needs no login.
    found = {"id": 1, "sender_id": "P2", "receiver_id": "P1", "message": text}
    for keyword in (text.upper(), "07:15"):
        answered = answer(environment, search, user_name=a, keyword=keyword)
        assert answered == {"status": True, "messages": [found]}
    both = answer(environment, search, user_name=a, keyword="")
    assert [message["id"] for message in both["messages"]] == [1, 2]
    assert answer(environment, search, user_name="?", keyword="") == no(search, 0)
    assert answer(environment, search, user_name=d, keyword=text) == no(search, 1)
    answer(environment, "login_device")
    for sender, receiver, number in (("?", "?", 1), (a, "?", 2), (a, b, 3)):
        answered = answer(environment, view, sender_name=sender, receiver_name=receiver)
        assert answered == no(view, number)
    assert answer(environment, view, sender_name=b, receiver_name=a) == {
        "status": True,
        "messages": [{"id": 1, "sender": b, "receiver": a, "message": text}],
    }


@LANGUAGES
def test_times_latest_and_earliest(language: str) -> None:
    no, yes = partial(refusal, language, M), partial(success, language, M)
    times, latest, earliest = (
        "get_all_message_times_with_ids",
        "get_latest_message_id",
        "get_earliest_message_id",
    )
    environment = start(M, language, OFF)
    for tool, number in ((times, 0), (latest, 1), (earliest, 1)):
        assert answer(environment, tool) == no(tool, number)
    answer(environment, "login_device")
    dates = {"1": "2024-06-04", "2": "2024-06-10", "3": "2024-05-21"}
    assert answer(environment, times) == dates
    assert answer(environment, latest) == yes(latest, 0, latest_message_id=2) | {"message_id": 2}
    found = yes(earliest, 0, earliest_message_id=3) | {"message_id": 3}
    assert answer(environment, earliest) == found
    for key in (1, 2, 3):
        answer(environment, "delete_message", message_id=key)
    assert answer(environment, times) == {}
    for tool in (latest, earliest):
        assert answer(environment, tool) == no(tool, 2)


def test_latest_of_equal_times_is_the_first() -> None:
    inbox = initial("en", M, "inbox")
    for message in inbox.values():
        message["time"] = "2024-06-04"
    environment = start(M, "en", changes={"inbox": inbox})
    for tool in ("get_latest_message_id", "get_earliest_message_id"):
        assert answer(environment, tool)["message_id"] == 1


def test_odd_ids_and_texts_behave_as_in_python() -> None:
    environment = start(M)
    assert answer(environment, "delete_message", message_id="1")["status"] is False
    assert answer(environment, "delete_message", message_id=True)["status"] is True
    assert list(part(environment, M)["inbox"]) == ["2", "3"]
    assert failed(environment, "delete_message", message_id=[1]) == "unhashable type: 'list'"
    answer(environment, "send_message", sender_name="Nora", receiver_name="Timo", message=5)
    error = "'int' object has no attribute 'lower'"
    assert failed(environment, "search_messages", user_name="Nora", keyword="x") == error


@LANGUAGES
def test_reminders_need_a_login(language: str) -> None:
    environment = start(R, language, OFF)
    before = environment.state()
    for tool, arguments in (
        ("view_reminder_by_title", {"title": ""}),
        ("add_reminder", {"title": "", "description": "", "time": ""}),
        ("delete_reminder", {"reminder_id": 1}),
    ):
        assert answer(environment, tool, **arguments) == refusal(language, R, tool, 1)
    assert len(answer(environment, "view_all_reminders")["reminders"]) == 2
    assert environment.state() == before


@LANGUAGES
def test_reminders_are_viewed_added_listed_and_deleted(language: str) -> None:
    no, yes = partial(refusal, language, R), partial(success, language, R)
    view, add, delete = "view_reminder_by_title", "add_reminder", "delete_reminder"
    first = initial(language, R, "reminder_list")["1"]
    environment = start(R, language, OFFLINE)
    assert answer(environment, view, title="{x}") == no(view, 0, title="{x}")
    assert answer(environment, view, title=first["title"]) == {"status": True, "reminder": first}
    new = {"title": "{title}", "description": "d", "time": "t"}
    for key in (3, 4):
        assert answer(environment, add, **new) == yes(add, 0, title="{title}")
        stored = part(environment, R)["reminder_list"][str(key)]
        assert stored == {"reminder_id": key, **new, "notified": False}
    assert answer(environment, add, **new) == no(add, 2)
    listed = answer(environment, "view_all_reminders")
    assert listed["status"] is True
    assert [one | {"reminder_id": 2001} for one in listed["reminders"][:1]] == [first]
    assert listed["reminders"][2:] == [{**new, "notified": False}] * 2
    # The key of the list counts, not the reminder's own id.
    assert answer(environment, delete, reminder_id=2001) == no(delete, 2)
    for key in (1, 2, 3, 4):
        assert answer(environment, delete, reminder_id=key) == yes(delete, 0, reminder_id=key)
    assert part(environment, R)["reminder_list"] == {}
    assert answer(environment, "view_all_reminders") == no("view_all_reminders", 0)


def test_tools_that_only_some_app_specs_have() -> None:
    environment = start(R)
    for tool in ("search_reminders", "mark_as_notified"):
        assert environment.call(tool, {}).error == "unknown_tool"
    methods = {
        "search_reminders": {"texts": ["no hit", "%Y"]},
        "mark_as_notified": {"texts": ["{reminder_id} is marked", "no reminder"]},
    }
    environment = start(R, "zh", OFF, methods=methods)
    missed = {"status": False, "message": "no hit"}
    assert answer(environment, "search_reminders", keyword="\x00") == missed
    error = "'str' object has no attribute 'strftime'"
    assert failed(environment, "search_reminders", keyword="") == error
    for reminder_id, reply in ((1, (True, "1 is marked")), (2001, (False, "no reminder"))):
        found = answer(environment, "mark_as_notified", reminder_id=reminder_id)
        assert tuple(found.values()) == reply
    marked = part(environment, R)["reminder_list"]
    assert [record["notified"] for record in marked.values()] == [True, False]
