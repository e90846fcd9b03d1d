"""The apps of the sandbox, rule by rule, as the official ones; Finance as its README says."""

import math
from typing import Any

import pytest

from tests.benchmarks.acebench.environment.mini_environments import Sandbox, initial, mini

OFF = {"BaseApi": {"wifi": True, "logged_in": False}}
OFFLINE = {"BaseApi": {"wifi": False, "logged_in": True}}
M, R, F = "MessageApi", "ReminderApi", "FoodPlatform"


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
    assert app(send, **{**letter, "receiver_name": "?"}) == app.no(send, 4)
    assert app(send, **letter) == app.yes(send, 0, receiver_name="Timo")
    inbox = app.state["inbox"]
    assert list(inbox) == ["1", "2", "4"]
    assert inbox["4"] == {"sender_id": "P1", "receiver_id": "P2", "message": "{time}"}
    # A sent message has no time.
    assert app.failed("get_latest_message_id") == "'time'"


def test_messages_are_viewed_one_way_and_searched_both_ways() -> None:
    view, search = "view_messages_between_users", "search_messages"
    text = initial(M, "inbox")["1"]["message"]
    app = Sandbox(M, config=OFF)
    assert app(view, sender_name="?", receiver_name="?") == app.no(view, 0)
    # A search needs no login.
    message = {"id": 1, "sender_id": "P2", "receiver_id": "P1", "message": text}
    answer = app(search, user_name="Nora", keyword=text.upper())
    assert answer == {"status": True, "messages": [message]}
    assert app(search, user_name="?", keyword="") == app.no(search, 0)
    assert app(search, user_name="Kofi", keyword=text) == app.no(search, 1)
    app("login_device")
    assert app(view, sender_name="?", receiver_name="?") == app.no(view, 1)
    assert app(view, sender_name="Nora", receiver_name="?") == app.no(view, 2)
    assert app(view, sender_name="Nora", receiver_name="Timo") == app.no(view, 3)
    sent = {"id": 1, "sender": "Timo", "receiver": "Nora", "message": text}
    answer = app(view, sender_name="Timo", receiver_name="Nora")
    assert answer == {"status": True, "messages": [sent]}


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
    assert {**listed["reminders"][0], "reminder_id": 2001} == first
    assert listed["reminders"][2:] == [{**new, "notified": False}] * 2
    # The key of the list counts, not the reminder's own id.
    assert app(delete, reminder_id=2001) == app.no(delete, 2)
    for key in (1, 2, 3, 4):
        assert app(delete, reminder_id=key) == app.yes(delete, 0, reminder_id=key)
    assert app("view_all_reminders") == app.no("view_all_reminders", 0)


ADD = "add_food_delivery_order"
NORA = {"username": "Nora", "password": "pear11"}
BEET = {"product": "Beet Wrap", "quantity": 1}


def order(app: Sandbox, *items: Any, **changes: Any) -> Any:
    arguments = {"username": "Nora", "merchant_name": "Green Ladle", "items": list(items)}
    return app(ADD, **{**arguments, **changes})


def test_users_log_in_to_the_food_platform() -> None:
    tool, view_tool = "login_food_platform", "view_logged_in_users"
    app = Sandbox(F, config={})
    assert app(view_tool) == app.no(view_tool, 0)
    for name, number in (("?", 2), ("?", 3), ("Nora", 4)):
        assert app(tool, username=name, password="?") == app.no(tool, number)
        app("turn_on_wifi")
    assert app(tool, **NORA) == app.yes(tool, 0, username="Nora")
    assert app(tool, **NORA) == app.no(tool, 1, username="Nora")
    assert app(view_tool) == {"status": True, "logged_in_users": ["Nora"]}


