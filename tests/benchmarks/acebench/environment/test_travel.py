"""Travel: the queries, and changing reservations as the official sandbox does."""

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
    said,
    start,
)

T = "Travel"
CABINS = {"en": ("Economy Class", "Business Class"), "zh": ("经济舱", "商务舱")}
NORA: dict[str, Any] = {"user_id": "user1", "password": "pear11"}
TIMO: dict[str, Any] = {"user_id": "user2", "password": "plum22"}
RES_1: dict[str, Any] = {"user_id": "user1", "reservation_id": "res_1"}


def error(language: str, method: str, number: int) -> dict[str, Any]:
    return {"status": "error", "message": said(language, T, method, number)}


@LANGUAGES
def test_flights_by_origin_and_destination(language: str) -> None:
    flights = initial(language, T, "flights")
    a, b, c = flights[0]["origin"], flights[0]["destination"], flights[2]["destination"]
    environment = start(T, language, {})
    cases: list[tuple[dict[str, Any], list[Any]]] = [
        ({}, flights),
        ({"origin": a}, flights[:2]),
        ({"destination": b}, flights[:2]),
        ({"origin": b, "destination": c}, flights[2:3]),
        ({"origin": "", "destination": a}, flights[3:]),
    ]
    for arguments, found in cases:
        assert answer(environment, "get_flight_details", **arguments) == str(found)
    none = said(language, T, "get_flight_details", 0)
    assert answer(environment, "get_flight_details", origin=a, destination=c) == none


@LANGUAGES
def test_user_details_need_the_password_and_hide_it(language: str) -> None:
    environment = start(T, language, {})
    user = initial(language, T, "users")["user1"]
    assert answer(environment, "authenticate_user", **NORA) == user
    del user["password"]
    assert answer(environment, "get_user_details", **NORA) == user
    for tool in ("get_user_details", "authenticate_user"):
        for wrong in ({**NORA, "password": "plum22"}, {**NORA, "user_id": "user9"}):
            assert answer(environment, tool, **wrong) == error(language, tool, 0)


@LANGUAGES
def test_reservation_details(language: str) -> None:
    environment = start(T, language, {})
    flight = initial(language, T, "flights")[0]
    listed = str([{**initial(language, T, "reservations")[0], "flight_info": flight}])
    tool = "get_reservation_details"
    assert answer(environment, tool, user_id="user1") == listed
    assert answer(environment, tool, reservation_id="res_1", user_id="user2") == listed
    assert answer(environment, tool, user_id="user2") == []
    assert answer(environment, tool, reservation_id="", user_id=None) == error(language, tool, 0)


@LANGUAGES
def test_transfers_wait_for_the_first_leg(language: str) -> None:
    flights = initial(language, T, "flights")
    a, b, c = flights[0]["origin"], flights[0]["destination"], flights[2]["destination"]
    cities = {"origin_city": a, "transfer_city": b, "destination_city": c}
    environment = start(T, language, {})
    pairs = [{"first_leg": first, "second_leg": flights[2]} for first in flights[:2]]
    assert answer(environment, "find_transfer_flights", **cities) == str(pairs)
    flights[0]["arrival_time"] = flights[2]["depart_time"]
    flights[1]["status"] = "cancelled"
    late = start(T, language, {}, changes={"flights": flights})
    none = said(language, T, "find_transfer_flights", 0)
    assert answer(late, "find_transfer_flights", **cities) == none


def booking(language: str, **changes: Any) -> dict[str, Any]:
    """Return a booking of Timo (silver; 150 cash, 900 bank) in economy (260), 2 free bags."""
    call = {**TIMO, "flight_no": "QX202", "cabin": CABINS[language][0]}
    return {**call, "payment_method": "bank", "baggage_count": 2, **changes}


@LANGUAGES
@pytest.mark.parametrize(("bags", "cabin", "cost"), [(2, 0, 260), (4, 0, 360), (5, 1, 800)])
def test_booking(language: str, bags: int, cabin: int, cost: int) -> None:
    environment = start(T, language, {})
    call = booking(language, cabin=CABINS[language][cabin], baggage_count=bags)
    assert answer(environment, "reserve_flight", **call) == said(
        language, T, "reserve_flight", 1, reservation_id="res_2", total_cost=cost
    )
    state = part(environment, T)
    assert state["users"]["user2"]["bank_balance"] == 900 - cost
    assert state["users"]["user2"]["cash_balance"] == 150
    assert state["reservations"][1] == {
        "reservation_id": "res_2",
        "user_id": "user2",
        "flight_no": "QX202",
        "payment_method": "bank",
        "cabin": CABINS[language][cabin],
        "baggage": bags,
    }
    assert "'seats_available': 5," in answer(environment, "get_flight_details")


