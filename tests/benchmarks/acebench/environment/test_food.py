"""FoodPlatform: every rule, both languages."""

from __future__ import annotations

from typing import Any

import pytest

from ace_ray.benchmarks.acebench.environment.environment import Environment
from tests.benchmarks.acebench.environment.mini_environments import (
    answer,
    failed,
    initial,
    part,
    refusal,
    start,
    success,
)

LANGUAGES = pytest.mark.parametrize("language", ["en", "zh"])
F = "FoodPlatform"
ADD = "add_food_delivery_order"


def ids(language: str) -> tuple[str, str, list[str]]:
    """A user, a merchant, and its two products (14.0 and 16.5)."""
    merchant, record = next(iter(initial(language, F, "merchant_list").items()))
    return (
        next(iter(initial(language, F, "users"))),
        merchant,
        [p["product"] for p in record["menu"]],
    )


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
    user = ids(language)[0]
    tool = "login_food_platform"
    config = {"BaseApi": {"wifi": False, "logged_in": False}}
    environment = start(F, language, config)
    none = refusal(language, F, "view_logged_in_users", 0)
    assert answer(environment, "view_logged_in_users") == none
    for name, password, number in (("?", "?", 2), ("?", "?", 3), (user, "?", 4)):
        assert answer(environment, tool, username=name, password=password) == refusal(
            language, F, tool, number
        )
        answer(environment, "turn_on_wifi")
    assert part(environment, F)["logged_in_users"] == []
    assert answer(environment, tool, username=user, password="pear11") == success(
        language, F, tool, 0, username=user
    )
    assert answer(environment, tool, username=user, password="pear11") == refusal(
        language, F, tool, 1, username=user
    )
    assert answer(environment, "view_logged_in_users") == {
        "status": True,
        "logged_in_users": [user],
    }
    assert part(environment, F)["logged_in_users"] == [user]


@LANGUAGES
def test_balances_menus_and_orders_are_shown(language: str) -> None:
    user, merchant, _ = ids(language)
    environment = start(F, language)
    assert answer(environment, "check_balance", user_name=user) == 90.0
    menu = answer(environment, "get_products", merchant_name=merchant)
    # like the official one, a list arrives as Python prints it
    assert menu == str(initial(language, F, "merchant_list")[merchant]["menu"])
    assert answer(environment, "get_products", merchant_name="{x}") == refusal(
        language, F, "get_products", 0, merchant_name="{x}"
    )
    assert answer(environment, "view_orders", user_name=user) == refusal(
        language, F, "view_orders", 0
    )
    assert answer(environment, "search_orders", keyword="") == refusal(
        language, F, "search_orders", 0
    )


@LANGUAGES
def test_the_balance_of_a_stranger(language: str) -> None:
    assert repr(answer(start(F, language), "check_balance", user_name="?")) == "0.0"


@LANGUAGES
def test_ordering(language: str) -> None:
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
    assert part(environment, F)["orders"] == [placed]
    assert part(environment, F)["users"][user]["balance"] == 45.5
    assert answer(environment, "view_orders", user_name=user) == {
        "status": True,
        "orders": [placed],
    }
    assert answer(environment, "search_orders", keyword=merchant.upper())["orders"] == [placed]


@LANGUAGES
def test_an_order_is_refused_whole(language: str) -> None:
    user, merchant, (beet, _) = ids(language)
    good = {"product": beet, "quantity": 1}
    environment = logged_in(language)
    before = environment.state()
    other = list(initial(language, F, "users"))[1]
    logged_out = refusal(language, F, ADD, 1, username=other)
    assert order(environment, language, good, username=other) == logged_out
    assert order(environment, language, good, merchant_name="?") == refusal(language, F, ADD, 4)
    for quantity in (0, -1, "2", 1.0, None):
        wrong = {"product": beet, "quantity": quantity}
        assert order(environment, language, good, wrong) == refusal(
            language, F, ADD, 2, quantity=quantity, product_name=beet
        )
    for product in ("?", beet.upper() + "!", None):
        assert order(environment, language, good, {"product": product}) == refusal(
            language, F, ADD, 3, product_name=product, merchant_name=merchant
        )
    assert order(environment, language, {**good, "quantity": 7}) == refusal(language, F, ADD, 5)
    assert environment.state() == before
    assert user


@pytest.mark.parametrize(("language", "works"), [("en", True), ("zh", False)])
def test_the_last_coin(language: str, works: bool) -> None:
    user, _, (beet, _) = ids(language)
    environment = logged_in(language, balance=28.0)
    reply = order(environment, language, {"product": beet, "quantity": 2})
    assert reply["status"] is works
    assert part(environment, F)["users"][user]["balance"] == (0.0 if works else 28.0)
    assert order(environment, language, {"product": beet, "quantity": 3})["status"] is False


@LANGUAGES
def test_searching_orders_by_product(language: str) -> None:
    _, merchant, (beet, corn) = ids(language)
    environment = logged_in(language)
    order(environment, language, {"product": beet})
    if language == "zh":
        error = "'dict' object has no attribute 'lower'"
        assert failed(environment, "search_orders", keyword=beet) == error
        assert len(answer(environment, "search_orders", keyword=merchant)["orders"]) == 1
    else:
        assert len(answer(environment, "search_orders", keyword=beet.lower())["orders"]) == 1
        missed = answer(environment, "search_orders", keyword=corn)
        assert missed == refusal(language, F, "search_orders", 0)


@LANGUAGES
def test_odd_orders(language: str) -> None:
    _, merchant, (beet, _) = ids(language)
    official = logged_in(language)
    assert order(official, language) == success(
        language, F, ADD, 0, merchant_name=merchant, total_price=0.0
    )
    assert order(official, language, {"product": beet, "quantity": True})["status"] is True
    assert part(official, F)["users"][ids(language)[0]]["balance"] == 76.0
    error = "'str' object has no attribute 'get'"
    observation = official.call(
        ADD,
        {"username": ids(language)[0], "merchant_name": merchant, "items": [beet]},
    )
    assert (observation.error, observation.value) == ("failed", error)


def test_users_of_the_config_are_logged_in() -> None:
    config = {"BaseApi": {"wifi": True, "logged_in_users": ["Timo"]}}
    environment = start(F, "en", config)
    assert part(environment, F)["logged_in_users"] == ["Timo"]
    environment.call("login_food_platform", {"username": "Nora", "password": "pear11"})
    assert config["BaseApi"]["logged_in_users"] == ["Timo"]
