"""FoodPlatform: every rule, both languages."""

from __future__ import annotations

from typing import Any

import pytest

from tests.benchmarks.acebench.environment.mini_environments import LANGUAGES, Sandbox, initial

F = "FoodPlatform"
ADD = "add_food_delivery_order"


def ids(language: str) -> tuple[str, str, list[str]]:
    """Return a user, a merchant, and its two products (14.0 and 16.5)."""
    merchant, record = next(iter(initial(language, F, "merchant_list").items()))
    products = [line["product"] for line in record["menu"]]
    return next(iter(initial(language, F, "users"))), merchant, products


def logged_in(language: str, balance: float = 90.0) -> Sandbox:
    users = initial(language, F, "users")
    user = ids(language)[0]
    users[user]["balance"] = balance
    app = Sandbox(F, language=language, changes={"users": users})
    app("login_food_platform", username=user, password="pear11")
    return app


def order(app: Sandbox, language: str, *items: Any, **changes: Any) -> Any:
    user, merchant, _ = ids(language)
    arguments = {"username": user, "merchant_name": merchant, "items": list(items)}
    return app(ADD, **{**arguments, **changes})


@LANGUAGES
def test_logging_in(language: str) -> None:
    user, tool, shown = ids(language)[0], "login_food_platform", "view_logged_in_users"
    app = Sandbox(F, language=language, config={"BaseApi": {"wifi": False, "logged_in": False}})
    assert app(shown) == app.no(shown, 0)
    for name, password, number in (("?", "?", 2), ("?", "?", 3), (user, "?", 4)):
        assert app(tool, username=name, password=password) == app.no(tool, number)
        app("turn_on_wifi")
    assert app.state["logged_in_users"] == []
    assert app(tool, username=user, password="pear11") == app.yes(tool, 0, username=user)
    assert app(tool, username=user, password="pear11") == app.no(tool, 1, username=user)
    assert app(shown) == {"status": True, "logged_in_users": [user]}
    assert app.state["logged_in_users"] == [user]


@LANGUAGES
def test_balances_menus_and_orders_are_shown(language: str) -> None:
    user, merchant, _ = ids(language)
    app = Sandbox(F, language=language)
    assert app("check_balance", user_name=user) == 90.0
    assert repr(app("check_balance", user_name="?")) == "0.0"
    menu = initial(language, F, "merchant_list")[merchant]["menu"]
    assert app("get_products", merchant_name=merchant) == str(menu)
    unknown = app.no("get_products", 0, merchant_name="{x}")
    assert app("get_products", merchant_name="{x}") == unknown
    assert app("view_orders", user_name=user) == app.no("view_orders", 0)
    assert app("search_orders", keyword="") == app.no("search_orders", 0)


@LANGUAGES
def test_an_order_is_paid_stored_and_found(language: str) -> None:
    user, merchant, (beet, corn) = ids(language)
    app = logged_in(language)
    items = [{"product": beet, "quantity": 2}, {"product": corn, "note": "hot"}]
    done = app.yes(ADD, 0, merchant_name=merchant, total_price=44.5)
    assert order(app, language, *items) == done
    placed = {
        "user_name": user,
        "merchant_name": merchant,
        "items": [
            {"product": beet, "quantity": 2, "price_per_unit": 14.0},
            {"product": corn, "quantity": 1, "price_per_unit": 16.5},
        ],
        "total_price": 44.5,
    }
    assert app.state["orders"] == [placed]
    assert app.state["users"][user]["balance"] == 45.5
    found = {"status": True, "orders": [placed]}
    assert app("view_orders", user_name=user) == found
    assert app("search_orders", keyword=merchant.upper()) == found
    if language == "zh":
        error = "'dict' object has no attribute 'lower'"
        assert app.failed("search_orders", keyword=beet) == error
    else:
        assert app("search_orders", keyword=corn.lower()) == found
        assert app("search_orders", keyword="?") == app.no("search_orders", 0)


@LANGUAGES
def test_an_order_is_refused_whole(language: str) -> None:
    _, merchant, (beet, _) = ids(language)
    good = {"product": beet, "quantity": 1}
    app = logged_in(language)
    before = app.state
    other = list(initial(language, F, "users"))[1]
    assert order(app, language, good, username=other) == app.no(ADD, 1, username=other)
    assert order(app, language, good, merchant_name="?") == app.no(ADD, 4)
    for quantity in (0, -1, "2", 1.0, None):
        refused = order(app, language, good, {"product": beet, "quantity": quantity})
        assert refused == app.no(ADD, 2, quantity=quantity, product_name=beet)
    unknown = app.no(ADD, 3, product_name="?", merchant_name=merchant)
    assert order(app, language, good, {"product": "?"}) == unknown
    assert order(app, language, {**good, "quantity": 7}) == app.no(ADD, 5)
    assert app.state == before


@pytest.mark.parametrize(("language", "works"), [("en", True), ("zh", False)])
def test_the_last_coin_buys_in_english_only(language: str, works: bool) -> None:
    user, _, (beet, _) = ids(language)
    app = logged_in(language, balance=28.0)
    assert order(app, language, {"product": beet, "quantity": 2})["status"] is works
    assert app.state["users"][user]["balance"] == (0.0 if works else 28.0)


def test_odd_orders_behave_as_upstream() -> None:
    user, merchant, (beet, _) = ids("en")
    app = logged_in("en")
    assert order(app, "en") == app.yes(ADD, 0, merchant_name=merchant, total_price=0.0)
    assert order(app, "en", {"product": beet, "quantity": True})["status"] is True
    assert app.state["users"][user]["balance"] == 76.0
    odd = {"username": user, "merchant_name": merchant, "items": [beet]}
    assert app.failed(ADD, **odd) == "'str' object has no attribute 'get'"


def test_users_of_the_config_are_logged_in() -> None:
    config = {"BaseApi": {"wifi": True, "logged_in_users": ["Timo"]}}
    app = Sandbox(F, config=config)
    assert app.state["logged_in_users"] == ["Timo"]
    app("login_food_platform", username="Nora", password="pear11")
    assert config["BaseApi"]["logged_in_users"] == ["Timo"]