@LANGUAGES
def test_bookings_that_cannot_be_paid(language: str) -> None:
    environment = start(T, language, {})
    before = environment.state()
    for method, cabin, bags, number in (("cash", 0, 0, 2), ("bank", 1, 8, 3), ("card", 0, 0, 5)):
        changes = {"payment_method": method, "baggage_count": bags}
        call = booking(language, cabin=CABINS[language][cabin], **changes)
        short = said(language, T, "reserve_flight", number)
        assert answer(environment, "reserve_flight", **call) == short
    assert environment.state() == before


@pytest.mark.parametrize(
    ("changes", "error_text"),
    [
        ({"password": "?"}, "'membership_level'"),
        ({"flight_no": "?"}, "'NoneType' object is not subscriptable"),
        ({"cabin": "First"}, "'First'"),
        ({"baggage_count": "2"}, "unsupported operand type(s) for -: 'str' and 'int'"),
        ({"user_id": []}, "unhashable type: 'list'"),
    ],
)
def test_impossible_bookings_end_in_exceptions(changes: dict[str, Any], error_text: str) -> None:
    environment = start(T, config={})
    before = environment.state()
    assert failed(environment, "reserve_flight", **booking("en", **changes)) == error_text
    assert environment.state() == before


def test_a_booking_takes_the_whole_balance_the_available_flight_and_no_seat() -> None:
    flights, users = initial("en", T, "flights"), initial("en", T, "users")
    flights[1]["seats_available"] = 0
    flights.insert(0, {**flights[1], "status": "cancelled", "economy_price": 1})
    users["user2"]["bank_balance"] = 260.0
    environment = start(T, config={}, changes={"flights": flights, "users": users})
    assert "res_2" in answer(environment, "reserve_flight", **booking("en"))
    assert part(environment, T)["users"]["user2"]["bank_balance"] == 0
    assert "'seats_available': -1," in answer(environment, "get_flight_details")


@LANGUAGES
def test_modifying(language: str) -> None:
    economy, business = CABINS[language]
    environment = start(T, language, config={})
    text = partial(said, language, T, "modify_flight")

    def modify(**changes: Any) -> Any:
        return answer(environment, "modify_flight", **{**RES_1, **changes})

    assert modify(user_id="user2", new_cabin=business) == text(4)
    assert modify(reservation_id="res_9") == text(4)
    assert modify(new_flight_no="QX101", new_cabin=economy) == text(7)
    for flight_no in ("?", "QX404"):
        assert modify(new_flight_no=flight_no, new_cabin=business, add_baggage=9) == text(0)
    paid = text(1, price_difference=500)
    assert modify(new_flight_no="QX202", new_cabin=business) == f"{text(9)} {paid}"
    state = part(environment, T)
    assert state["users"]["user1"]["bank_balance"] == 2500
    assert state["reservations"][0]["flight_no"] == "QX202"
    refunded = text(2, **{"-price_difference": 440})
    assert modify(new_cabin=economy, new_payment_method="cash") == refunded
    state = part(environment, T)
    assert state["users"]["user1"]["cash_balance"] == 1040
    assert state["reservations"][0]["payment_method"] == "bank"
    assert modify(add_baggage=1) == text(3, baggage_cost=50)
    # The first bag is paid again.
    assert modify(add_baggage=1) == text(3, baggage_cost=100)
    state = part(environment, T)
    assert state["users"]["user1"]["bank_balance"] == 2350
    assert state["reservations"][0]["baggage"] == 3


def test_cabins_of_one_price_change_silently() -> None:
    flights = initial("en", T, "flights")
    flights[0]["business_price"] = flights[0]["economy_price"]
    environment = start(T, config={}, changes={"flights": flights})
    reply = answer(environment, "modify_flight", **RES_1, new_cabin="Business Class")
    assert reply == said("en", T, "modify_flight", 7)
    assert part(environment, T)["reservations"][0]["cabin"] == "Business Class"


@LANGUAGES
def test_changes_that_cannot_be_paid_come_for_free(language: str) -> None:
    business = CABINS[language][1]
    users = initial(language, T, "users")
    users["user1"]["bank_balance"] = 49.0
    environment = start(T, language, config={}, changes={"users": users})
    text = partial(said, language, T, "modify_flight")
    reply = answer(environment, "modify_flight", **RES_1, new_cabin=business, add_baggage=2)
    assert reply == f"{text(10)} {text(11)}"
    reservation = part(environment, T)["reservations"][0]
    assert (reservation["cabin"], reservation["baggage"]) == (business, 3)
    card = answer(environment, "modify_flight", **RES_1, add_baggage=1, new_payment_method="card")
    assert card == text(3, baggage_cost=100)
    assert part(environment, T)["users"]["user1"] == users["user1"]


