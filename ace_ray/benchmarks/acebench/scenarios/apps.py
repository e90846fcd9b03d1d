"""The sandbox classes by name."""

from __future__ import annotations

from collections.abc import Mapping

from ace_ray.benchmarks.acebench.scenarios import travel_fixed, travel_official
from ace_ray.benchmarks.acebench.scenarios.app import App
from ace_ray.benchmarks.acebench.scenarios.base import BASE
from ace_ray.benchmarks.acebench.scenarios.finance import FINANCE
from ace_ray.benchmarks.acebench.scenarios.food import FOOD
from ace_ray.benchmarks.acebench.scenarios.message import MESSAGE
from ace_ray.benchmarks.acebench.scenarios.reminder import REMINDER
from ace_ray.benchmarks.acebench.scenarios.travel import open_travel

_CABINS = ("economy", "business")

TRAVEL = App(
    name="Travel",
    attributes={
        "users": (
            dict,
            ("user_name", "password", "cash_balance", "bank_balance", "membership_level"),
        ),
        "flights": (
            list,
            (
                "flight_no",
                "origin",
                "destination",
                "depart_time",
                "arrival_time",
                "status",
                "seats_available",
                "economy_price",
                "business_price",
            ),
        ),
        "reservations": (
            list,
            ("reservation_id", "user_id", "flight_no", "payment_method", "cabin", "baggage"),
        ),
    },
    texts={
        "get_flight_details": ("none",),
        "get_user_details": ("wrong",),
        "get_reservation_details": ("unasked",),
        "authenticate_user": ("wrong",),
        "find_transfer_flights": ("none", "time_format", "time_format"),
        "reserve_flight": (
            "id",
            "booked",
            "cash_short",
            "bank_short",
            "wrong_password",
            "bad_method",
            "economy",
        ),
        "modify_flight": (
            "bad_flight",
            "cabin_paid",
            "cabin_refunded",
            "bags_paid",
            "unknown_reservation",
            "unknown_flight",
            "unknown_user",
            "free",
            "separator",
            "flight_changed",
            "cabin_short",
            "bags_short",
        ),
        "cancel_reservation": (
            "airline",
            "early",
            "late",
            "unknown_user",
            "unknown_reservation",
            "unknown_flight",
            "time_format",
            "departed",
            "airline_reason",
            "economy",
        ),
        "calculate_price_difference": _CABINS,
    },
    saved=("users", "reservations"),
    open=open_travel,
    official=travel_official.TOOLS,
    fixed=travel_fixed.TOOLS,
    own=travel_fixed.OWN,
)

PHONE_APPS = (MESSAGE, REMINDER, FOOD)
APPS: Mapping[str, App] = {app.name: app for app in (BASE, *PHONE_APPS, TRAVEL, FINANCE)}
