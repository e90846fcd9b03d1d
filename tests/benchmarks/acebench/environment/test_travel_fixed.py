"""Travel under the fixed behaviour: the rules of the agent prompt."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from ace_ray.benchmarks.acebench.environment.environment import Environment
from tests.benchmarks.acebench.environment.mini_environments import (
    answer,
    initial,
    part,
    said,
    start,
)

LANGUAGES = pytest.mark.parametrize("language", ["en", "zh"])
T = "Travel"
CABINS = {"en": ("Economy Class", "Business Class"), "zh": ("经济舱", "商务舱")}
RES_1: dict[str, Any] = {"user_id": "user1", "reservation_id": "res_1"}


def opened(language: str = "en", departure: str = "", seats: int = 4, **user: Any) -> Environment:
    """An environment in which Nora's booked flight (QX101, 300/800) leaves at ``departure``."""
    flights, users = initial(language, T, "flights"), initial(language, T, "users")
    flights[0]["seats_available"] = seats
    if departure:
        flights[0]["depart_time"] = departure
    users["user1"].update(user)
    return start(T, language, "fixed", {}, changes={"flights": flights, "users": users})


def seats(environment: Environment) -> dict[str, int]:
    """Seats left by flight number, read off the answer as a model would."""
    flights = ast.literal_eval(answer(environment, "get_flight_details"))
    return {flight["flight_no"]: flight["seats_available"] for flight in flights}


def booking(language: str = "en", **changes: Any) -> dict[str, Any]:
    call: dict[str, Any] = {"user_id": "user1", "password": "pear11", "flight_no": "QX101"}
    call |= {"cabin": CABINS[language][0], "payment_method": "bank", "baggage_count": 0}
    return {**call, **changes}


@LANGUAGES
def test_bookings_are_checked_before_anything_changes(language: str) -> None:
    environment = opened(language)
    before, seats_before = environment.state(), seats(environment)
    for changes, reply in (
        ({"password": "?"}, said(language, T, "reserve_flight", 4)),
        ({"user_id": "user9"}, said(language, T, "reserve_flight", 4)),
        ({"flight_no": "?"}, said(language, T, "modify_flight", 5)),
        ({"payment_method": "card"}, said(language, T, "reserve_flight", 5)),
        ({"payment_method": "cash", "baggage_count": 8}, said(language, T, "reserve_flight", 2)),
    ):
        assert answer(environment, "reserve_flight", **booking(language, **changes)) == reply
    own = [
        answer(environment, "reserve_flight", **booking(language, **changes))
        for changes in ({"cabin": "First"}, {"baggage_count": -1})
    ]
    full = opened(language, seats=0)
    own.append(answer(full, "reserve_flight", **booking(language)))
    assert len(set(own)) == 3
    assert all(isinstance(text, str) and text.isascii() == (language == "en") for text in own)
    assert environment.state() == before == full.state()
    assert seats(environment) == seats_before


def test_the_last_seat() -> None:
    environment = opened(seats=1)
    assert "res_2" in answer(environment, "reserve_flight", **booking())
    assert "seat" in answer(environment, "reserve_flight", **booking())
    assert seats(environment)["QX101"] == 0
    answer(environment, "cancel_reservation", **RES_1, reason="other")
    assert "res_3" in answer(environment, "reserve_flight", **booking())


def test_a_second_flight_of_the_same_number_has_the_seat() -> None:
    flights = initial("en", T, "flights")
    flights[0]["seats_available"] = 0
    flights.append({**flights[0], "seats_available": 1, "economy_price": 111})
    environment = start(T, "en", "fixed", {}, changes={"flights": flights})
    assert "111" in answer(environment, "reserve_flight", **booking())


@LANGUAGES
def test_bags_are_paid_once(language: str) -> None:
    environment = opened(language)
    costs = []
    for _ in range(3):
        before = part(environment, T)["users"]["user1"]["bank_balance"]
        reply = answer(environment, "modify_flight", **RES_1, add_baggage=1)
        assert reply == said(language, T, "modify_flight", 3, baggage_cost=50)
        costs.append(before - part(environment, T)["users"]["user1"]["bank_balance"])
    assert costs == [50, 50, 50]
    assert part(environment, T)["reservations"][0]["baggage"] == 4


@LANGUAGES
def test_free_bags_are_free(language: str) -> None:
    environment = opened(language, membership_level="gold")
    for added in (1, 1):
        reply = answer(environment, "modify_flight", **RES_1, add_baggage=added)
        assert reply == said(language, T, "modify_flight", 7)
    assert part(environment, T)["users"]["user1"]["bank_balance"] == 3000
    assert "50" in answer(environment, "modify_flight", **RES_1, add_baggage=1)


