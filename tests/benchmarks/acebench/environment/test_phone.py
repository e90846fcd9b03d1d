"""The phone's switches, MessageApi, ReminderApi and FoodPlatform: every rule."""

from __future__ import annotations

from typing import Any

import pytest

from tests.benchmarks.acebench.environment.mini_environments import Sandbox, initial, start

OFF = {"BaseApi": {"wifi": True, "logged_in": False}}
OFFLINE = {"BaseApi": {"wifi": False, "logged_in": True}}
M, R, F = "MessageApi", "ReminderApi", "FoodPlatform"


def test_only_phone_apps_have_the_switches() -> None:
    for app, error in ((M, ""), (R, ""), (F, ""), ("Travel", "unknown_tool")):
        environment = start(app, config={})
        assert environment.call("turn_on_wifi", {}).error == error
        assert [list(entry) for entry in environment.state()] == [[app]]


def test_messages_are_sent_and_deleted() -> None:
    send, delete = "send_message", "delete_message"
    letter: dict[str, Any] = {"sender_name": "Nora", "receiver_name": "Timo", "message": "{time}"}
    app = Sandbox(M, config=OFF)
    assert app(send, **letter) == app.no(send, 1)
    assert app(delete, message_id=1) == app.no(delete, 1)
    app = Sandbox(M, config=OFFLINE)
    assert app(send, **letter) == app.no(send, 2)
    assert app(delete, message_id=9) == app.no(delete, 2)
    app = Sandbox(M)
    assert app(send, **letter) == app.no(send, 3)
    assert app(delete, message_id=3) == app.yes(delete, 0, message_id=3)
    for stranger in ("sender_name", "receiver_name"):
        assert app(send, **{**letter, stranger: "?"}) == app.no(send, 4)
    assert app(send, **letter) == app.yes(send, 0, receiver_name="Timo")
    inbox = app.state["inbox"]
    assert list(inbox) == ["1", "2", "4"]
    assert inbox["4"] == {"sender_id": "P1", "receiver_id": "P2", "message": "{time}"}
    assert app(send, **letter) == app.no(send, 3)
    # A sent message has no time.
    for tool in ("get_all_message_times_with_ids", "get_latest_message_id"):
        assert app.failed(tool) == "'time'"


def test_messages_are_viewed_one_way_and_searched_both_ways() -> None:
    view, search = "view_messages_between_users", "search_messages"
    text = initial(M, "inbox")["1"]["message"]
    app = Sandbox(M, config=OFF)
    assert app(view, sender_name="?", receiver_name="?") == app.no(view, 0)
    # A search needs no login.
    found = {"id": 1, "sender_id": "P2", "receiver_id": "P1", "message": text}
    for keyword in (text.upper(), "07:15"):
        answer = app(search, user_name="Nora", keyword=keyword)
        assert answer == {"status": True, "messages": [found]}
    both = app(search, user_name="Nora", keyword="")["messages"]
    assert [message["id"] for message in both] == [1, 2]
    assert app(search, user_name="?", keyword="") == app.no(search, 0)
    assert app(search, user_name="Kofi", keyword=text) == app.no(search, 1)
    app("login_device")
    for sender, receiver, number in (("?", "?", 1), ("Nora", "?", 2), ("Nora", "Timo", 3)):
        assert app(view, sender_name=sender, receiver_name=receiver) == app.no(view, number)
    sent = {"id": 1, "sender": "Timo", "receiver": "Nora", "message": text}
    answer = app(view, sender_name="Timo", receiver_name="Nora")
    assert answer == {"status": True, "messages": [sent]}


def test_times_latest_and_earliest() -> None:
    times = "get_all_message_times_with_ids"
    latest, earliest = "get_latest_message_id", "get_earliest_message_id"
    app = Sandbox(M, config=OFF)
    for tool, number in ((times, 0), (latest, 1), (earliest, 1)):
        assert app(tool) == app.no(tool, number)
    app("login_device")
    assert app(times) == {"1": "2024-06-04", "2": "2024-06-10", "3": "2024-05-21"}
    assert app(latest) == {**app.yes(latest, 0, latest_message_id=2), "message_id": 2}
    assert app(earliest) == {**app.yes(earliest, 0, earliest_message_id=3), "message_id": 3}
    for key in (1, 2, 3):
        app("delete_message", message_id=key)
    assert app(times) == {}
    assert app(latest) == app(earliest) == app.no(latest, 2)
    # The latest of equal times is the first.
    inbox = {key: {**m, "time": "2024-06-04"} for key, m in initial(M, "inbox").items()}
    assert Sandbox(M, inbox=inbox)(latest)["message_id"] == 1


def test_reminders_are_viewed_added_listed_and_deleted() -> None:
    view, add, delete = "view_reminder_by_title", "add_reminder", "delete_reminder"
    new = {"title": "{title}", "description": "d", "time": "t"}
    app = Sandbox(R, config=OFF)
    assert app(view, title="") == app.no(view, 1)
    assert app(add, **new) == app.no(add, 1)
    assert app(delete, reminder_id=1) == app.no(delete, 1)
    app = Sandbox(R, config=OFFLINE)
    first = initial(R, "reminder_list")["1"]
    assert app(view, title="{x}") == app.no(view, 0, title="{x}")
    assert app(view, title="Piano") == {"status": True, "reminder": first}
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
    methods = {search: {"texts": ["no hit", "%Y"]}, mark: {"texts": ["marked", "no reminder"]}}
    app = Sandbox(R, language="zh", config=OFF, methods=methods)
    assert app(search, keyword="\x00") == {"status": False, "message": "no hit"}
    assert app.failed(search, keyword="") == "'str' object has no attribute 'strftime'"
    assert app(mark, reminder_id=1) == {"status": True, "message": "marked"}
    assert app(mark, reminder_id=2001) == {"status": False, "message": "no reminder"}
    marked = app.state["reminder_list"]
    assert [record["notified"] for record in marked.values()] == [True, False]


