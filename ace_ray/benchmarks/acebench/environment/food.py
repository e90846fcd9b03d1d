"""FoodPlatform: merchants with menus, and users who pay from a balance.

Upstream's faults are reproduced:

- in Chinese, an order that costs exactly the balance is refused;
- in Chinese, a search raises an error if an order's merchant name lacks the keyword;
- an order may be empty, and ``True`` is accepted as the quantity 1;
- the balance of an unknown user is 0.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ace_ray.benchmarks.acebench.environment.app import (
    Phone,
    Reply,
    Texts,
    declare,
    require,
    success,
)


@dataclass
class Food:
    users: dict[str, dict[str, Any]]
    merchant_list: dict[str, dict[str, Any]]
    orders: list[dict[str, Any]]
    phone: Phone
    texts: Texts
    language: str
    config: Mapping[str, Any]
    logged_in_users: list[Any] = field(init=False)

    def __post_init__(self) -> None:
        self.logged_in_users = list(self.config.get("logged_in_users", []))


def login_food_platform(app: Food, username: Any, password: Any) -> Reply:
    require(app.phone.wifi, "offline")
    require(username in app.users, "unknown")
    require(app.users[username]["password"] == password, "wrong_password")
    require(username not in app.logged_in_users, "again", username=username)
    app.logged_in_users.append(username)
    return success("logged_in", username=username)


def view_logged_in_users(app: Food) -> dict[str, Any]:
    require(app.logged_in_users, "none")
    return {"status": True, "logged_in_users": app.logged_in_users}


def check_balance(app: Food, user_name: Any) -> Any:
    return app.users[user_name]["balance"] if user_name in app.users else 0.0


def add_food_delivery_order(app: Food, username: Any, merchant_name: Any, items: Any) -> Reply:
    require(username in app.logged_in_users, "logged_out", username=username)
    require(merchant_name in app.merchant_list, "unknown_merchant")
    menu = app.merchant_list[merchant_name]["menu"]
    total = 0.0
    lines = []
    for item in items:
        product, quantity = item.get("product"), item.get("quantity", 1)
        values = {"product_name": product, "quantity": quantity, "merchant_name": merchant_name}
        require(isinstance(quantity, int) and quantity > 0, "bad_quantity", **values)
        price: Any = next((line["price"] for line in menu if line["product"] == product), None)
        require(price is not None, "unknown_product", **values)
        total += price * quantity
        lines.append({"product": product, "quantity": quantity, "price_per_unit": price})
    balance = app.users[username]["balance"]
    require(total < balance if app.language == "zh" else total <= balance, "too_expensive")
    app.users[username]["balance"] -= total
    app.orders.append(
        {
            "user_name": username,
            "merchant_name": merchant_name,
            "items": lines,
            "total_price": total,
        }
    )
    return success("ordered", merchant_name=merchant_name, total_price=total)


def get_products(app: Food, merchant_name: Any) -> Any:
    require(merchant_name in app.merchant_list, "unknown", merchant_name=merchant_name)
    return app.merchant_list[merchant_name]["menu"]


def view_orders(app: Food, user_name: Any) -> dict[str, Any]:
    orders = [order for order in app.orders if order["user_name"] == user_name]
    require(orders, "none")
    return {"status": True, "orders": orders}


def search_orders(app: Food, keyword: Any) -> dict[str, Any]:
    def fits(order: dict[str, Any]) -> bool:
        if keyword.lower() in order["merchant_name"].lower():
            return True
        if app.language == "zh":
            return any(keyword.lower() in item.lower() for item in order["items"])  # raises: a dict
        return any(keyword.lower() in item["product"].lower() for item in order["items"])

    orders = [order for order in app.orders if fits(order)]
    require(orders, "none")
    return {"status": True, "orders": orders}


FOOD = declare(
    "FoodPlatform",
    Food,
    saved="users logged_in_users orders",
    texts={
        login_food_platform: "logged_in again offline unknown wrong_password",
        view_logged_in_users: "none",
        check_balance: "unknown",
        add_food_delivery_order: (
            "ordered logged_out bad_quantity unknown_product unknown_merchant too_expensive"
        ),
        get_products: "unknown",
        view_orders: "none",
        search_orders: "none",
    },
)
