"""Changing reservations as the official sandbox does, and the helpers that it lets a model call.

Its quirks: a wrong password is noticed only when the membership is read; seats are never checked;
a new cabin or bags stay when the balance does not cover them; bags paid before are paid again; a
cancelled reservation stays, so that it can be refunded again, always in cash; the clock stands a
day before the one in the prompt, and the short-notice fee, out of reach, is 10 %.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from ace_ray.benchmarks.acebench.environment.app import Signature, as_official, declare
from ace_ray.benchmarks.acebench.environment.travel import (
    ALLOWANCE,
    BAG_FEE,
    CANCEL_TYPES,
    MODIFY_TYPES,
    QUERIES,
    RESERVE_TYPES,
    Record,
    Travel,
    authenticated,
    failure,
    when,
)

NOW = datetime(2024, 7, 14, 6)
FEE = 0.1


def authenticate_user(app: Travel, user_id: Any, password: Any) -> Record:
    user = authenticated(app, user_id, password)
    return failure(app.texts.of("authenticate_user", "wrong")) if user is None else user


def get_baggage_allowance(app: Travel, membership_level: Any, cabin_class: Any) -> int:
    return _allowances(app).get(membership_level, {}).get(cabin_class, 0)


def calculate_baggage_fee(
    app: Travel, membership_level: Any, cabin_class: Any, baggage_count: Any
) -> Any:
    free = _allowances(app)[membership_level][cabin_class]
    return max(baggage_count - free, 0) * BAG_FEE


def update_balance(app: Travel, user: Any, payment_method: Any, amount: Any) -> bool:
    """Whether the account covers ``amount`` (negative: a charge); then it is booked."""
    for method in ("cash", "bank"):
        if payment_method == method:
            account = f"{method}_balance"
            if user[account] + amount < 0:
                return False
            user[account] += amount
    return True


def process_refund(app: Travel, user: Any, amount: Any) -> None:
    user["cash_balance"] += amount
    user["user_name"]  # the official one prints it, which raises for a user without a name


def calculate_price_difference(app: Travel, flight: Any, old_cabin: Any, new_cabin: Any) -> Any:
    prices = {app.economy: flight["economy_price"], app.business: flight["business_price"]}
    old = prices.get(old_cabin, 0)
    return prices.get(new_cabin, 0) - old


def reserve_flight(
    app: Travel,
    user_id: Any,
    password: Any,
    flight_no: Any,
    cabin: Any,
    payment_method: Any,
    baggage_count: Any,
) -> str:
    user: Any = authenticate_user(app, user_id, password)
    flight: Any = next(
        (f for f in app.flights if f["flight_no"] == flight_no and f["status"] == "available"),
        None,
    )
    price = flight["economy_price"] if cabin == app.economy else flight["business_price"]
    cost = price + calculate_baggage_fee(app, user["membership_level"], cabin, baggage_count)
    if payment_method not in ("cash", "bank"):
        return app.texts.of("reserve_flight", "bad_method")
    account = f"{payment_method}_balance"
    if cost > user[account]:
        return app.texts.of("reserve_flight", f"{payment_method}_short")
    user[account] -= cost
    flight["seats_available"] -= 1
    reservation_id = f"res_{len(app.reservations) + 1}"
    app.reservations.append(
        {
            "reservation_id": reservation_id,
            "user_id": user_id,
            "flight_no": flight_no,
            "payment_method": payment_method,
            "cabin": cabin,
            "baggage": baggage_count,
        }
    )
    values = {"reservation_id": reservation_id, "total_cost": cost}
    return app.texts.of("reserve_flight", "booked", values)


def modify_flight(
    app: Travel,
    user_id: Any,
    reservation_id: Any,
    new_flight_no: Any = None,
    new_cabin: Any = None,
    add_baggage: Any = 0,
    new_payment_method: Any = None,
) -> str:
    method = "modify_flight"
    reservation = app.reservation(user_id, reservation_id)
    if reservation is None:
        return app.texts.of(method, "unknown_reservation")
    current = app.flight(reservation["flight_no"])
    if current is None:
        return app.texts.of(method, "unknown_flight")
    payment_method = new_payment_method or reservation["payment_method"]
    user = app.users[user_id]
    sentences = []
    if new_flight_no and new_flight_no != reservation["flight_no"]:
        flight = app.flight(new_flight_no)
        if flight is None or _route(flight) != _route(current):
            return app.texts.of(method, "bad_flight")
        reservation["flight_no"] = new_flight_no
        sentences.append(app.texts.of(method, "flight_changed"))
    if new_cabin and new_cabin != reservation["cabin"]:
        price = calculate_price_difference(app, current, reservation["cabin"], new_cabin)
        reservation["cabin"] = new_cabin
        if price > 0:
            paid = update_balance(app, user, payment_method, -price)
            name = "cabin_paid" if paid else "cabin_short"
            sentences.append(app.texts.of(method, name, {"price_difference": price}))
        elif price < 0:
            update_balance(app, user, payment_method, -price)
            sentences.append(app.texts.of(method, "cabin_refunded", {"-price_difference": -price}))
    if add_baggage > 0:
        free = get_baggage_allowance(app, user["membership_level"], reservation["cabin"])
        total = reservation["baggage"] + add_baggage
        cost = max(0, total - free) * BAG_FEE
        if cost > 0:
            paid = update_balance(app, user, payment_method, -cost)
            name = "bags_paid" if paid else "bags_short"
            sentences.append(app.texts.of(method, name, {"baggage_cost": cost}))
        reservation["baggage"] = total
    return " ".join(sentences) or app.texts.of(method, "free")


def cancel_reservation(app: Travel, user_id: Any, reservation_id: Any, reason: Any) -> str:
    method = "cancel_reservation"
    user = app.users.get(user_id)
    if user is None:
        return app.texts.of(method, "unknown_user")
    reservation = app.reservation(user_id, reservation_id)
    if reservation is None:
        return app.texts.of(method, "unknown_reservation")
    flight = app.flight(reservation["flight_no"])
    if flight is None:
        return app.texts.of(method, "unknown_flight")
    departure = when(flight["depart_time"])
    if departure < NOW:
        return app.texts.of(method, "departed")
    price = app.price(flight, reservation["cabin"])
    name, fee = "early", 0
    if reason == app.texts.of(method, "airline_reason"):
        name = "airline"
    elif departure - NOW <= timedelta(days=1):
        name, fee = "late", price * FEE
    refund = price - fee
    process_refund(app, user, refund)
    return app.texts.of(method, name, {"refund_amount": refund, "cancel_fee": fee})


def _allowances(app: Travel) -> dict[Any, dict[Any, int]]:
    return {
        level: {app.economy: economy, app.business: business}
        for level, (economy, business) in ALLOWANCE.items()
    }


def _route(flight: Record) -> tuple[Any, Any]:
    return flight["origin"], flight["destination"]


_HELPERS: dict[str, Signature] = {
    "authenticate_user": (authenticate_user, {"user_id": str, "password": str}),
    "get_baggage_allowance": (
        get_baggage_allowance,
        {"membership_level": str, "cabin_class": str},
    ),
    "calculate_baggage_fee": (
        calculate_baggage_fee,
        {"membership_level": str, "cabin_class": str, "baggage_count": int},
    ),
    "update_balance": (update_balance, {"user": dict, "payment_method": str, "amount": float}),
    "process_refund": (process_refund, {"user": dict, "amount": float}),
    "calculate_price_difference": (
        calculate_price_difference,
        {"flight": dict, "old_cabin": str, "new_cabin": str},
    ),
}
TOOLS = as_official(
    QUERIES
    | declare(
        "Travel",
        {
            **_HELPERS,
            "reserve_flight": (reserve_flight, RESERVE_TYPES),
            "modify_flight": (modify_flight, MODIFY_TYPES),
            "cancel_reservation": (cancel_reservation, CANCEL_TYPES),
        },
    )
)