ADD = "add_food_delivery_order"
NORA = {"username": "Nora", "password": "pear11"}
BEET = {"product": "Beet Wrap", "quantity": 1}


def order(app: Sandbox, *items: Any, **changes: Any) -> Any:
    arguments = {"username": "Nora", "merchant_name": "Green Ladle", "items": list(items)}
    return app(ADD, **{**arguments, **changes})


def test_users_log_in_to_the_food_platform() -> None:
    tool, shown = "login_food_platform", "view_logged_in_users"
    app = Sandbox(F, config={})
    assert app(shown) == app.no(shown, 0)
    for name, number in (("?", 2), ("?", 3), ("Nora", 4)):
        assert app(tool, username=name, password="?") == app.no(tool, number)
        app("turn_on_wifi")
    assert app(tool, **NORA) == app.yes(tool, 0, username="Nora")
    assert app(tool, **NORA) == app.no(tool, 1, username="Nora")
    assert app(shown) == {"status": True, "logged_in_users": ["Nora"]}
    config = {"BaseApi": {"wifi": True, "logged_in_users": ["Timo"]}}
    app = Sandbox(F, config=config)
    app(tool, **NORA)
    assert app.state["logged_in_users"] == ["Timo", "Nora"]
    assert config["BaseApi"]["logged_in_users"] == ["Timo"]


def test_an_order_is_paid_stored_and_found() -> None:
    app = Sandbox(F)
    app("login_food_platform", **NORA)
    assert app("view_orders", user_name="Nora") == app.no("view_orders", 0)
    done = app.yes(ADD, 0, merchant_name="Green Ladle", total_price=44.5)
    assert order(app, {**BEET, "quantity": 2}, {"product": "Corn Wrap", "note": "hot"}) == done
    lines = [("Beet Wrap", 2, 14.0), ("Corn Wrap", 1, 16.5)]
    names = ("product", "quantity", "price_per_unit")
    items = [dict(zip(names, line, strict=True)) for line in lines]
    placed: dict[str, Any] = {"user_name": "Nora", "merchant_name": "Green Ladle", "items": items}
    placed["total_price"] = 44.5
    assert app.state["orders"] == [placed]
    assert app.state["users"]["Nora"]["balance"] == 45.5
    found = {"status": True, "orders": [placed]}
    assert app("view_orders", user_name="Nora") == found
    assert app("search_orders", keyword="LADLE") == app("search_orders", keyword="corn") == found
    assert app("search_orders", keyword="?") == app.no("search_orders", 0)
    assert app("check_balance", user_name="Nora") == 45.5
    assert repr(app("check_balance", user_name="?")) == "0.0"
    menu = initial(F, "merchant_list")["Green Ladle"]["menu"]
    assert app("get_products", merchant_name="Green Ladle") == str(menu)
    unknown = app.no("get_products", 0, merchant_name="{x}")
    assert app("get_products", merchant_name="{x}") == unknown


def test_an_order_is_refused_whole() -> None:
    app = Sandbox(F)
    app("login_food_platform", **NORA)
    before = app.state
    assert order(app, BEET, username="Timo") == app.no(ADD, 1, username="Timo")
    assert order(app, BEET, merchant_name="?") == app.no(ADD, 4)
    for quantity in (0, -1, "2", 1.0, None):
        refused = app.no(ADD, 2, quantity=quantity, product_name="Beet Wrap")
        assert order(app, BEET, {**BEET, "quantity": quantity}) == refused
    unknown = app.no(ADD, 3, product_name="?", merchant_name="Green Ladle")
    assert order(app, BEET, {"product": "?"}) == unknown
    assert order(app, {**BEET, "quantity": 7}) == app.no(ADD, 5)
    error = "'str' object has no attribute 'get'"
    odd = {"username": "Nora", "merchant_name": "Green Ladle", "items": ["Beet Wrap"]}
    assert app.failed(ADD, **odd) == error
    assert app.state == before
    assert order(app)["status"] is order(app, {**BEET, "quantity": True})["status"] is True
    assert app.state["users"]["Nora"]["balance"] == 76.0


@pytest.mark.parametrize(("language", "works"), [("en", True), ("zh", False)])
def test_the_last_coin_and_product_names_work_in_english_only(language: str, works: bool) -> None:
    merchant, record = next(iter(initial(F, "merchant_list", language).items()))
    users, beet = initial(F, "users", language), record["menu"][0]["product"]
    user = next(iter(users))
    users[user]["balance"] = 42.0
    app = Sandbox(F, language=language, users=users)
    app("login_food_platform", username=user, password="pear11")
    call: dict[str, Any] = {"username": user, "merchant_name": merchant}
    app(ADD, **call, items=[{"product": beet}])
    if works:
        assert len(app("search_orders", keyword=beet)["orders"]) == 1
    else:
        error = "'dict' object has no attribute 'lower'"
        assert app.failed("search_orders", keyword=beet) == error
    assert app(ADD, **call, items=[{"product": beet, "quantity": 2}])["status"] is works
    assert app.state["users"][user]["balance"] == (0.0 if works else 28.0)
