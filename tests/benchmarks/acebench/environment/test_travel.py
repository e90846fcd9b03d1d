"""Travel: the queries, and changing reservations as the official sandbox does."""

from __future__ import annotations

from typing import Any

import pytest

from tests.benchmarks.acebench.environment.mini_environments import LANGUAGES, Sandbox, initial

T = "Travel"
CABINS = {"en": ("Economy Class", "Business Class"), "zh": ("经济舱", "商务舱")}
TIMO: dict[str, Any] = {"user_id": "user2", "password": "plum22"}
RES_1: dict[str, Any] = {"user_id": "user1", "reservation_id": "res_1"}


def travel(language: str = "en", **changes: Any) -> Sandbox:
    return Sandbox(T, language=language, config={}, changes=changes)


@LANGUAGES
def test_flights_by_origin_and_destination(language: str) -> None:
    flights = initial(language, T, "flights")
    a, b, c = flights[0]["origin"], flights[0]["destination"], flights[2]["destination"]
    app, tool = travel(language), "get_flight_details"
    cases: list[tuple[dict[str, Any], list[Any]]] = [
        ({}, flights),
        ({"origin": a}, flights[:2]),
        ({"destination": b}, flights[:2]),
        ({"origin": b, "destination": c}, flights[2:3]),
        ({"origin": "", "destination": a}, flights[3:]),
    ]
    for arguments, found in cases:
        assert app(tool, **arguments) == str(found)
    assert app(tool, origin=a, destination=c) == app.text(tool, 0)


@LANGUAGES
def test_user_details_need_the_password_and_hide_it(language: str) -> None:
    app = travel(language)
    user = initial(language, T, "users")["user2"]
    assert app("authenticate_user", **TIMO) == user
    del user["password"]
    assert app("get_user_details", **TIMO) == user
    for tool in ("get_user_details", "authenticate_user"):
        for wrong in ({**TIMO, "password": "pear11"}, {**TIMO, "user_id": "user9"}):
            assert app(tool, **wrong) == {"status": "error", "message": app.text(tool, 0)}


@LANGUAGES
def test_reservation_details(language: str) -> None:
    app, tool = travel(language), "get_reservation_details"
    flight = initial(language, T, "flights")[0]
    listed = str([{**initial(language, T, "reservations")[0], "flight_info": flight}])
    assert app(tool, user_id="user1") == listed
    assert app(tool, reservation_id="res_1", user_id="user2") == listed
    assert app(tool, user_id="user2") == []
    unasked = {"status": "error", "message": app.text(tool, 0)}
    assert app(tool, reservation_id="", user_id=None) == unasked


@LANGUAGES
def test_transfers_wait_for_the_first_leg(language: str) -> None:
    flights = initial(language, T, "flights")
    a, b, c = flights[0]["origin"], flights[0]["destination"], flights[2]["destination"]
    cities = {"origin_city": a, "transfer_city": b, "destination_city": c}
    pairs = [{"first_leg": first, "second_leg": flights[2]} for first in flights[:2]]
    assert travel(language)("find_transfer_flights", **cities) == str(pairs)
    flights[0]["arrival_time"] = flights[2]["depart_time"]
    flights[1]["status"] = "cancelled"
    late = travel(language, flights=flights)
    assert late("find_transfer_flights", **cities) == late.text("find_transfer_flights", 0)


def booking(language: str, **changes: Any) -> dict[str, Any]:
    """Return a booking of Timo (silver; 150 cash, 900 bank) in economy (260), 2 free bags."""
    call = {**TIMO, "flight_no": "QX202", "cabin": CABINS[language][0]}
    return {**call, "payment_method": "bank", "baggage_count": 2, **changes}


@LANGUAGES
@pytest.mark.parametrize(("bags", "cabin", "cost"), [(2, 0, 260), (4, 0, 360), (5, 1, 800)])
def test_booking(language: str, bags: int, cabin: int, cost: int) -> None:
    app, tool = travel(language), "reserve_flight"
    call = booking(language, cabin=CABINS[language][cabin], baggage_count=bags)
    assert app(tool, **call) == app.text(tool, 1, reservation_id="res_2", total_cost=cost)
    user = app.state["users"]["user2"]
    assert (user["bank_balance"], user["cash_balance"]) == (900 - cost, 150)
    assert app.state["reservations"][1] == {
        "reservation_id": "res_2",
        "user_id": "user2",
        "flight_no": "QX202",
        "payment_method": "bank",
        "cabin": CABINS[language][cabin],
        "baggage": bags,
    }
    assert "'seats_available': 5," in app("get_flight_details")


