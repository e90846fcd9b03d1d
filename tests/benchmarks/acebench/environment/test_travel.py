"""Travel: the queries, and changing reservations as the official sandbox does."""

from __future__ import annotations

from typing import Any

import pytest

from tests.benchmarks.acebench.environment.mini_environments import Sandbox, initial

T = "Travel"
ECONOMY, BUSINESS = "Economy Class", "Business Class"
RES_1: dict[str, Any] = {"user_id": "user1", "reservation_id": "res_1"}
TIMO: dict[str, Any] = {"user_id": "user2", "password": "plum22"}
BOOKING = {**TIMO, "flight_no": "QX202", "cabin": ECONOMY, "payment_method": "bank"}
BOOKING |= {"baggage_count": 2}
"""Timo (silver; 150 cash, 900 bank) in economy (260), with 2 free bags."""


def travel(**state: Any) -> Sandbox:
    return Sandbox(T, config={}, **state)


def test_flights_are_found_by_origin_and_destination() -> None:
    flights = initial(T, "flights")
    app, tool = travel(), "get_flight_details"
    cases: list[tuple[dict[str, Any], list[Any]]] = [
        ({}, flights),
        ({"origin": "Alder"}, flights[:2]),
        ({"destination": "Birchport"}, flights[:2]),
        ({"origin": "Birchport", "destination": "Cedar Bay"}, flights[2:3]),
        ({"origin": "", "destination": "Alder"}, flights[3:]),
    ]
    for arguments, found in cases:
        assert app(tool, **arguments) == str(found)
    assert app(tool, origin="Alder", destination="Cedar Bay") == app.text(tool, 0)


def test_user_details_need_the_password_and_hide_it() -> None:
    app = travel()
    user = initial(T, "users")["user2"]
    assert app("authenticate_user", **TIMO) == user
    del user["password"]
    assert app("get_user_details", **TIMO) == user
    for tool in ("get_user_details", "authenticate_user"):
        for wrong in ({**TIMO, "password": "pear11"}, {**TIMO, "user_id": "user9"}):
            assert app(tool, **wrong) == {"status": "error", "message": app.text(tool, 0)}


def test_reservation_details() -> None:
    app, tool = travel(), "get_reservation_details"
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
    ("bags", "cabin", "cost"), [(2, ECONOMY, 260), (4, ECONOMY, 360), (5, BUSINESS, 800)]
)
def test_booking(bags: int, cabin: str, cost: int) -> None:
    app, tool = travel(), "reserve_flight"
    booked = app.text(tool, 1, reservation_id="res_2", total_cost=cost)
    assert app(tool, **{**BOOKING, "cabin": cabin, "baggage_count": bags}) == booked
    user = app.state["users"]["user2"]
    assert (user["bank_balance"], user["cash_balance"]) == (900 - cost, 150)
    stored: dict[str, Any] = {"reservation_id": "res_2", "user_id": "user2", "flight_no": "QX202"}
    stored |= {"payment_method": "bank", "cabin": cabin, "baggage": bags}
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
        ({"flight_no": "?"}, "'NoneType' object is not subscriptable"),
        ({"cabin": "First"}, "'First'"),
        ({"baggage_count": "2"}, "unsupported operand type(s) for -: 'str' and 'int'"),
        ({"user_id": []}, "unhashable type: 'list'"),
    ]
    for changes, error in errors:
        assert app.failed(tool, **{**BOOKING, **changes}) == error
    assert app.state == before


def test_a_booking_takes_the_whole_balance_the_available_flight_and_no_seat() -> None:
    flights, users = initial(T, "flights"), initial(T, "users")
    flights[1]["seats_available"] = 0
    flights.insert(0, {**flights[1], "status": "cancelled", "economy_price": 1})
    users["user2"]["bank_balance"] = 260.0
    app = travel(flights=flights, users=users)
    assert "res_2" in app("reserve_flight", **BOOKING)
    assert app.state["users"]["user2"]["bank_balance"] == 0
    assert "'seats_available': -1," in app("get_flight_details")


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
    card = app(tool, **RES_1, add_baggage=1, new_payment_method="card")
    assert card == app.text(tool, 3, baggage_cost=100)
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
        ("2024-07-15 06:00:00", "?", 2, {"cancel_fee": 30.0, "refund_amount": 270.0}, 870),
        ("2024-07-15 06:00:00", "Airline cancellation.", 0, {"refund_amount": 300}, 900),
        ("2024-07-15 06:00:01", "?", 1, {"refund_amount": 300}, 900),
    ],
)
def test_refunds_depend_on_the_clock_and_are_in_cash(
    departure: str, reason: str, number: int, values: dict[str, Any], cash: float
) -> None:
    flights = initial(T, "flights")
    flights[0]["depart_time"] = departure
    app, tool = travel(flights=flights), "cancel_reservation"
    assert app(tool, **RES_1, reason=reason) == app.text(tool, number, **values)
    user = app.state["users"]["user1"]
    assert (user["cash_balance"], user["bank_balance"]) == (cash, 3000)


def test_a_cancelled_reservation_stays_and_is_refunded_again() -> None:
    reservations = initial(T, "reservations")
    reservations[0]["cabin"] = BUSINESS
    app, tool = travel(reservations=reservations), "cancel_reservation"
    for user_id, number in (("user9", 3), ("user2", 4)):
        assert app(tool, **{**RES_1, "user_id": user_id}, reason="") == app.text(tool, number)
    for cash in (1400, 2200):
        assert app(tool, **RES_1, reason="?") == app.text(tool, 1, refund_amount=800)
        assert app.state["users"]["user1"]["cash_balance"] == cash
    reservations[0]["flight_no"] = "QX999"
    app = travel(reservations=reservations)
    assert app("modify_flight", **RES_1) == app.text("modify_flight", 5)
    assert app(tool, **RES_1, reason="x") == app.text(tool, 5)
    assert "'flight_info': None" in app("get_reservation_details", user_id="user1")


def test_helpers_can_be_called_and_keep_no_change() -> None:
    app = travel()
    user = initial(T, "users")["user1"]
    allowances = [
        app("get_baggage_allowance", membership_level=level, cabin_class=cabin)
        for level in ("regular", "silver", "gold", "?")
        for cabin in (ECONOMY, BUSINESS, "?")
    ]
    assert allowances == [1, 2, 0, 2, 3, 0, 3, 3, 0, 0, 0, 0]
    for method, amount, covered in (
        ("cash", -601, "False"),
        ("cash", -600, "True"),
        ("?", -9, "True"),
    ):
        charge = {"user": user, "payment_method": method, "amount": amount}
        assert app("update_balance", **charge) == covered
    assert app("process_refund", user=user, amount=5) == "None"
    assert app.failed("process_refund", user={"cash_balance": 1}, amount=5) == "'user_name'"
    cabins = {"flight": initial(T, "flights")[0], "old_cabin": "?", "new_cabin": ECONOMY}
    assert app("calculate_price_difference", **cabins) == 300
    assert app.state["users"]["user1"] == user
