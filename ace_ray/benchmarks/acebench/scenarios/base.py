"""BaseApi: the switches of the phone. Neither switch has a precondition or can fail."""

from __future__ import annotations

from typing import Any

from ace_ray.benchmarks.acebench.scenarios.app import App, Phone, as_official, declare, done


def turn_on_wifi(phone: Phone) -> dict[str, Any]:
    phone.wifi = True
    return done(phone.texts.of("turn_on_wifi", "on"))


def login_device(phone: Phone) -> dict[str, Any]:
    phone.logged_in = True
    return done(phone.texts.of("login_device", "logged_in"))


TOOLS = declare("BaseApi", {"turn_on_wifi": (turn_on_wifi, {}), "login_device": (login_device, {})})

BASE = App(
    name="BaseApi",
    attributes={"wifi": (bool, ()), "logged_in": (bool, ())},
    texts={"turn_on_wifi": ("on",), "login_device": ("logged_in",)},
    saved=("wifi", "logged_in"),
    open=lambda opening: opening.phone,
    official=as_official(TOOLS),
    fixed=TOOLS,
)