@LANGUAGES
def test_bookings_that_cannot_be_paid(language: str) -> None:
    app, tool = travel(language), "reserve_flight"
    before = app.state
    for method, cabin, bags, number in (("cash", 0, 0, 2), ("bank", 1, 8, 3), ("card", 0, 0, 5)):
        paid = {"payment_method": method, "baggage_count": bags}
        call = booking(language, cabin=CABINS[language][cabin], **paid)
        assert app(tool, **call) == app.text(tool, number)
    assert app.state == before


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"password": "?"}, "'membership_level'"),
        ({"flight_no": "?"}, "'NoneType' object is not subscriptable"),
        ({"cabin": "First"}, "'First'"),
        ({"baggage_count": "2"}, "unsupported operand type(s) for -: 'str' and 'int'"),
        ({"user_id": []}, "unhashable type: 'list'"),
    ],
)
def test_impossible_bookings_end_in_exceptions(changes: dict[str, Any], error: str) -> None:
    app = travel()
    before = app.state
    assert app.failed("reserve_flight", **booking("en", **changes)) == error
    assert app.state == before


def test_a_booking_takes_the_whole_balance_the_available_flight_and_no_seat() -> None:
    flights, users = initial("en", T, "flights"), initial("en", T, "users")
    flights[1]["seats_available"] = 0
    flights.insert(0, {**flights[1], "status": "cancelled", "economy_price": 1})
    users["user2"]["bank_balance"] = 260.0
    app = travel(flights=flights, users=users)
    assert "res_2" in app("reserve_flight", **booking("en"))
    assert app.state["users"]["user2"]["bank_balance"] == 0
    assert "'seats_available': -1," in app("get_flight_details")


@LANGUAGES
def test_modifying(language: str) -> None:
    economy, business = CABINS[language]
    app, tool = travel(language), "modify_flight"

    def modify(**changes: Any) -> Any:
        return app(tool, **{**RES_1, **changes})

    assert modify(user_id="user2", new_cabin=business) == app.text(tool, 4)
    assert modify(reservation_id="res_9") == app.text(tool, 4)
    assert modify(new_flight_no="QX101", new_cabin=economy) == app.text(tool, 7)
    for flight_no in ("?", "QX404"):
        refused = modify(new_flight_no=flight_no, new_cabin=business, add_baggage=9)
        assert refused == app.text(tool, 0)
    paid = f"{app.text(tool, 9)} {app.text(tool, 1, price_difference=500)}"
    assert modify(new_flight_no="QX202", new_cabin=business) == paid
    assert app.state["users"]["user1"]["bank_balance"] == 2500
    assert app.state["reservations"][0]["flight_no"] == "QX202"
    refunded = app.text(tool, 2, **{"-price_difference": 440})
    assert modify(new_cabin=economy, new_payment_method="cash") == refunded
    assert app.state["users"]["user1"]["cash_balance"] == 1040
    assert app.state["reservations"][0]["payment_method"] == "bank"
    assert modify(add_baggage=1) == app.text(tool, 3, baggage_cost=50)
    # The first bag is paid again.
    assert modify(add_baggage=1) == app.text(tool, 3, baggage_cost=100)
    assert app.state["users"]["user1"]["bank_balance"] == 2350
    assert app.state["reservations"][0]["baggage"] == 3


def test_cabins_of_one_price_change_silently() -> None:
    flights = initial("en", T, "flights")
    flights[0]["business_price"] = flights[0]["economy_price"]
    app = travel(flights=flights)
    silent = app.text("modify_flight", 7)
    assert app("modify_flight", **RES_1, new_cabin="Business Class") == silent
    assert app.state["reservations"][0]["cabin"] == "Business Class"


@LANGUAGES
def test_changes_that_cannot_be_paid_come_for_free(language: str) -> None:
    tool, business = "modify_flight", CABINS[language][1]
    users = initial(language, T, "users")
    users["user1"]["bank_balance"] = 49.0
    app = travel(language, users=users)
    reply = app(tool, **RES_1, new_cabin=business, add_baggage=2)
    assert reply == f"{app.text(tool, 10)} {app.text(tool, 11)}"
    reservation = app.state["reservations"][0]
    assert (reservation["cabin"], reservation["baggage"]) == (business, 3)
    card = app(tool, **RES_1, add_baggage=1, new_payment_method="card")
    assert card == app.text(tool, 3, baggage_cost=100)
    assert app.state["users"] == users