@LANGUAGES
@pytest.mark.parametrize(
    ("changes", "money", "number"),
    [
        ({"cabin": 1}, 499.0, 10),
        ({"flight": "QX202", "cabin": 1}, 499.0, 10),
        ({"cabin": 1, "bags": 2}, 549.0, 11),
        ({"flight": "QX202", "bags": 1}, 49.0, 11),
        ({"flight": "QX404", "cabin": 1}, 3000.0, 0),
        ({"flight": "?", "bags": 1}, 3000.0, 0),
    ],
)
def test_a_change_is_made_whole_or_not_at_all(
    language: str, changes: dict[str, Any], money: float, number: int
) -> None:
    environment = opened(language, bank_balance=money)
    before, seats_before = environment.state(), seats(environment)
    arguments: dict[str, Any] = {"add_baggage": changes.get("bags", 0)}
    if "flight" in changes:
        arguments["new_flight_no"] = changes["flight"]
    if "cabin" in changes:
        arguments["new_cabin"] = CABINS[language][changes["cabin"]]
    reply = answer(environment, "modify_flight", **RES_1, **arguments)
    assert reply == said(language, T, "modify_flight", number)
    assert environment.state() == before
    assert seats(environment) == seats_before


@LANGUAGES
def test_a_change_that_is_just_covered(language: str) -> None:
    business = CABINS[language][1]
    environment = opened(language, bank_balance=550.0)
    reply = answer(
        environment,
        "modify_flight",
        **RES_1,
        new_flight_no="QX202",
        new_cabin=business,
        add_baggage=2,
        new_payment_method=None,
    )
    assert reply == " ".join(
        [
            said(language, T, "modify_flight", 9),
            said(language, T, "modify_flight", 1, price_difference=500),
            said(language, T, "modify_flight", 3, baggage_cost=50),
        ]
    )
    state = part(environment, T)
    assert state["users"]["user1"]["bank_balance"] == 0
    assert (
        state["reservations"][0] | {"flight_no": "QX202", "cabin": business, "baggage": 3}
        == (state["reservations"][0])
    )
    assert (seats(environment)["QX101"], seats(environment)["QX202"]) == (5, 5)


@LANGUAGES
def test_a_cheaper_cabin_is_refunded(language: str) -> None:
    economy, business = CABINS[language]
    environment = opened(language)
    answer(environment, "modify_flight", **RES_1, new_cabin=business)
    reply = answer(
        environment, "modify_flight", **RES_1, new_cabin=economy, new_payment_method="cash"
    )
    assert reply == said(language, T, "modify_flight", 2, **{"-price_difference": 500})
    user = part(environment, T)["users"]["user1"]
    assert (user["cash_balance"], user["bank_balance"]) == (1100, 2500)


def test_cabins_of_one_price_change_silently() -> None:
    flights = initial("en", T, "flights")
    flights[0]["business_price"] = flights[0]["economy_price"]
    environment = start(T, "en", "fixed", {}, changes={"flights": flights})
    reply = answer(environment, "modify_flight", **RES_1, new_cabin="Business Class")
    assert reply == said("en", T, "modify_flight", 7)
    assert part(environment, T)["reservations"][0]["cabin"] == "Business Class"


@pytest.mark.parametrize("change", [{"status": "cancelled"}, {"seats_available": 0}])
def test_a_flight_that_cannot_be_had(change: dict[str, Any]) -> None:
    flights = initial("en", T, "flights")
    flights[1] |= change
    environment = start(T, "en", "fixed", {}, changes={"flights": flights})
    before = environment.state()
    answer(environment, "modify_flight", **RES_1, new_flight_no="QX202")
    answer(environment, "reserve_flight", **booking(flight_no="QX202"))
    assert environment.state() == before


@LANGUAGES
def test_wrong_changes_are_refused(language: str) -> None:
    environment = opened(language)
    before = environment.state()
    replies = [
        answer(environment, "modify_flight", **RES_1, **changes)
        for changes in ({"new_cabin": "First"}, {"add_baggage": -1}, {"new_payment_method": "card"})
    ]
    assert len(set(replies)) == 3
    assert replies[2] == said(language, T, "reserve_flight", 5)
    assert answer(environment, "modify_flight", user_id="user2", reservation_id="res_1") == said(
        language, T, "modify_flight", 4
    )
    assert answer(environment, "modify_flight", **RES_1) == said(language, T, "modify_flight", 7)
    assert environment.state() == before