def test_an_order_is_paid_stored_and_found() -> None:
    app = Sandbox(F)
    app("login_food_platform", **NORA)
    assert app("view_orders", user_name="Nora") == app.no("view_orders", 0)
    response = app.yes(ADD, 0, merchant_name="Green Ladle", total_price=44.5)
    assert order(app, {**BEET, "quantity": 2}, {"product": "Corn Wrap", "note": "hot"}) == response
    lines = [("Beet Wrap", 2, 14.0), ("Corn Wrap", 1, 16.5)]
    names = ("product", "quantity", "price_per_unit")
    items = [dict(zip(names, line, strict=True)) for line in lines]
    placed: dict[str, Any] = {"user_name": "Nora", "merchant_name": "Green Ladle", "items": items}
    placed["total_price"] = 44.5
    assert app.state["orders"] == [placed]
    assert app.state["users"]["Nora"]["balance"] == 45.5
    orders = {"status": True, "orders": [placed]}
    assert app("view_orders", user_name="Nora") == orders
    assert app("search_orders", keyword="LADLE") == app("search_orders", keyword="corn") == orders
    assert app("search_orders", keyword="?") == app.no("search_orders", 0)
    assert app("check_balance", user_name="Nora") == 45.5
    menu = initial(F, "merchant_list")["Green Ladle"]["menu"]
    assert app("get_products", merchant_name="Green Ladle") == str(menu)
    unknown = app.no("get_products", 0, merchant_name="?")
    assert app("get_products", merchant_name="?") == unknown


def test_an_order_is_refused_whole() -> None:
    app = Sandbox(F)
    app("login_food_platform", **NORA)
    before = app.state
    assert order(app, BEET, username="Timo") == app.no(ADD, 1, username="Timo")
    assert order(app, BEET, merchant_name="?") == app.no(ADD, 4)
    for quantity in (0, 1.0):
        refused = app.no(ADD, 2, quantity=quantity, product_name="Beet Wrap")
        assert order(app, BEET, {**BEET, "quantity": quantity}) == refused
    unknown = app.no(ADD, 3, product_name="?", merchant_name="Green Ladle")
    assert order(app, BEET, {"product": "?"}) == unknown
    assert order(app, {**BEET, "quantity": 7}) == app.no(ADD, 5)
    odd = {"username": "Nora", "merchant_name": "Green Ladle", "items": ["Beet Wrap"]}
    assert app.failed(ADD, **odd) == "'str' object has no attribute 'get'"
    assert app.state == before


MONEY_TOOLS = ("deposit_money", "withdraw_money", "transfer_money", "apply_loan", "repay_loan")
OWNER = {"user_name": "Nora", "password": "pear11"}
DEBTOR = {"user_name": "Timo", "password": "plum22"}


def opened(user: dict[str, str]) -> Sandbox:
    """Open the bank: balances of 400, 80, 150, loans of 0, 300, 0. Timo's limit is 800."""
    bank = Sandbox("Finance", config={})
    bank("login_account", **user)
    return bank


def accounts(bank: Sandbox) -> list[tuple[float, float]]:
    """Return (balance, loan) of each user."""
    users = bank.state["user_accounts"].values()
    return [(user["balance"], user["loan"]) for user in users]


def test_logging_in_to_the_bank() -> None:
    bank = Sandbox("Finance", config={})
    login = "login_account"
    for wrong in ({**OWNER, "password": "plum22"}, {**OWNER, "user_name": "?"}):
        assert bank(login, **wrong) == bank.no(login, 1)
        assert bank.state["is_logged_in"] is False
    assert bank(login, **OWNER) == bank.yes(login, 0, user_name="Nora")
    assert bank.state["is_logged_in"] is True
    assert bank(login, **{**DEBTOR, "password": "?"}) == bank.no(login, 1)
    bank(login, **DEBTOR)
    assert bank("get_account_balance")["balance"] == 80.0


def test_a_login_and_an_amount_of_money_are_needed() -> None:
    bank = Sandbox("Finance", config={})
    before = dict(mini()["multi_turn"]["en"]["Finance"]["state"])
    del before["current_user"]
    for tool in ("get_account_balance", "view_transactions", "get_statement"):
        assert bank(tool) == bank.no(tool, 0)
    for tool in MONEY_TOOLS:
        receiver = {"receiver_name": "?"} if tool == "transfer_money" else {}
        assert bank(tool, **receiver, amount=-1) == bank.no(tool, 1)
    assert bank.state == before
    bank("login_account", **OWNER)
    for tool in MONEY_TOOLS:
        receiver = {"receiver_name": "Timo"} if tool == "transfer_money" else {}
        number = 3 if receiver else 2
        for amount in (0, True, "5", math.inf):
            assert bank(tool, **receiver, amount=amount) == bank.no(tool, number, amount=amount)
    assert bank.state == {**before, "is_logged_in": True}