def test_an_exception_keeps_earlier_changes() -> None:
    app = travel()
    changes = {"new_flight_no": "QX202", "new_cabin": ["x"]}
    assert app.failed("modify_flight", **RES_1, **changes) == "unhashable type: 'list'"
    assert app.state["reservations"][0]["flight_no"] == "QX202"


@LANGUAGES
def test_cancelling(language: str) -> None:
    app, tool = travel(language), "cancel_reservation"
    for user_id, number in (("user9", 3), ("user2", 4)):
        assert app(tool, **{**RES_1, "user_id": user_id}, reason="") == app.text(tool, number)
    # A cancelled reservation stays, and is refunded again.
    for times, (reason, number) in enumerate((("?", 1), (app.text(tool, 8), 0)), start=1):
        refunded = app.text(tool, number, refund_amount=300)
        assert app(tool, **RES_1, reason=reason) == refunded
        user = app.state["users"]["user1"]
        assert (user["cash_balance"], user["bank_balance"]) == (600 + 300 * times, 3000)
        assert len(app.state["reservations"]) == 1


@pytest.mark.parametrize(
    ("departure", "number", "values", "cash"),
    [
        ("2024-07-14 05:59:59", 7, {}, 600),
        ("2024-07-14 06:00:00", 2, {"cancel_fee": 30.0, "refund_amount": 270.0}, 870),
        ("2024-07-15 06:00:00", 2, {"cancel_fee": 30.0, "refund_amount": 270.0}, 870),
        ("2024-07-15 06:00:01", 1, {"refund_amount": 300}, 900),
    ],
)
def test_refunds_depend_on_the_clock(
    departure: str, number: int, values: dict[str, Any], cash: float
) -> None:
    flights = initial("en", T, "flights")
    flights[0]["depart_time"] = departure
    app, tool = travel(flights=flights), "cancel_reservation"
    assert app(tool, **RES_1, reason="?") == app.text(tool, number, **values)
    assert app.state["users"]["user1"]["cash_balance"] == cash


def test_a_cancelling_airline_refunds_business_in_full_at_short_notice() -> None:
    flights, reservations = initial("en", T, "flights"), initial("en", T, "reservations")
    flights[0]["depart_time"] = "2024-07-14 07:00:00"
    reservations[0]["cabin"] = "Business Class"
    app, tool = travel(flights=flights, reservations=reservations), "cancel_reservation"
    reply = app(tool, **RES_1, reason="Airline cancellation.")
    assert reply == app.text(tool, 0, refund_amount=800)


def test_a_reservation_of_an_unknown_flight() -> None:
    reservations = initial("en", T, "reservations")
    reservations[0]["flight_no"] = "QX999"
    app = travel(reservations=reservations)
    before = app.state
    assert app("modify_flight", **RES_1) == app.text("modify_flight", 5)
    assert app("cancel_reservation", **RES_1, reason="x") == app.text("cancel_reservation", 5)
    assert "'flight_info': None" in app("get_reservation_details", user_id="user1")
    assert app.state == before


@LANGUAGES
def test_helpers_can_be_called(language: str) -> None:
    economy, business = CABINS[language]
    app = travel(language)
    user = initial(language, T, "users")["user1"]
    allowances = [
        app("get_baggage_allowance", membership_level=level, cabin_class=cabin)
        for level in ("regular", "silver", "gold", "?")
        for cabin in (economy, business, "?")
    ]
    assert allowances == [1, 2, 0, 2, 3, 0, 3, 3, 0, 0, 0, 0]
    for bags, fee in ((5, 150), (0, 0)):
        bags_of = {"membership_level": "silver", "cabin_class": economy, "baggage_count": bags}
        assert app("calculate_baggage_fee", **bags_of) == fee
    for method, amount, covered in (
        ("cash", -601, False),
        ("cash", -600, True),
        ("card", -9, True),
    ):
        charge = {"user": user, "payment_method": method, "amount": amount}
        assert app("update_balance", **charge) == str(covered)
    assert app("process_refund", user=user, amount=5) == "None"
    assert app.failed("process_refund", user={"cash_balance": 1}, amount=5) == "'user_name'"
    flight = initial(language, T, "flights")[0]
    for old, new, difference in ((economy, business, 500), ("?", economy, 300), ("?", "?", 0)):
        cabins = {"flight": flight, "old_cabin": old, "new_cabin": new}
        assert app("calculate_price_difference", **cabins) == difference
    assert app.state["users"]["user1"] == user
