"""The Finance app: a bank that upstream lacks. The README of the mini set specifies it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ace_ray.benchmarks.acebench.environment.app import Reply, Texts, declare, require, success

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

    @property
    def account(self) -> Record:
        """The account of the logged-in user. Raises a refusal if no user is logged in."""
        require(self.is_logged_in and self.current_user is not None, "logged_out")
        return self.user_accounts[str(self.current_user)]


def login_account(app: Finance, user_name: Any, password: Any) -> Reply:
    account = app.user_accounts.get(user_name) if isinstance(user_name, str) else None
    require(account is not None and account["password"] == password, "mismatch")
    app.is_logged_in, app.current_user = True, user_name
    return success("logged_in", user_name=user_name)


def get_account_balance(app: Finance) -> Record:
    account = app.account
    return {"status": True, "balance": account["balance"], "loan": account["loan"]}


def deposit_money(app: Finance, amount: Any) -> Reply:
    account = app.account
    require(_is_amount(amount), "bad_amount", amount=amount)
    account["balance"] += float(amount)
    app.deposit_history.append({"user_name": app.current_user, "amount": float(amount)})
    return success("done", amount=amount, balance=account["balance"])


def withdraw_money(app: Finance, amount: Any) -> Reply:
    account = app.account
    require(_is_amount(amount), "bad_amount", amount=amount)
    require(amount <= account["balance"], "short", amount=amount)
    account["balance"] -= float(amount)
    app.withdrawal_history.append({"user_name": app.current_user, "amount": float(amount)})
    return success("done", amount=amount, balance=account["balance"])


def transfer_money(app: Finance, receiver_name: Any, amount: Any) -> Reply:
    account, sender = app.account, app.current_user
    is_known = isinstance(receiver_name, str) and receiver_name in app.user_accounts
    require(is_known and receiver_name != sender, "bad_receiver", receiver_name=receiver_name)
    require(_is_amount(amount), "bad_amount", amount=amount)
    require(amount <= account["balance"], "short", amount=amount)
    moved = float(amount)
    account["balance"] -= moved
    app.user_accounts[receiver_name]["balance"] += moved
    app.withdrawal_history.append({"user_name": sender, "amount": moved, "to": receiver_name})
    app.deposit_history.append({"user_name": receiver_name, "amount": moved, "from": sender})
    return success("done", amount=amount, receiver_name=receiver_name, balance=account["balance"])


def apply_loan(app: Finance, amount: Any) -> Reply:
    account = app.account
    require(_is_amount(amount), "bad_amount", amount=amount)
    require(account["loan"] + amount <= account["credit_limit"], "over_limit")
    return _change_loan(app, account, "borrow", amount, float(amount))


def repay_loan(app: Finance, amount: Any) -> Reply:
    account = app.account
    require(_is_amount(amount), "bad_amount", amount=amount)
    require(amount <= account["loan"], "over_loan", loan=account["loan"])
    require(amount <= account["balance"], "short", amount=amount)
    return _change_loan(app, account, "repay", amount, -float(amount))


def _change_loan(app: Finance, account: Record, kind: str, amount: Any, change: float) -> Reply:
    account["loan"] += change
    account["balance"] += change
    app.loan_history.append({"user_name": app.current_user, "kind": kind, "amount": abs(change)})
    return success("done", amount=amount, loan=account["loan"])


def view_transactions(app: Finance) -> Record:
    require(app.account, "logged_out")
    return {
        "status": True,
        "deposits": _own_records(app, app.deposit_history),
        "withdrawals": _own_records(app, app.withdrawal_history),
        "loans": _own_records(app, app.loan_history),
    }


def get_statement(app: Finance) -> Record:
    account = app.account
    return {
        "status": True,
        "balance": account["balance"],
        "loan": account["loan"],
        "deposited": _sum(_own_records(app, app.deposit_history)),
        "withdrawn": _sum(_own_records(app, app.withdrawal_history)),
    }


def _own_records(app: Finance, records: list[Record]) -> list[Record]:
    return [record for record in records if record["user_name"] == app.current_user]


def _sum(records: list[Record]) -> float:
    return sum((record["amount"] for record in records), 0.0)


def _is_amount(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and value > 0


FINANCE = declare(
    "Finance",
    Finance,
    saved=(
        "user_accounts is_logged_in deposit_history withdrawal_history loan_history orders holdings"
    ),
    texts={
        login_account: "logged_in mismatch",
        get_account_balance: "logged_out",
        deposit_money: "done logged_out bad_amount",
        withdraw_money: "done logged_out bad_amount short",
        transfer_money: "done logged_out bad_receiver bad_amount short",
        apply_loan: "done logged_out bad_amount over_limit",
        repay_loan: "done logged_out bad_amount over_loan short",
        view_transactions: "logged_out",
        get_statement: "logged_out",
    },
)
