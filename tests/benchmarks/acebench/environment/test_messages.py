"""The phone's switches, MessageApi and ReminderApi: every rule, both languages."""

from __future__ import annotations

from typing import Any

import pytest

from tests.benchmarks.acebench.environment.mini_environments import LANGUAGES, Sandbox, initial

OFF = {"BaseApi": {"wifi": True, "logged_in": False}}
OFFLINE = {"BaseApi": {"wifi": False, "logged_in": True}}
M, R = "MessageApi", "ReminderApi"


def people(language: str) -> list[str]:
    return list(initial(language, M, "user_list"))


@LANGUAGES
def test_switches_turn_the_whole_phone_on(language: str) -> None:
    dark = {"BaseApi": {"wifi": False, "logged_in": False}}
    phone = Sandbox("BaseApi", M, language=language, config=dark)
    assert phone("turn_on_wifi") == phone.yes("turn_on_wifi", 0)
    assert phone.state == {"wifi": True, "logged_in": False}
    assert phone("login_device") == phone.yes("login_device", 0)
    assert phone.state == {"wifi": True, "logged_in": True}
    assert phone("get_latest_message_id")["status"] is True


@pytest.mark.parametrize(
    ("app", "error"), [(M, ""), (R, ""), ("FoodPlatform", ""), ("Travel", "unknown_tool")]
)
def test_only_phone_apps_have_the_switches(app: str, error: str) -> None:
    environment = Sandbox(app, config={}).environment
    assert environment.call("turn_on_wifi", {}).error == error
    assert [list(entry) for entry in environment.state()] == [[app]]


@LANGUAGES
def test_messages_are_sent_and_deleted(language: str) -> None:
    a, b, *_ = people(language)
    send, delete = "send_message", "delete_message"
    letter: dict[str, Any] = {"sender_name": a, "receiver_name": b, "message": "{time}"}
    app = Sandbox(M, language=language, config=OFF)
    assert app(send, **letter) == app.no(send, 1)
    assert app(delete, message_id=1) == app.no(delete, 1)
    app = Sandbox(M, language=language, config=OFFLINE)
    assert app(send, **letter) == app.no(send, 2)
    assert app(delete, message_id=9) == app.no(delete, 2)
    app = Sandbox(M, language=language)
    assert app(send, **letter) == app.no(send, 3)
    assert app(delete, message_id=3) == app.yes(delete, 0, message_id=3)
    for stranger in ("sender_name", "receiver_name"):
        assert app(send, **{**letter, stranger: "?"}) == app.no(send, 4)
    assert app(send, **letter) == app.yes(send, 0, receiver_name=b)
    inbox = app.state["inbox"]
    assert list(inbox) == ["1", "2", "4"]
    assert inbox["4"] == {"sender_id": "P1", "receiver_id": "P2", "message": "{time}"}
    assert app(send, **letter) == app.no(send, 3)
    # A sent message has no time.
    for tool in ("get_all_message_times_with_ids", "get_latest_message_id"):
        assert app.failed(tool) == "'time'"


@LANGUAGES
def test_messages_are_viewed_one_way_and_searched_both_ways(language: str) -> None:
    a, b, *_, d = people(language)
    view, search = "view_messages_between_users", "search_messages"
    text = initial(language, M, "inbox")["1"]["message"]
    app = Sandbox(M, language=language, config=OFF)
    assert app(view, sender_name="?", receiver_name="?") == app.no(view, 0)
    # A search needs no login.
    found = {"id": 1, "sender_id": "P2", "receiver_id": "P1", "message": text}
    for keyword in (text.upper(), "07:15"):
        assert app(search, user_name=a, keyword=keyword) == {"status": True, "messages": [found]}
    both = app(search, user_name=a, keyword="")["messages"]
    assert [message["id"] for message in both] == [1, 2]
    assert app(search, user_name="?", keyword="") == app.no(search, 0)
    assert app(search, user_name=d, keyword=text) == app.no(search, 1)
    app("login_device")
    for sender, receiver, number in (("?", "?", 1), (a, "?", 2), (a, b, 3)):
        assert app(view, sender_name=sender, receiver_name=receiver) == app.no(view, number)
    sent = {"id": 1, "sender": b, "receiver": a, "message": text}
    assert app(view, sender_name=b, receiver_name=a) == {"status": True, "messages": [sent]}


