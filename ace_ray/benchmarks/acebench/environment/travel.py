"""Travel: flights, users with two accounts, reservations; what both behaviours share.

What changes reservations is in `travel_official` and `travel_fixed`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ace_ray.benchmarks.acebench.environment.app import InitialState, Texts, declare
from ace_ray.errors import UserError

ALLOWANCE = {"regular": (1, 2), "silver": (2, 3), "gold": (3, 3)}
"""Free bags by membership, in (economy, business); also a rule of the agent prompt."""
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
    """The last three are kept by the fixed behaviour only. By reservation id: the flight at whose
    prices a changed one was booked, the flight it holds a seat on, what was booked just now."""

    users: dict[str, Record]
    flights: list[Record]
    reservations: list[Record]
    economy: str
    business: str
    texts: Texts
    language: str
    last_number: int
    fares: dict[str, Record] = field(default_factory=dict)
    seats: dict[str, Record] = field(default_factory=dict)
    booked_now: set[str] = field(default_factory=set)

    def flight(self, flight_no: Any) -> Record | None:
        return next((f for f in self.flights if f["flight_no"] == flight_no), None)

    def reservation(self, user_id: Any, reservation_id: Any) -> Record | None:
        for record in self.reservations:
            if record["reservation_id"] == reservation_id and record["user_id"] == user_id:
                return record
        return None

    def price(self, flight: Record, cabin: Any) -> Any:
        """Yuan. Like the official one, anything that is not economy costs business."""
        return flight["economy_price" if cabin == self.economy else "business_price"]


def get_flight_details(app: Travel, origin: Any = None, destination: Any = None) -> Any:
    flights = [
        {name: flight[name] for name in _FLIGHT_FIELDS}
        for flight in app.flights
        if (not origin or flight["origin"] == origin)
        and (not destination or flight["destination"] == destination)
    ]
    return flights or app.texts.of("get_flight_details", "none")


def get_user_details(app: Travel, user_id: Any, password: Any) -> Record:
    user = authenticated(app, user_id, password)
    if user is None:
        return failure(app.texts.of("get_user_details", "wrong"))
    return {name: value for name, value in user.items() if name != "password"}


def get_reservation_details(app: Travel, reservation_id: Any = None, user_id: Any = None) -> Any:
    if reservation_id:
        name, wanted = "reservation_id", reservation_id
    elif user_id:
        name, wanted = "user_id", user_id
    else:
        return failure(app.texts.of("get_reservation_details", "unasked"))
    return [
        {**record, "flight_info": app.flight(record["flight_no"])}
        for record in app.reservations
        if record[name] == wanted
    ]


def find_transfer_flights(
    app: Travel, origin_city: Any, transfer_city: Any, destination_city: Any
) -> Any:
    pairs = [
        {"first_leg": first, "second_leg": second}
        for first in _legs(app, origin_city, transfer_city)
        for second in _legs(app, transfer_city, destination_city)
        if when(first["arrival_time"]) < when(second["depart_time"])
    ]
    return pairs or app.texts.of("find_transfer_flights", "none")


def _legs(app: Travel, origin: Any, destination: Any) -> list[Record]:
    return [
        flight
        for flight in app.flights
        if flight["origin"] == origin
        and flight["destination"] == destination
        and flight["status"] == "available"
    ]


def authenticated(app: Travel, user_id: Any, password: Any) -> Record | None:
    user = app.users.get(user_id)
    return user if user and user["password"] == password else None


def when(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%d %H:%M:%S")


def failure(message: str) -> Record:
    return {"status": "error", "message": message}


def open_travel(initial: InitialState) -> Travel:
    state = initial.state
    for user_id, user in state["users"].items():
        if user["membership_level"] not in ALLOWANCE:
            level = user["membership_level"]
            raise UserError(f"user {user_id} has the unknown membership {level!r}", where="Travel")
    cabins = ("economy", "business")
    economy, business = (initial.texts.of("calculate_price_difference", name) for name in cabins)
    return Travel(
        users=state["users"],
        flights=state["flights"],
        reservations=state["reservations"],
        economy=economy,
        business=business,
        texts=initial.texts,
        language=initial.language,
        last_number=len(state["reservations"]),
    )


QUERIES = declare(
    "Travel",
    {
        "get_flight_details": (get_flight_details, {"origin": str, "destination": str}),
        "get_user_details": (get_user_details, {"user_id": str, "password": str}),
        "get_reservation_details": (
            get_reservation_details,
            {"reservation_id": str, "user_id": str},
        ),
        "find_transfer_flights": (
            find_transfer_flights,
            {"origin_city": str, "transfer_city": str, "destination_city": str},
        ),
    },
)

_USER = {"user_id": str, "password": str}
_RESERVATION = {"user_id": str, "reservation_id": str}
RESERVE_TYPES = {
    **_USER,
    "flight_no": str,
    "cabin": str,
    "payment_method": str,
    "baggage_count": int,
}
MODIFY_TYPES = {
    **_RESERVATION,
    "new_flight_no": str,
    "new_cabin": str,
    "add_baggage": int,
    "new_payment_method": str,
}
CANCEL_TYPES = {**_RESERVATION, "reason": str}