def test_an_exception_keeps_earlier_changes() -> None:
    environment = start(T, config={})
    arguments = {**RES_1, "new_flight_no": "QX202", "new_cabin": ["x"]}
    assert failed(environment, "modify_flight", **arguments) == "unhashable type: 'list'"
    assert part(environment, T)["reservations"][0]["flight_no"] == "QX202"


@LANGUAGES
def test_cancelling(language: str) -> None:
    environment = start(T, language, config={})
    tool = "cancel_reservation"
    for user_id, number in (("user9", 3), ("user2", 4)):
        call = {**RES_1, "user_id": user_id, "reason": ""}
        assert answer(environment, tool, **call) == said(language, T, tool, number)
    airline = said(language, T, tool, 8)
    # A cancelled reservation stays, and is refunded again.
    for times, (reason, number) in enumerate((("other", 1), (airline, 0)), start=1):
        refunded = said(language, T, tool, number, refund_amount=300)
        assert answer(environment, tool, **RES_1, reason=reason) == refunded
        state = part(environment, T)
        assert state["users"]["user1"]["cash_balance"] == 600 + 300 * times
        assert state["users"]["user1"]["bank_balance"] == 3000
        assert len(state["reservations"]) == 1


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
def test_refunds_depend_on_the_clock(
    departure: str, reason: str, number: int, values: dict[str, Any], cash: float
) -> None:
    flights = initial("en", T, "flights")
    flights[0]["depart_time"] = departure
    environment = start(T, config={}, changes={"flights": flights})
    reply = answer(environment, "cancel_reservation", **RES_1, reason=reason)
    assert reply == said("en", T, "cancel_reservation", number, **values)
    assert part(environment, T)["users"]["user1"]["cash_balance"] == cash


def test_business_is_refunded_at_its_price() -> None:
    reservations = initial("en", T, "reservations")
    reservations[0]["cabin"] = "Business Class"
    environment = start(T, "en", {}, changes={"reservations": reservations})
    reply = answer(environment, "cancel_reservation", **RES_1, reason="?")
    assert reply == said("en", T, "cancel_reservation", 1, refund_amount=800)


def test_a_reservation_of_an_unknown_flight() -> None:
    reservations = initial("en", T, "reservations")
    reservations[0]["flight_no"] = "QX999"
    environment = start(T, "en", {}, changes={"reservations": reservations})
    before = environment.state()
    assert answer(environment, "modify_flight", **RES_1) == said("en", T, "modify_flight", 5)
    reply = answer(environment, "cancel_reservation", **RES_1, reason="x")
    assert reply == said("en", T, "cancel_reservation", 5)
    assert "'flight_info': None" in answer(environment, "get_reservation_details", user_id="user1")
    assert environment.state() == before


@LANGUAGES
def test_helpers_can_be_called(language: str) -> None:
    economy, business = CABINS[language]
    environment = start(T, language, config={})
    user = initial(language, T, "users")["user1"]
    allowances = [
        answer(environment, "get_baggage_allowance", membership_level=level, cabin_class=cabin)
        for level in ("regular", "silver", "gold", "?")
        for cabin in (economy, business, "?")
    ]
    assert allowances == [1, 2, 0, 2, 3, 0, 3, 3, 0, 0, 0, 0]
    fee = {"membership_level": "silver", "cabin_class": economy, "baggage_count": 5}
    assert answer(environment, "calculate_baggage_fee", **fee) == 150
    assert answer(environment, "calculate_baggage_fee", **{**fee, "baggage_count": 0}) == 0
    for method, amount, covered in (("cash", -601, False), ("bank", 5, True), ("card", -9, True)):
        call = {"user": user, "payment_method": method, "amount": amount}
        assert answer(environment, "update_balance", **call) == str(covered)
    assert answer(environment, "process_refund", user=user, amount=5) == "None"
    nameless = {"cash_balance": 1}
    assert failed(environment, "process_refund", user=nameless, amount=5) == "'user_name'"
    price = {"flight": initial(language, T, "flights")[0], "old_cabin": economy}
    tool = "calculate_price_difference"
    assert answer(environment, tool, **price, new_cabin=business) == 500
    assert answer(environment, tool, **{**price, "old_cabin": "?", "new_cabin": "?"}) == 0
    assert part(environment, T)["users"]["user1"] == user
