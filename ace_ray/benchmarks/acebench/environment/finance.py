"""The Finance app: a bank that upstream lacks. The README of the mini set specifies it."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from ace_ray.benchmarks.acebench.environment.app import (
    App,
    InitialState,
    Texts,
    declare,
    done,
    refused,
)

Record = dict[str, Any]


@dataclass
class Finance:
    user_accounts: dict[str, Record]
    is_logged_in: bool
    current_user: str | None
    deposit_history: list[Record]
    withdrawal_history: list[Record]
    loan_history: list[Record]
    orders: list[Record]
    holdings: dict[str, Any]
    texts: Texts

    def refuse(self, method: str, name: str, **values: Any) -> Record:
        return refused(self.texts.of(method, name, values))

    @property
    def account(self) -> Record | None:
        """The account of the logged-in user; None if no user is logged in."""
        if not self.is_logged_in or self.current_user is None:
            return None
        return self.user_accounts[self.current_user]


def login_account(app: Finance, user_name: Any, password: Any) -> Record:
    account = app.user_accounts.get(user_name) if isinstance(user_name, str) else None
    if account is None or account["password"] != password:
        return app.refuse("login_account", "mismatch")
    app.is_logged_in, app.current_user = True, user_name
    return done(app.texts.of("login_account", "logged_in", {"user_name": user_name}))


def get_account_balance(app: Finance) -> Record:
    if (account := app.account) is None:
        return app.refuse("get_account_balance", "logged_out")
    return {"status": True, "balance": account["balance"], "loan": account["loan"]}


def deposit_money(app: Finance, amount: Any) -> Record:
    method = "deposit_money"
    if (account := app.account) is None:
        return app.refuse(method, "logged_out")
    if not _is_amount(amount):
        return app.refuse(method, "bad_amount", amount=amount)
    account["balance"] += float(amount)
    app.deposit_history.append({"user_name": app.current_user, "amount": float(amount)})
    values = {"amount": amount, "balance": account["balance"]}
    return done(app.texts.of(method, "done", values))


def withdraw_money(app: Finance, amount: Any) -> Record:
    method = "withdraw_money"
    if (account := app.account) is None:
        return app.refuse(method, "logged_out")
    if not _is_amount(amount):
        return app.refuse(method, "bad_amount", amount=amount)
    if amount > account["balance"]:
        return app.refuse(method, "short", amount=amount)
    account["balance"] -= float(amount)
    app.withdrawal_history.append({"user_name": app.current_user, "amount": float(amount)})
    values = {"amount": amount, "balance": account["balance"]}
    return done(app.texts.of(method, "done", values))


def transfer_money(app: Finance, receiver_name: Any, amount: Any) -> Record:
    method, sender = "transfer_money", app.current_user
    if (account := app.account) is None:
        return app.refuse(method, "logged_out")
    is_known = isinstance(receiver_name, str) and receiver_name in app.user_accounts
    if not is_known or receiver_name == sender:
        return app.refuse(method, "bad_receiver", receiver_name=receiver_name)
    if not _is_amount(amount):
        return app.refuse(method, "bad_amount", amount=amount)
    if amount > account["balance"]:
        return app.refuse(method, "short", amount=amount)
    moved = float(amount)
    account["balance"] -= moved
    app.user_accounts[receiver_name]["balance"] += moved
    app.withdrawal_history.append({"user_name": sender, "amount": moved, "to": receiver_name})
    app.deposit_history.append({"user_name": receiver_name, "amount": moved, "from": sender})
    values = {"amount": amount, "receiver_name": receiver_name, "balance": account["balance"]}
    return done(app.texts.of(method, "done", values))


def apply_loan(app: Finance, amount: Any) -> Record:
    method = "apply_loan"
    if (account := app.account) is None:
        return app.refuse(method, "logged_out")
    if not _is_amount(amount):
        return app.refuse(method, "bad_amount", amount=amount)
    if account["loan"] + amount > account["credit_limit"]:
        return app.refuse(method, "over_limit")
    return _lend(app, account, method, "borrow", amount, float(amount))


def repay_loan(app: Finance, amount: Any) -> Record:
    method = "repay_loan"
    if (account := app.account) is None:
        return app.refuse(method, "logged_out")
    if not _is_amount(amount):
        return app.refuse(method, "bad_amount", amount=amount)
    if amount > account["loan"]:
        return app.refuse(method, "over_loan", loan=account["loan"])
    if amount > account["balance"]:
        return app.refuse(method, "short", amount=amount)
    return _lend(app, account, method, "repay", amount, -float(amount))


def _lend(
    app: Finance, account: Record, method: str, kind: str, amount: Any, change: float
) -> Record:
    account["loan"] += change
    account["balance"] += change
    app.loan_history.append({"user_name": app.current_user, "kind": kind, "amount": abs(change)})
    return done(app.texts.of(method, "done", {"amount": amount, "loan": account["loan"]}))


def view_transactions(app: Finance) -> Record:
    if app.account is None:
        return app.refuse("view_transactions", "logged_out")
    return {
        "status": True,
        "deposits": _own(app, app.deposit_history),
        "withdrawals": _own(app, app.withdrawal_history),
        "loans": _own(app, app.loan_history),
    }


def get_statement(app: Finance) -> Record:
    if (account := app.account) is None:
        return app.refuse("get_statement", "logged_out")
    return {
        "status": True,
        "balance": account["balance"],
        "loan": account["loan"],
        "deposited": _sum(_own(app, app.deposit_history)),
        "withdrawn": _sum(_own(app, app.withdrawal_history)),
    }


def _own(app: Finance, records: list[Record]) -> list[Record]:
    return [record for record in records if record["user_name"] == app.current_user]


def _sum(records: list[Record]) -> float:
    return sum((record["amount"] for record in records), 0.0)


def _is_amount(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and value > 0


def _open(initial: InitialState) -> Finance:
    names = [field.name for field in fields(Finance) if field.name != "texts"]
    return Finance(**{name: initial.state[name] for name in names}, texts=initial.texts)


FINANCE = App(
    name="Finance",
    texts={
        "login_account": ("logged_in", "mismatch"),
        "get_account_balance": ("logged_out",),
        "deposit_money": ("done", "logged_out", "bad_amount"),
        "withdraw_money": ("done", "logged_out", "bad_amount", "short"),
        "transfer_money": ("done", "logged_out", "bad_receiver", "bad_amount", "short"),
        "apply_loan": ("done", "logged_out", "bad_amount", "over_limit"),
        "repay_loan": ("done", "logged_out", "bad_amount", "over_loan", "short"),
        "view_transactions": ("logged_out",),
        "get_statement": ("logged_out",),
    },
    saved=(
        "user_accounts",
        "is_logged_in",
        "deposit_history",
        "withdrawal_history",
        "loan_history",
        "orders",
        "holdings",
    ),
    open=_open,
    tools=declare(
        "Finance",
        login_account,
        get_account_balance,
        deposit_money,
        withdraw_money,
        transfer_money,
        apply_loan,
        repay_loan,
        view_transactions,
        get_statement,
    ),
)
