"""FoodPlatform: merchants with menus, and users who order from a balance.

Official quirks: a Chinese order that takes the whole balance is refused; the Chinese search raises
once there is an order from a merchant that does not match; an order may be empty; ``True`` counts
as one piece; the balance of an unknown user is 0.0. Fixed: all of these answer as one would expect.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ace_ray.benchmarks.acebench.environment.app import (
    App,
    InitialState,
    Phone,
    Texts,
    as_official,
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
    fixed: bool

    def affords(self, username: Any, total: float) -> bool:
        balance = self.users[username]["balance"]
        if self.language == "zh" and not self.fixed:
            return bool(total < balance)
        return bool(total <= balance)


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
    if user_name in app.users:
        return app.users[user_name]["balance"]
    if app.fixed:
        return refused(app.texts.of("check_balance", "unknown", {"user_name": user_name}))
    return 0.0


def add_food_delivery_order(
    app: Food, username: Any, merchant_name: Any, items: Any
) -> dict[str, Any]:
    method = "add_food_delivery_order"
    if username not in app.logged_in_users:
        return refused(app.texts.of(method, "logged_out", {"username": username}))
    if merchant_name not in app.merchants:
        return refused(app.texts.of(method, "unknown_merchant"))
    if app.fixed and not (items and all(type(item) is dict for item in items)):
        return refused(app.texts.own("no_items"))
    prices = _prices(app.merchants[merchant_name])
    total = 0.0
    lines = []
    for item in items:
        product, quantity = item.get("product"), item.get("quantity", 1)
        values = {
            "product_name": product,
            "quantity": quantity,
            "merchant_name": merchant_name,
        }
        if not _is_quantity(quantity, app.fixed):
            return refused(app.texts.of(method, "bad_quantity", values))
        line = next((price for name, price in prices if name == product), None)
        if line is None:
            return refused(app.texts.of(method, "unknown_product", values))
        total += line * quantity
        lines.append({"product": product, "quantity": quantity, "price_per_unit": line})
    if not app.affords(username, total):
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
        if app.language == "zh" and not app.fixed:
            return any(keyword.lower() in item.lower() for item in order["items"])  # raises
        return any(keyword.lower() in item["product"].lower() for item in order["items"])

    orders = [order for order in app.orders if fits(order)]
    if not orders:
        return refused(app.texts.of("search_orders", "none"))
    return {"status": True, "orders": orders}


def _prices(merchant: dict[str, Any]) -> list[tuple[str, float]]:
    return [(line["product"], line["price"]) for line in merchant["menu"]]


def _is_quantity(value: Any, fixed: bool) -> bool:
    whole = type(value) is int if fixed else isinstance(value, int)
    return whole and value > 0


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
        fixed=initial.fixed,
    )


_ORDER = {"username": str, "merchant_name": str, "items": list}
TOOLS = declare(
    "FoodPlatform",
    {
        "login_food_platform": (login_food_platform, {"username": str, "password": str}),
        "view_logged_in_users": (view_logged_in_users, {}),
        "check_balance": (check_balance, {"user_name": str}),
        "add_food_delivery_order": (add_food_delivery_order, _ORDER),
        "get_products": (get_products, {"merchant_name": str}),
        "view_orders": (view_orders, {"user_name": str}),
        "search_orders": (search_orders, {"keyword": str}),
    },
)

FOOD = App(
    name="FoodPlatform",
    attributes={
        "users": (dict, ("password", "balance")),
        "merchant_list": (dict, ("menu",)),
        "orders": (list, ()),
    },
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
    official=as_official(TOOLS),
    fixed=TOOLS,
    own={
        "en": {"no_items": "An order needs items, each with a product and a quantity"},
        "zh": {"no_items": "订单需要至少一项，每项包含商品和数量"},
    },
)