def test_money_is_transferred() -> None:
    bank, tool = opened(OWNER), "transfer_money"
    before = bank.state
    for receiver in ("?", "Nora"):
        refused = bank.no(tool, 2, receiver_name=receiver)
        assert bank(tool, receiver_name=receiver, amount=-1) == refused
    assert bank(tool, receiver_name="Timo", amount=401) == bank.no(tool, 4, amount=401)
    assert bank.state == before
    response = bank.yes(tool, 0, amount=400, receiver_name="Timo", balance=0.0)
    assert bank(tool, receiver_name="Timo", amount=400) == response
    assert accounts(bank) == [(0.0, 0.0), (480.0, 300.0), (150.0, 0.0)]


T = "Travel"
ECONOMY, BUSINESS = "Economy Class", "Business Class"
RES_1: dict[str, Any] = {"user_id": "user1", "reservation_id": "res_1"}
BUYER: dict[str, Any] = {"user_id": "user2", "password": "plum22"}
BOOKING = {**BUYER, "flight_no": "QX202", "cabin": ECONOMY, "payment_method": "bank"}
BOOKING |= {"baggage_count": 2}
"""Timo (silver; 150 cash, 900 bank) in economy (260), with 2 free bags."""


def travel(**state: Any) -> Sandbox:
    return Sandbox(T, config={}, **state)


def test_flights_are_found_by_origin_and_destination() -> None:
    flights = initial(T, "flights")
    app, tool = travel(), "get_flight_details"
    cases: list[tuple[dict[str, Any], list[Any]]] = [
        ({"origin": "Alder"}, flights[:2]),
        ({"origin": "", "destination": "Alder"}, flights[3:]),
    ]
    for arguments, expected in cases:
        assert app(tool, **arguments) == str(expected)
    assert app(tool, origin="Alder", destination="Cedar Bay") == app.text(tool, 0)


def test_user_and_reservation_details() -> None:
    app = travel()
    user = initial(T, "users")["user2"]
    assert app("authenticate_user", **BUYER) == user
    del user["password"]
    assert app("get_user_details", **BUYER) == user
    for tool in ("get_user_details", "authenticate_user"):
        wrong = {**BUYER, "password": "pear11"}
        assert app(tool, **wrong) == {"status": "error", "message": app.text(tool, 0)}
    tool = "get_reservation_details"
    listed = str([{**initial(T, "reservations")[0], "flight_info": initial(T, "flights")[0]}])
    assert app(tool, user_id="user1") == listed
    assert app(tool, reservation_id="res_1", user_id="user2") == listed
    assert app(tool, user_id="user2") == []
    unasked = {"status": "error", "message": app.text(tool, 0)}
    assert app(tool, reservation_id="", user_id=None) == unasked


def test_transfers_wait_for_the_first_leg() -> None:
    flights, tool = initial(T, "flights"), "find_transfer_flights"
    cities = {"origin_city": "Alder", "transfer_city": "Birchport", "destination_city": "Cedar Bay"}
    pairs = [{"first_leg": first, "second_leg": flights[2]} for first in flights[:2]]
    assert travel()(tool, **cities) == str(pairs)
    flights[0]["arrival_time"] = flights[2]["depart_time"]
    flights[1]["status"] = "cancelled"
    late = travel(flights=flights)
    assert late(tool, **cities) == late.text(tool, 0)


@pytest.mark.parametrize(
    ("bags", "cabin", "cost"),
    [(2, ECONOMY, 260), (4, ECONOMY, 360), (5, BUSINESS, 800)],
    ids=["free bags", "paid bags", "business"],
)
def test_a_booking_is_paid_and_stored(bags: int, cabin: str, cost: int) -> None:
    app, tool = travel(), "reserve_flight"
    booked = app.text(tool, 1, reservation_id="res_2", total_cost=cost)
    assert app(tool, **{**BOOKING, "cabin": cabin, "baggage_count": bags}) == booked
    user = app.state["users"]["user2"]
    assert (user["bank_balance"], user["cash_balance"]) == (900 - cost, 150)
    stored: dict[str, Any] = {"reservation_id": "res_2", "user_id": "user2"}
    stored |= {"flight_no": "QX202", "payment_method": "bank", "cabin": cabin, "baggage": bags}
    assert app.state["reservations"][1] == stored
    assert "'seats_available': 5," in app("get_flight_details")


