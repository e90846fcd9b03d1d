"""Travel: flights, users with two accounts, reservations, and helpers that a model can call.

Upstream's faults are reproduced. A reservation with a wrong password fails only when the membership
is read. Free seats are not checked. A new cabin or new bags are kept even if the balance does not
cover them. Adding bags charges again for bags that were paid before. A cancelled reservation is
kept and can be refunded again, always in cash. The sandbox's date is one day before the date in the
prompt. The short-notice fee, which applies to no official row, is 10 %.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ace_ray.benchmarks.acebench.environment.app import Reply, Texts, declare, require, success

NOW = datetime(2024, 7, 14, 6)
FEE = 0.1
# Free bags by membership: (economy, business). The agent prompt has the same numbers.
ALLOWANCE = {"regular": (1, 2), "silver": (2, 3), "gold": (3, 3)}
BAG_FEE = 50
_FLIGHT_FIELDS = (
    "flight_no",
    "origin",
    "destination",
    "depart_time",
    "arrival_time",
    "status",
    "seats_available",
    "economy_price",
    "business_price",
)

Record = dict[str, Any]


@dataclass
class Travel:
    users: dict[str, Record]
    flights: list[Record]
    reservations: list[Record]
    texts: Texts

    @property
    def economy(self) -> str:
        return self.texts.fill_text("calculate_price_difference", "economy")

    @property
    def business(self) -> str:
        return self.texts.fill_text("calculate_price_difference", "business")

    def flight(self, flight_no: Any) -> Record | None:
        return next((f for f in self.flights if f["flight_no"] == flight_no), None)

    def reservation(self, user_id: Any, reservation_id: Any) -> Record | None:
        for record in self.reservations:
            if record["reservation_id"] == reservation_id and record["user_id"] == user_id:
                return record
        return None

    def price(self, flight: Record, cabin: Any) -> Any:
        """Return the price in yuan. Upstream prices every cabin except economy as business."""
        return flight["economy_price" if cabin == self.economy else "business_price"]


def get_flight_details(app: Travel, origin: Any = None, destination: Any = None) -> Any:
    flights = [
        {name: flight[name] for name in _FLIGHT_FIELDS}
        for flight in app.flights
        if (not origin or flight["origin"] == origin)
        and (not destination or flight["destination"] == destination)
    ]
    return flights or app.texts.fill_text("get_flight_details", "none")


def get_user_details(app: Travel, user_id: Any, password: Any) -> Record:
    user = authenticate(app, user_id, password)
    if user is None:
        return failure(app.texts.fill_text("get_user_details", "wrong"))
    return {name: value for name, value in user.items() if name != "password"}


def get_reservation_details(app: Travel, reservation_id: Any = None, user_id: Any = None) -> Any:
    if reservation_id:
        name, value = "reservation_id", reservation_id
    elif user_id:
        name, value = "user_id", user_id
    else:
        return failure(app.texts.fill_text("get_reservation_details", "unasked"))
    return [
        {**record, "flight_info": app.flight(record["flight_no"])}
        for record in app.reservations
        if record[name] == value
    ]


def find_transfer_flights(
    app: Travel, origin_city: Any, transfer_city: Any, destination_city: Any
) -> Any:
    pairs = [
        {"first_leg": first, "second_leg": second}
        for first in _legs(app, origin_city, transfer_city)
        for second in _legs(app, transfer_city, destination_city)
        if parse_time(first["arrival_time"]) < parse_time(second["depart_time"])
    ]
    return pairs or app.texts.fill_text("find_transfer_flights", "none")


def _legs(app: Travel, origin: Any, destination: Any) -> list[Record]:
    return [
        flight
        for flight in app.flights
        if flight["origin"] == origin
        and flight["destination"] == destination
        and flight["status"] == "available"
    ]


def authenticate(app: Travel, user_id: Any, password: Any) -> Record | None:
    user = app.users.get(user_id)
    return user if user and user["password"] == password else None


def parse_time(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%d %H:%M:%S")


def failure(message: str) -> Record:
    return {"status": "error", "message": message}


def authenticate_user(app: Travel, user_id: Any, password: Any) -> Record:
    user = authenticate(app, user_id, password)
    return failure(app.texts.fill_text("authenticate_user", "wrong")) if user is None else user


def get_baggage_allowance(app: Travel, membership_level: Any, cabin_class: Any) -> int:
    return _allowances(app).get(membership_level, {}).get(cabin_class, 0)


def calculate_baggage_fee(
    app: Travel, membership_level: Any, cabin_class: Any, baggage_count: Any
) -> Any:
    free = _allowances(app)[membership_level][cabin_class]
    return max(baggage_count - free, 0) * BAG_FEE


def update_balance(app: Travel, user: Any, payment_method: Any, amount: Any) -> bool:
    """Add ``amount`` to an account. If the balance would become negative, only return False."""
    for method in ("cash", "bank"):
        if payment_method == method:
            account = f"{method}_balance"
            if user[account] + amount < 0:
                return False
            user[account] += amount
    return True


def process_refund(app: Travel, user: Any, amount: Any) -> None:
    user["cash_balance"] += amount
    user["user_name"]  # upstream prints the name, which raises for a user without one


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
) -> Reply:
    user: Any = authenticate_user(app, user_id, password)
    flight: Any = next(
        (f for f in app.flights if f["flight_no"] == flight_no and f["status"] == "available"), None
    )
    price = flight["economy_price"] if cabin == app.economy else flight["business_price"]
    cost = price + calculate_baggage_fee(app, user["membership_level"], cabin, baggage_count)
    require(payment_method in ("cash", "bank"), "bad_method")
    account = f"{payment_method}_balance"
    require(not cost > user[account], f"{payment_method}_short")  # NaN is accepted
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
    return success("booked", reservation_id=reservation_id, total_cost=cost)


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
    reservation: Any = app.reservation(user_id, reservation_id)
    require(reservation is not None, "unknown_reservation")
    current: Any = app.flight(reservation["flight_no"])
    require(current is not None, "unknown_flight")
    payment_method = new_payment_method or reservation["payment_method"]
    user = app.users[user_id]
    sentences = []
    if new_flight_no and new_flight_no != reservation["flight_no"]:
        flight = app.flight(new_flight_no)
        require(flight is not None and _route(flight) == _route(current), "bad_flight")
        reservation["flight_no"] = new_flight_no
        sentences.append(app.texts.fill_text(method, "flight_changed"))
    if new_cabin and new_cabin != reservation["cabin"]:
        price = calculate_price_difference(app, current, reservation["cabin"], new_cabin)
        reservation["cabin"] = new_cabin
        if price > 0:
            paid = update_balance(app, user, payment_method, -price)
            name = "cabin_paid" if paid else "cabin_short"
            sentences.append(app.texts.fill_text(method, name, {"price_difference": price}))
        elif price < 0:
            update_balance(app, user, payment_method, -price)
            sentences.append(
                app.texts.fill_text(method, "cabin_refunded", {"-price_difference": -price})
            )
    if add_baggage > 0:
        free = get_baggage_allowance(app, user["membership_level"], reservation["cabin"])
        total = reservation["baggage"] + add_baggage
        cost = max(0, total - free) * BAG_FEE
        if cost > 0:
            paid = update_balance(app, user, payment_method, -cost)
            name = "bags_paid" if paid else "bags_short"
            sentences.append(app.texts.fill_text(method, name, {"baggage_cost": cost}))
        reservation["baggage"] = total
    return " ".join(sentences) or app.texts.fill_text(method, "free")


def cancel_reservation(app: Travel, user_id: Any, reservation_id: Any, reason: Any) -> Reply:
    user = app.users.get(user_id)
    require(user is not None, "unknown_user")
    reservation: Any = app.reservation(user_id, reservation_id)
    require(reservation is not None, "unknown_reservation")
    flight: Any = app.flight(reservation["flight_no"])
    require(flight is not None, "unknown_flight")
    departure = parse_time(flight["depart_time"])
    require(departure >= NOW, "departed")
    price = app.price(flight, reservation["cabin"])
    name, fee = "early", 0
    if reason == app.texts.fill_text("cancel_reservation", "airline_reason"):
        name = "airline"
    elif departure - NOW <= timedelta(days=1):
        name, fee = "late", price * FEE
    refund = price - fee
    process_refund(app, user, refund)
    return success(name, refund_amount=refund, cancel_fee=fee)


def _allowances(app: Travel) -> dict[Any, dict[Any, int]]:
    return {
        level: {app.economy: economy, app.business: business}
        for level, (economy, business) in ALLOWANCE.items()
    }


def _route(flight: Record) -> tuple[Any, Any]:
    return flight["origin"], flight["destination"]


TRAVEL = declare(
    "Travel",
    Travel,
    plain=True,
    saved="users reservations",
    texts={
        get_flight_details: "none",
        get_user_details: "wrong",
        get_reservation_details: "unasked",
        find_transfer_flights: "none time_format time_format",
        authenticate_user: "wrong",
        get_baggage_allowance: None,
        calculate_baggage_fee: None,
        update_balance: None,
        process_refund: None,
        calculate_price_difference: "economy business",
        reserve_flight: "id booked cash_short bank_short wrong_password bad_method economy",
        modify_flight: (
            "bad_flight cabin_paid cabin_refunded bags_paid unknown_reservation unknown_flight "
            "unknown_user free separator flight_changed cabin_short bags_short"
        ),
        cancel_reservation: (
            "airline early late unknown_user unknown_reservation unknown_flight time_format "
            "departed airline_reason economy"
        ),
    },
)
