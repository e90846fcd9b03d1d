"""FoodPlatform: merchants with menus, and users who pay from a balance.

Upstream's faults are reproduced:

- in Chinese, an order that costs exactly the balance is refused;
- in Chinese, a search raises an error if an order's merchant name lacks the keyword;
- an order may be empty, and ``True`` is accepted as the quantity 1;
- the balance of an unknown user is 0.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ace_ray.benchmarks.acebench.environment.app import (
    App,
    InitialState,
    Phone,
    Texts,
    declare,
    done,
    refused,
)


@dataclass
class Food:
    users: dict[str, dict[str, Any]]
    merchants: dict[str, dict[str, Any]]
    logged_in_users: list[Any]
    orders: list[dict[str, Any]]
    phone: Phone
    texts: Texts
    language: str


def login_food_platform(app: Food, username: Any, password: Any) -> dict[str, Any]:
    if not app.phone.wifi:
        return refused(app.texts.of("login_food_platform", "offline"))
    if username not in app.users:
        return refused(app.texts.of("login_food_platform", "unknown"))
    if app.users[username]["password"] != password:
        return refused(app.texts.of("login_food_platform", "wrong_password"))
    if username in app.logged_in_users:
        return refused(app.texts.of("login_food_platform", "again", {"username": username}))
    app.logged_in_users.append(username)
    return done(app.texts.of("login_food_platform", "logged_in", {"username": username}))


def view_logged_in_users(app: Food) -> dict[str, Any]:
    if not app.logged_in_users:
        return refused(app.texts.of("view_logged_in_users", "none"))
    return {"status": True, "logged_in_users": app.logged_in_users}


def check_balance(app: Food, user_name: Any) -> Any:
    return app.users[user_name]["balance"] if user_name in app.users else 0.0


def add_food_delivery_order(
    app: Food, username: Any, merchant_name: Any, items: Any
) -> dict[str, Any]:
    method = "add_food_delivery_order"
    if username not in app.logged_in_users:
        return refused(app.texts.of(method, "logged_out", {"username": username}))
    if merchant_name not in app.merchants:
        return refused(app.texts.of(method, "unknown_merchant"))
    menu = app.merchants[merchant_name]["menu"]
    total = 0.0
    lines = []
    for item in items:
        product, quantity = item.get("product"), item.get("quantity", 1)
        values = {"product_name": product, "quantity": quantity, "merchant_name": merchant_name}
        if not isinstance(quantity, int) or quantity <= 0:
            return refused(app.texts.of(method, "bad_quantity", values))
        price = next((line["price"] for line in menu if line["product"] == product), None)
        if price is None:
            return refused(app.texts.of(method, "unknown_product", values))
        total += price * quantity
        lines.append({"product": product, "quantity": quantity, "price_per_unit": price})
    balance = app.users[username]["balance"]
    if not (total < balance if app.language == "zh" else total <= balance):
        return refused(app.texts.of(method, "too_expensive"))
    app.users[username]["balance"] -= total
    app.orders.append(
        {
            "user_name": username,
            "merchant_name": merchant_name,
            "items": lines,
            "total_price": total,
        }
    )
    values = {"merchant_name": merchant_name, "total_price": total}
    return done(app.texts.of(method, "ordered", values))


def get_products(app: Food, merchant_name: Any) -> Any:
    merchant = app.merchants.get(merchant_name)
    if merchant is None:
        return refused(app.texts.of("get_products", "unknown", {"merchant_name": merchant_name}))
    return merchant["menu"]


def view_orders(app: Food, user_name: Any) -> dict[str, Any]:
    orders = [order for order in app.orders if order["user_name"] == user_name]
    if not orders:
        return refused(app.texts.of("view_orders", "none"))
    return {"status": True, "orders": orders}


def search_orders(app: Food, keyword: Any) -> dict[str, Any]:
    def fits(order: dict[str, Any]) -> bool:
        if keyword.lower() in order["merchant_name"].lower():
            return True
        if app.language == "zh":
            return any(keyword.lower() in item.lower() for item in order["items"])  # raises: a dict
        return any(keyword.lower() in item["product"].lower() for item in order["items"])

    orders = [order for order in app.orders if fits(order)]
    if not orders:
        return refused(app.texts.of("search_orders", "none"))
    return {"status": True, "orders": orders}


def _open(initial: InitialState) -> Food:
    state = initial.state
    return Food(
        users=state["users"],
        merchants=state["merchant_list"],
        logged_in_users=list(initial.config.get("logged_in_users", [])),
        orders=state["orders"],
        phone=initial.phone,
        texts=initial.texts,
        language=initial.language,
    )


FOOD = App(
    name="FoodPlatform",
    texts={
        "login_food_platform": ("logged_in", "again", "offline", "unknown", "wrong_password"),
        "view_logged_in_users": ("none",),
        "check_balance": ("unknown",),
        "add_food_delivery_order": (
            "ordered",
            "logged_out",
            "bad_quantity",
            "unknown_product",
            "unknown_merchant",
            "too_expensive",
        ),
        "get_products": ("unknown",),
        "view_orders": ("none",),
        "search_orders": ("none",),
    },
    saved=("users", "logged_in_users", "orders"),
    open=_open,
    tools=declare(
        "FoodPlatform",
        login_food_platform,
        view_logged_in_users,
        check_balance,
        add_food_delivery_order,
        get_products,
        view_orders,
        search_orders,
    ),
)