def test_impossible_bookings_change_nothing() -> None:
    app, tool = travel(), "reserve_flight"
    before = app.state
    assert app(tool, **{**BOOKING, "payment_method": "cash"}) == app.text(tool, 2)
    assert app(tool, **{**BOOKING, "cabin": BUSINESS, "baggage_count": 8}) == app.text(tool, 3)
    assert app(tool, **{**BOOKING, "payment_method": "card"}) == app.text(tool, 5)
    errors: list[tuple[dict[str, Any], str]] = [
        ({"password": "?"}, "'membership_level'"),
        ({"cabin": "First"}, "'First'"),
    ]
    for changes, error in errors:
        assert app.failed(tool, **{**BOOKING, **changes}) == error
    assert app.state == before


def test_flights_cabins_and_bags_are_changed() -> None:
    app, tool = travel(), "modify_flight"

    def modify(**changes: Any) -> Any:
        return app(tool, **{**RES_1, **changes})

    assert modify(user_id="user2", new_cabin=BUSINESS) == app.text(tool, 4)
    assert modify(reservation_id="res_9") == app.text(tool, 4)
    assert modify(new_flight_no="QX101", new_cabin=ECONOMY) == app.text(tool, 7)
    for flight_no in ("?", "QX404"):
        refused = modify(new_flight_no=flight_no, new_cabin=BUSINESS, add_baggage=9)
        assert refused == app.text(tool, 0)
    paid = f"{app.text(tool, 9)} {app.text(tool, 1, price_difference=500)}"
    assert modify(new_flight_no="QX202", new_cabin=BUSINESS) == paid
    assert app.state["users"]["user1"]["bank_balance"] == 2500
    assert app.state["reservations"][0]["flight_no"] == "QX202"
    refunded = app.text(tool, 2, **{"-price_difference": 440})
    assert modify(new_cabin=ECONOMY, new_payment_method="cash") == refunded
    assert app.state["users"]["user1"]["cash_balance"] == 1040
    assert app.state["reservations"][0]["payment_method"] == "bank"
    assert modify(add_baggage=1) == app.text(tool, 3, baggage_cost=50)
    # The first bag is paid again.
    assert modify(add_baggage=1) == app.text(tool, 3, baggage_cost=100)
    assert app.state["users"]["user1"]["bank_balance"] == 2350
    assert app.state["reservations"][0]["baggage"] == 3


def test_changes_that_cannot_be_paid_come_for_free() -> None:
    tool = "modify_flight"
    users, flights = initial(T, "users"), initial(T, "flights")
    users["user1"]["bank_balance"] = 49.0
    app = travel(users=users)
    reply = app(tool, **RES_1, new_cabin=BUSINESS, add_baggage=2)
    assert reply == f"{app.text(tool, 10)} {app.text(tool, 11)}"
    reservation = app.state["reservations"][0]
    assert (reservation["cabin"], reservation["baggage"]) == (BUSINESS, 3)
    assert app.state["users"] == users
    # Cabins of one price change silently, and an exception keeps earlier changes.
    flights[0]["business_price"] = flights[0]["economy_price"]
    app = travel(flights=flights)
    assert app(tool, **RES_1, new_cabin=BUSINESS) == app.text(tool, 7)
    changes = {"new_flight_no": "QX202", "new_cabin": ["x"]}
    assert app.failed(tool, **RES_1, **changes) == "unhashable type: 'list'"
    reservation = app.state["reservations"][0]
    assert (reservation["cabin"], reservation["flight_no"]) == (BUSINESS, "QX202")


@pytest.mark.parametrize(
    ("departure", "reason", "number", "values", "cash"),
    [
        ("2024-07-14 05:59:59", "?", 7, {}, 600),
        ("2024-07-14 06:00:00", "?", 2, {"cancel_fee": 30.0, "refund_amount": 270.0}, 870),
        ("2024-07-15 06:00:00", "Airline cancellation.", 0, {"refund_amount": 300}, 900),
        ("2024-07-15 06:00:01", "?", 1, {"refund_amount": 300}, 900),
    ],
    ids=["departed", "within a day", "airline", "more than a day"],
)
def test_refunds_depend_on_the_clock_and_are_in_cash(departure, reason, number, values, cash):
    flights = initial(T, "flights")
    flights[0]["depart_time"] = departure
    app, tool = travel(flights=flights), "cancel_reservation"
    assert app(tool, **RES_1, reason=reason) == app.text(tool, number, **values)
    user = app.state["users"]["user1"]
    assert (user["cash_balance"], user["bank_balance"]) == (cash, 3000)