@pytest.mark.parametrize("steps", [1, 2])
def test_prices_stay_those_of_the_booked_flight(steps: int) -> None:
    """The new flight's cabins are 440 apart, the booked one's 500."""
    environment = opened()
    changes: dict[str, Any] = {"new_flight_no": "QX202", "new_cabin": "Business Class"}
    parts = [changes] if steps == 1 else [{key: value} for key, value in changes.items()]
    for one in parts:
        answer(environment, "modify_flight", **RES_1, **one)
    assert part(environment, T)["users"]["user1"]["bank_balance"] == 2500
    assert "800" in answer(environment, "cancel_reservation", **RES_1, reason="other")
    assert part(environment, T)["users"]["user1"]["bank_balance"] == 3300


@pytest.mark.parametrize(
    ("departure", "cabin", "reason", "number", "refund"),
    [
        ("2024-07-15 07:59:59", 0, "other", 7, None),
        ("2024-07-15 08:00:00", 0, "other", 2, 240.0),
        ("2024-07-16 08:00:00", 0, "other", 2, 240.0),
        ("2024-07-16 08:00:01", 0, "other", 1, 300),
        ("2024-07-16 08:00:00", 1, "other", None, 800),
        ("2024-07-15 08:00:00", 0, "airline", 0, 300),
    ],
)
@LANGUAGES
def test_cancelling(
    language: str, departure: str, cabin: int, reason: str, number: int | None, refund: Any
) -> None:
    reservations = initial(language, T, "reservations")
    reservations[0] |= {"cabin": CABINS[language][cabin], "payment_method": "cash"}
    flights = initial(language, T, "flights")
    flights[0]["depart_time"] = departure
    changes = {"flights": flights, "reservations": reservations}
    environment = start(T, language, "fixed", {}, changes=changes)
    tool = "cancel_reservation"
    why = said(language, T, tool, 8) if reason == "airline" else reason
    reply = answer(environment, tool, **RES_1, reason=why)
    if number is None:
        assert str(refund) in reply
    else:
        values = {"refund_amount": refund, "cancel_fee": 60.0}
        assert reply == said(language, T, tool, number, **values)
    state = part(environment, T)
    assert state["users"]["user1"]["cash_balance"] == 600
    assert state["users"]["user1"]["bank_balance"] == 3000 + (refund or 0)
    assert len(state["reservations"]) == (1 if refund is None else 0)
    assert seats(environment)["QX101"] == (4 if refund is None else 5)
    if refund is not None:
        again = answer(environment, tool, **RES_1, reason=why)
        assert again == said(language, T, tool, 4)
        assert part(environment, T) == state


@pytest.mark.parametrize(
    ("language", "reason"),
    [
        ("en", "airline canceled"),
        ("en", "Airline cancellation"),
        ("en", " AIRLINE CANCELED. "),
        ("zh", "航司停飞"),
        ("zh", "航空公司取消航班"),
    ],
)
def test_the_airlines_reason_as_the_function_list_words_it(language: str, reason: str) -> None:
    environment = opened(language, "2024-07-15 09:00:00")
    reply = answer(environment, "cancel_reservation", **RES_1, reason=reason)
    assert reply == said(language, T, "cancel_reservation", 0, refund_amount=300)


@LANGUAGES
def test_a_booking_of_today_is_cancelled_free(language: str) -> None:
    environment = opened(language, "2024-07-15 09:00:00")
    before = environment.state()
    assert "res_2" in answer(environment, "reserve_flight", **booking(language))
    reservation = {"user_id": "user1", "reservation_id": "res_2"}
    assert "300" in answer(environment, "cancel_reservation", **reservation, reason="other")
    assert environment.state() == before
    assert "res_3" in answer(environment, "reserve_flight", **booking(language))


def test_the_helpers_are_not_offered() -> None:
    environment = opened()
    for tool in (
        "authenticate_user",
        "get_baggage_allowance",
        "calculate_baggage_fee",
        "update_balance",
        "process_refund",
        "calculate_price_difference",
    ):
        assert environment.call(tool, {}).error == "unknown_tool"


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("reserve_flight", booking(baggage_count="1")),
        ("reserve_flight", booking(baggage_count=True)),
        ("reserve_flight", booking(user_id=["user1"])),
        ("modify_flight", {**RES_1, "add_baggage": 1.5}),
        ("modify_flight", {**RES_1, "new_cabin": ["x"]}),
        ("cancel_reservation", {**RES_1, "reason": None}),
    ],
)
def test_types_are_checked(tool: str, arguments: dict[str, Any]) -> None:
    environment = opened()
    before = environment.state()
    assert environment.call(tool, arguments).error == "bad_arguments"
    assert environment.state() == before