@LANGUAGES
def test_times_latest_and_earliest(language: str) -> None:
    latest, earliest = "get_latest_message_id", "get_earliest_message_id"
    times = "get_all_message_times_with_ids"
    app = Sandbox(M, language=language, config=OFF)
    for tool, number in ((times, 0), (latest, 1), (earliest, 1)):
        assert app(tool) == app.no(tool, number)
    app("login_device")
    assert app(times) == {"1": "2024-06-04", "2": "2024-06-10", "3": "2024-05-21"}
    assert app(latest) == {**app.yes(latest, 0, latest_message_id=2), "message_id": 2}
    assert app(earliest) == {**app.yes(earliest, 0, earliest_message_id=3), "message_id": 3}
    for key in (1, 2, 3):
        app("delete_message", message_id=key)
    assert app(times) == {}
    for tool in (latest, earliest):
        assert app(tool) == app.no(tool, 2)


def test_latest_of_equal_times_is_the_first() -> None:
    inbox = initial("en", M, "inbox")
    for message in inbox.values():
        message["time"] = "2024-06-04"
    app = Sandbox(M, changes={"inbox": inbox})
    for tool in ("get_latest_message_id", "get_earliest_message_id"):
        assert app(tool)["message_id"] == 1


def test_odd_ids_and_texts_behave_as_in_python() -> None:
    app = Sandbox(M)
    assert app("delete_message", message_id="1")["status"] is False
    assert app("delete_message", message_id=True)["status"] is True
    assert list(app.state["inbox"]) == ["2", "3"]
    assert app.failed("delete_message", message_id=[1]) == "unhashable type: 'list'"
    app("send_message", sender_name="Nora", receiver_name="Timo", message=5)
    error = "'int' object has no attribute 'lower'"
    assert app.failed("search_messages", user_name="Nora", keyword="x") == error


@LANGUAGES
def test_reminders_need_a_login(language: str) -> None:
    app = Sandbox(R, language=language, config=OFF)
    before = app.state
    new = {"title": "", "description": "", "time": ""}
    assert app("view_reminder_by_title", title="") == app.no("view_reminder_by_title", 1)
    assert app("add_reminder", **new) == app.no("add_reminder", 1)
    assert app("delete_reminder", reminder_id=1) == app.no("delete_reminder", 1)
    assert len(app("view_all_reminders")["reminders"]) == 2
    assert app.state == before


@LANGUAGES
def test_reminders_are_viewed_added_listed_and_deleted(language: str) -> None:
    view, add, delete = "view_reminder_by_title", "add_reminder", "delete_reminder"
    first = initial(language, R, "reminder_list")["1"]
    app = Sandbox(R, language=language, config=OFFLINE)
    assert app(view, title="{x}") == app.no(view, 0, title="{x}")
    assert app(view, title=first["title"]) == {"status": True, "reminder": first}
    new = {"title": "{title}", "description": "d", "time": "t"}
    for key in (3, 4):
        assert app(add, **new) == app.yes(add, 0, title="{title}")
        stored = {"reminder_id": key, **new, "notified": False}
        assert app.state["reminder_list"][str(key)] == stored
    assert app(add, **new) == app.no(add, 2)
    listed = app("view_all_reminders")
    assert listed["status"] is True
    assert {**listed["reminders"][0], "reminder_id": 2001} == first
    assert listed["reminders"][2:] == [{**new, "notified": False}] * 2
    # The key of the list counts, not the reminder's own id.
    assert app(delete, reminder_id=2001) == app.no(delete, 2)
    for key in (1, 2, 3, 4):
        assert app(delete, reminder_id=key) == app.yes(delete, 0, reminder_id=key)
    assert app.state["reminder_list"] == {}
    assert app("view_all_reminders") == app.no("view_all_reminders", 0)


def test_tools_that_only_some_app_specs_have() -> None:
    search, mark = "search_reminders", "mark_as_notified"
    for tool in (search, mark):
        assert Sandbox(R).environment.call(tool, {}).error == "unknown_tool"
    methods = {
        search: {"texts": ["no hit", "%Y"]},
        mark: {"texts": ["{reminder_id} is marked", "no reminder"]},
    }
    app = Sandbox(R, language="zh", config=OFF, methods=methods)
    assert app(search, keyword="\x00") == {"status": False, "message": "no hit"}
    assert app.failed(search, keyword="") == "'str' object has no attribute 'strftime'"
    assert app(mark, reminder_id=1) == {"status": True, "message": "1 is marked"}
    assert app(mark, reminder_id=2001) == {"status": False, "message": "no reminder"}
    marked = app.state["reminder_list"]
    assert [record["notified"] for record in marked.values()] == [True, False]
