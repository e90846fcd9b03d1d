"""Changing reservations by the rules of the agent prompt (its travel section).

A booking checks password, flight, seats, cabin and bags. A change is made whole or not at all: new
flight, cabin and bags are checked and paid for together; only bags beyond the allowance that were
not paid before cost something. Prices stay those of the flight that was booked. Cancelling removes
the reservation and frees the seat; it is free within 24 hours of booking, when the airline cancels,
in business, and more than 24 hours before departure; otherwise 20 % of the ticket stay behind.
Refunds go to the bank account, which is what a user here has for the prompt's credit card.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from ace_ray.benchmarks.acebench.environment.app import declare
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
    when,
)


class Refused(Exception):
    """The answer when nothing was changed."""


class Change:
    """A modification that is worked out first and applied only when all of it can be paid."""

    def __init__(
        self, app: Travel, user: Record, reservation: Record, seat: Record, balance: float
    ) -> None:
        self.app, self.user, self.reservation = app, user, reservation
        self.old_seat = self.new_seat = seat
        self.fare = app.fares.get(reservation["reservation_id"], seat)
        self.balance = balance
        self.after = {name: reservation[name] for name in ("flight_no", "cabin", "baggage")}
        self.answers: list[str] = []

    def flight(self, flight_no: str) -> None:
        offers = [f for f in self.app.flights if _replaces(f, flight_no, self.old_seat)]
        if not offers:
            raise Refused(self.app.texts.of("modify_flight", "bad_flight"))
        self.new_seat = free_seat(self.app, offers)
        self.after["flight_no"] = flight_no
        self._say("flight_changed", {})

    def cabin(self, cabin: str) -> None:
        if cabin not in (self.app.economy, self.app.business):
            raise Refused(self.app.texts.own("bad_cabin"))
        old = self.app.price(self.fare, self.reservation["cabin"])
        price = self.app.price(self.fare, cabin) - old
        self._pay(price, "cabin_short")
        self.after["cabin"] = cabin
        if price > 0:
            self._say("cabin_paid", {"price_difference": price})
        elif price < 0:
            self._say("cabin_refunded", {"-price_difference": -price})

    def bags(self, added: int) -> None:
        if added < 0:
            raise Refused(self.app.texts.own("bad_bags"))
        before = self._charged_bags()
        self.after["baggage"] += added
        cost = BAG_FEE * (self._charged_bags() - before)
        self._pay(cost, "bags_short")
        if cost:
            self._say("bags_paid", {"baggage_cost": cost})

    def apply(self) -> None:
        reservation_id = self.reservation["reservation_id"]
        self.reservation.update(self.after)
        self.old_seat["seats_available"] += 1
        self.new_seat["seats_available"] -= 1
        self.app.seats[reservation_id] = self.new_seat
        self.app.fares[reservation_id] = self.fare

    def _charged_bags(self) -> int:
        return charged_bags(self.app, self.user, self.after["cabin"], self.after["baggage"])

    def _pay(self, price: float, refusal: str) -> None:
        if price > self.balance:
            raise Refused(self.app.texts.of("modify_flight", refusal))
        self.balance -= price

    def _say(self, name: str, values: Record) -> None:
        self.answers.append(self.app.texts.of("modify_flight", name, values))


def free_seat(app: Travel, offers: list[Record]) -> Record:
    """The first of the flights with a seat left."""
    for flight in offers:
        if flight["seats_available"] > 0:
            return flight
    raise Refused(app.texts.own("no_seats"))


def _replaces(flight: Record, flight_no: str, current: Record) -> bool:
    return bool(
        flight["flight_no"] == flight_no
        and flight["status"] == "available"
        and flight["origin"] == current["origin"]
        and flight["destination"] == current["destination"]
    )


def charged_bags(app: Travel, user: Record, cabin: str, bags: int) -> int:
    economy, business = ALLOWANCE[user["membership_level"]]
    return max(bags - (economy if cabin == app.economy else business), 0)


NOW = datetime(2024, 7, 15, 8)
FEE = 0.2
METHODS = ("cash", "bank")

_AIRLINE_REASONS = {"en": ("airline canceled", "airline cancellation"), "zh": ("航空公司取消航班",)}
"""How function list and prompt word the reason, beside the sentence that `worlds.json` has."""


def reserve_flight(
    app: Travel,
    user_id: str,
    password: str,
    flight_no: str,
    cabin: str,
    payment_method: str,
    baggage_count: int,
) -> str:
    user = authenticated(app, user_id, password)
    if user is None:
        return app.texts.of("reserve_flight", "wrong_password")
    offers = [f for f in app.flights if f["flight_no"] == flight_no and f["status"] == "available"]
    if not offers:
        return app.texts.of("modify_flight", "unknown_flight")
    try:
        flight = free_seat(app, offers)
    except Refused as refusal:
        return str(refusal)
    if cabin not in (app.economy, app.business):
        return app.texts.own("bad_cabin")
    if baggage_count < 0:
        return app.texts.own("bad_bags")
    if payment_method not in METHODS:
        return app.texts.of("reserve_flight", "bad_method")
    cost = app.price(flight, cabin) + BAG_FEE * charged_bags(app, user, cabin, baggage_count)
    account = f"{payment_method}_balance"
    if cost > user[account]:
        return app.texts.of("reserve_flight", f"{payment_method}_short")
    user[account] -= cost
    flight["seats_available"] -= 1
    app.last_number += 1
    reservation_id = f"res_{app.last_number}"
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
    app.seats[reservation_id] = flight
    app.booked_now.add(reservation_id)
    values = {"reservation_id": reservation_id, "total_cost": cost}
    return app.texts.of("reserve_flight", "booked", values)


def modify_flight(
    app: Travel,
    user_id: str,
    reservation_id: str,
    new_flight_no: str | None = None,
    new_cabin: str | None = None,
    add_baggage: int | None = None,
    new_payment_method: str | None = None,
) -> str:
    method = "modify_flight"
    reservation = app.reservation(user_id, reservation_id)
    if reservation is None:
        return app.texts.of(method, "unknown_reservation")
    seat = _seat(app, reservation)
    if seat is None:
        return app.texts.of(method, "unknown_flight")
    payment_method = new_payment_method or reservation["payment_method"]
    if payment_method not in METHODS:
        return app.texts.of("reserve_flight", "bad_method")
    user, account = app.users[user_id], f"{payment_method}_balance"
    change = Change(app, user, reservation, seat, balance=user[account])
    try:
        if new_flight_no and new_flight_no != reservation["flight_no"]:
            change.flight(new_flight_no)
        if new_cabin and new_cabin != reservation["cabin"]:
            change.cabin(new_cabin)
        if add_baggage:
            change.bags(add_baggage)
    except Refused as refusal:
        return str(refusal)
    user[account] = change.balance
    change.apply()
    return " ".join(change.answers) or app.texts.of(method, "free")


def cancel_reservation(app: Travel, user_id: str, reservation_id: str, reason: str) -> str:
    method = "cancel_reservation"
    user = app.users.get(user_id)
    if user is None:
        return app.texts.of(method, "unknown_user")
    reservation = app.reservation(user_id, reservation_id)
    if reservation is None:
        return app.texts.of(method, "unknown_reservation")
    seat = _seat(app, reservation)
    if seat is None:
        return app.texts.of(method, "unknown_flight")
    departure = when(seat["depart_time"])
    if departure < NOW:
        return app.texts.of(method, "departed")
    price = app.price(app.fares.get(reservation_id, seat), reservation["cabin"])
    fee = 0.0
    if _is_airline(app, reason):
        answer = app.texts.of(method, "airline", {"refund_amount": price})
    elif departure - NOW > timedelta(days=1):
        answer = app.texts.of(method, "early", {"refund_amount": price})
    elif reservation["cabin"] == app.business or reservation_id in app.booked_now:
        answer = app.texts.own("free_cancellation", {"refund_amount": price})
    else:
        fee = price * FEE
        values = {"cancel_fee": fee, "refund_amount": price - fee}
        answer = app.texts.of(method, "late", values)
    user["bank_balance"] += price - fee
    seat["seats_available"] += 1
    app.reservations.remove(reservation)
    return answer


def _seat(app: Travel, reservation: Record) -> Record | None:
    """The flight that the reservation holds a seat on."""
    return app.seats.get(reservation["reservation_id"]) or app.flight(reservation["flight_no"])


def _is_airline(app: Travel, reason: str) -> bool:
    sentence = app.texts.of("cancel_reservation", "airline_reason")
    reasons = (sentence, *_AIRLINE_REASONS[app.language])
    return _bare(reason) in [_bare(text) for text in reasons]


def _bare(reason: str) -> str:
    return reason.strip().rstrip(".。").casefold()


OWN = {
    "en": {
        "no_seats": "This flight has no seat left.",
        "bad_cabin": "There is no such cabin.",
        "bad_bags": "The number of bags cannot be negative.",
        "free_cancellation": "Free cancellation, {refund_amount} yuan has been refunded.",
    },
    "zh": {
        "no_seats": "该航班已无余座。",
        "bad_cabin": "没有这种舱位。",
        "bad_bags": "行李件数不能为负数。",
        "free_cancellation": "免费取消，退款{refund_amount}元。",
    },
}

TOOLS = QUERIES | declare(
    "Travel",
    {
        "reserve_flight": (reserve_flight, RESERVE_TYPES),
        "modify_flight": (modify_flight, MODIFY_TYPES),
        "cancel_reservation": (cancel_reservation, CANCEL_TYPES),
    },
)
