"""FoodPlatform: every rule, both languages."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from ace_ray.benchmarks.acebench.environment.environment import Environment
from tests.benchmarks.acebench.environment.mini_environments import (
    LANGUAGES,
    answer,
    failed,
    initial,
    part,
    refusal,
    start,
    success,
)

F = "FoodPlatform"
ADD = "add_food_delivery_order"


def ids(language: str) -> tuple[str, str, list[str]]:
    """Return a user, a merchant, and its two products (14.0 and 16.5)."""
    merchant, record = next(iter(initial(language, F, "merchant_list").items()))
    products = [line["product"] for line in record["menu"]]
    return next(iter(initial(language, F, "users"))), merchant, products


def logged_in(language: str, balance: float = 90.0) -> Environment:
    users = initial(language, F, "users")
    user = ids(language)[0]
    users[user]["balance"] = balance
    environment = start(F, language, changes={"users": users})
    answer(environment, "login_food_platform", username=user, password="pear11")
    return environment


def order(environment: Environment, language: str, *items: Any, **changes: Any) -> Any:
    user, merchant, _ = ids(language)
    arguments = {"username": user, "merchant_name": merchant, "items": list(items), **changes}
    return answer(environment, ADD, **arguments)


@LANGUAGES
def test_logging_in(language: str) -> None:
    user, tool, shown = ids(language)[0], "login_food_platform", "view_logged_in_users"
    no = partial(refusal, language, F)
    environment = start(F, language, {"BaseApi": {"wifi": False, "logged_in": False}})
    assert answer(environment, shown) == no(shown, 0)
    for name, password, number in (("?", "?", 2), ("?", "?", 3), (user, "?", 4)):
        assert answer(environment, tool, username=name, password=password) == no(tool, number)
        answer(environment, "turn_on_wifi")
    assert part(environment, F)["logged_in_users"] == []
    right = {"username": user, "password": "pear11"}
    assert answer(environment, tool, **right) == success(language, F, tool, 0, username=user)
    assert answer(environment, tool, **right) == no(tool, 1, username=user)
    assert answer(environment, shown) == {"status": True, "logged_in_users": [user]}
    assert part(environment, F)["logged_in_users"] == [user]


@LANGUAGES
def test_balances_menus_and_orders_are_shown(language: str) -> None:
    user, merchant, _ = ids(language)
    no = partial(refusal, language, F)
    environment = start(F, language)
    assert answer(environment, "check_balance", user_name=user) == 90.0
    assert repr(answer(environment, "check_balance", user_name="?")) == "0.0"
    menu = answer(environment, "get_products", merchant_name=merchant)
    assert menu == str(initial(language, F, "merchant_list")[merchant]["menu"])
    unknown = answer(environment, "get_products", merchant_name="{x}")
    assert unknown == no("get_products", 0, merchant_name="{x}")
    assert answer(environment, "view_orders", user_name=user) == no("view_orders", 0)
    assert answer(environment, "search_orders", keyword="") == no("search_orders", 0)


@LANGUAGES
def test_an_order_is_paid_stored_and_found(language: str) -> None:
    user, merchant, (beet, corn) = ids(language)
    environment = logged_in(language)
    items = [{"product": beet, "quantity": 2}, {"product": corn, "note": "hot"}]
    assert order(environment, language, *items) == success(
        language, F, ADD, 0, merchant_name=merchant, total_price=44.5
    )
    placed = {
        "user_name": user,
        "merchant_name": merchant,
        "items": [
            {"product": beet, "quantity": 2, "price_per_unit": 14.0},
            {"product": corn, "quantity": 1, "price_per_unit": 16.5},
        ],
        "total_price": 44.5,
    }
    state = part(environment, F)
    assert (state["orders"], state["users"][user]["balance"]) == ([placed], 45.5)
    found = {"status": True, "orders": [placed]}
    assert answer(environment, "view_orders", user_name=user) == found
    assert answer(environment, "search_orders", keyword=merchant.upper()) == found
    if language == "zh":
        error = "'dict' object has no attribute 'lower'"
        assert failed(environment, "search_orders", keyword=beet) == error
    else:
        assert answer(environment, "search_orders", keyword=corn.lower()) == found
        missed = answer(environment, "search_orders", keyword="?")
        assert missed == refusal(language, F, "search_orders", 0)


@LANGUAGES
def test_an_order_is_refused_whole(language: str) -> None:
    _, merchant, (beet, _) = ids(language)
    no = partial(refusal, language, F, ADD)
    good = {"product": beet, "quantity": 1}
    environment = logged_in(language)
    before = environment.state()
    other = list(initial(language, F, "users"))[1]
    assert order(environment, language, good, username=other) == no(1, username=other)
    assert order(environment, language, good, merchant_name="?") == no(4)
    for quantity in (0, -1, "2", 1.0, None):
        refused = order(environment, language, good, {"product": beet, "quantity": quantity})
        assert refused == no(2, quantity=quantity, product_name=beet)
    refused = order(environment, language, good, {"product": "?"})
    assert refused == no(3, product_name="?", merchant_name=merchant)
    assert order(environment, language, {**good, "quantity": 7}) == no(5)
    assert environment.state() == before


@pytest.mark.parametrize(("language", "works"), [("en", True), ("zh", False)])
def test_the_last_coin(language: str, works: bool) -> None:
    user, _, (beet, _) = ids(language)
    environment = logged_in(language, balance=28.0)
    reply = order(environment, language, {"product": beet, "quantity": 2})
    assert reply["status"] is works
    assert part(environment, F)["users"][user]["balance"] == (0.0 if works else 28.0)


def test_odd_orders_behave_as_upstream() -> None:
    user, merchant, (beet, _) = ids("en")
    environment = logged_in("en")
    assert order(environment, "en") == success(
        "en", F, ADD, 0, merchant_name=merchant, total_price=0.0
    )
    assert order(environment, "en", {"product": beet, "quantity": True})["status"] is True
    assert part(environment, F)["users"][user]["balance"] == 76.0
    arguments = {"username": user, "merchant_name": merchant, "items": [beet]}
    assert failed(environment, ADD, **arguments) == "'str' object has no attribute 'get'"


def test_users_of_the_config_are_logged_in() -> None:
    config = {"BaseApi": {"wifi": True, "logged_in_users": ["Timo"]}}
    environment = start(F, "en", config)
    assert part(environment, F)["logged_in_users"] == ["Timo"]
    answer(environment, "login_food_platform", username="Nora", password="pear11")
    assert config["BaseApi"]["logged_in_users"] == ["Timo"]
