"""A modification of a reservation by the prompt's rules: worked out first, then paid for."""

from __future__ import annotations

from ace_ray.benchmarks.acebench.scenarios.travel import ALLOWANCE, BAG_FEE, Record, Travel


class Refused(Exception):
    """What the user is told when nothing was changed."""


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
        self.said: list[str] = []

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
        self.said.append(self.app.texts.of("modify_flight", name, values))


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
