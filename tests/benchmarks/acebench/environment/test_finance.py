"""Finance against its specification in the mini set's README."""

from __future__ import annotations

import math
from typing import Any

from tests.benchmarks.acebench.environment.mini_environments import (
    LANGUAGES,
    Sandbox,
    initial,
    mini,
)

FI = "Finance"
MONEY_TOOLS = ("deposit_money", "withdraw_money", "transfer_money", "apply_loan", "repay_loan")
READ_TOOLS = ("get_account_balance", "view_transactions", "get_statement")
BAD_AMOUNTS = [0, -0.5, True, None, "5", [5], math.inf, -math.inf]


def people(language: str) -> list[str]:
    """Return three users with 400, 80, 150 on the account; 0, 300, 0 owed; 1000, 800, 600 of
    credit."""
    return list(initial(language, FI, "user_accounts"))


def opened(language: str, user: int) -> Sandbox:
    bank = Sandbox(FI, language=language, config={})
    log_in(bank, language, user)
    return bank


def log_in(bank: Sandbox, language: str, user: int) -> None:
    name, password = people(language)[user], ("pear11", "plum22")[user]
    bank("login_account", user_name=name, password=password)


def accounts(bank: Sandbox) -> list[tuple[float, float]]:
    """Return (balance, loan) of each user."""
    users = bank.state["user_accounts"].values()
    return [(user["balance"], user["loan"]) for user in users]


@LANGUAGES
def test_logging_in(language: str) -> None:
    bank = Sandbox(FI, language=language, config={})
    nora, timo, _ = people(language)
    login = "login_account"
    for user, password in ((nora, "plum22"), ("?", "pear11"), ([nora], "pear11")):
        assert bank(login, user_name=user, password=password) == bank.no(login, 1)
        assert bank.state["is_logged_in"] is False
    assert bank(login, user_name=nora, password="pear11") == bank.yes(login, 0, user_name=nora)
    assert bank.state["is_logged_in"] is True
    assert bank(login, user_name=timo, password="?") == bank.no(login, 1)
    assert bank("get_account_balance")["balance"] == 400.0
    log_in(bank, language, 1)
    assert bank("get_account_balance")["balance"] == 80.0


@LANGUAGES
def test_a_login_and_an_amount_of_money_are_needed(language: str) -> None:
    bank = Sandbox(FI, language=language, config={})
    before = dict(mini()["multi_turn"][language][FI]["state"])
    del before["current_user"]
    for tool in READ_TOOLS:
        assert bank(tool) == bank.no(tool, 0)
    for tool in MONEY_TOOLS:
        receiver = {"receiver_name": "?"} if tool == "transfer_money" else {}
        assert bank(tool, **receiver, amount=-1) == bank.no(tool, 1)
    assert bank.state == before
    log_in(bank, language, 0)
    for tool in MONEY_TOOLS:
        receiver = {"receiver_name": people(language)[1]} if tool == "transfer_money" else {}
        number = 3 if receiver else 2
        for amount in BAD_AMOUNTS:
            assert bank(tool, **receiver, amount=amount) == bank.no(tool, number, amount=amount)
        assert bank(tool, **receiver, amount=math.nan)["status"] is False
    assert bank.state == {**before, "is_logged_in": True}


@LANGUAGES
def test_paying_in_and_out(language: str) -> None:
    bank = opened(language, 0)
    nora = people(language)[0]
    pay_in, pay_out = "deposit_money", "withdraw_money"
    for amount, balance in ((250, 650.0), (0.5, 650.5)):
        assert bank(pay_in, amount=amount) == bank.yes(pay_in, 0, amount=amount, balance=balance)
    assert bank(pay_out, amount=651) == bank.no(pay_out, 3, amount=651)
    assert accounts(bank) == [(650.5, 0.0), (80.0, 300.0), (150.0, 0.0)]
    assert bank(pay_out, amount=650.5) == bank.yes(pay_out, 0, amount=650.5, balance=0.0)
    assert accounts(bank)[0] == (0.0, 0.0)
    deposits = [{"user_name": nora, "amount": amount} for amount in (250.0, 0.5)]
    assert bank.state["deposit_history"][1:] == deposits
    assert type(bank.state["deposit_history"][1]["amount"]) is float
    assert bank.state["withdrawal_history"][1:] == [{"user_name": nora, "amount": 650.5}]


@LANGUAGES
def test_transferring(language: str) -> None:
    bank = opened(language, 0)
    nora, timo, _ = people(language)
    tool = "transfer_money"
    before = bank.state
    for receiver in ("?", nora, [timo]):
        for amount in (-1, 1):
            refused = bank.no(tool, 2, receiver_name=receiver)
            assert bank(tool, receiver_name=receiver, amount=amount) == refused
    assert bank(tool, receiver_name=timo, amount=401) == bank.no(tool, 4, amount=401)
    assert bank.state == before
    done = bank.yes(tool, 0, amount=400, receiver_name=timo, balance=0.0)
    assert bank(tool, receiver_name=timo, amount=400) == done
    assert accounts(bank) == [(0.0, 0.0), (480.0, 300.0), (150.0, 0.0)]
    paid = {"user_name": nora, "amount": 400.0, "to": timo}
    assert bank.state["withdrawal_history"][1:] == [paid]
    received = {"user_name": timo, "amount": 400.0, "from": nora}
    assert bank.state["deposit_history"][1:] == [received]


@LANGUAGES
def test_borrowing_and_repaying(language: str) -> None:
    bank = opened(language, 1)
    timo = people(language)[1]
    borrow, repay = "apply_loan", "repay_loan"
    assert bank(repay, amount=301) == bank.no(repay, 3, loan=300.0)
    assert bank(repay, amount=81) == bank.no(repay, 4, amount=81)
    bank("deposit_money", amount=220)
    assert bank(repay, amount=300) == bank.yes(repay, 0, amount=300, loan=0.0)
    assert bank(borrow, amount=800.5) == bank.no(borrow, 3)
    assert accounts(bank)[1] == (0.0, 0.0)
    assert bank(borrow, amount=300) == bank.yes(borrow, 0, amount=300, loan=300.0)
    assert bank(borrow, amount=500) == bank.yes(borrow, 0, amount=500, loan=800.0)
    assert accounts(bank)[1] == (800.0, 800.0)
    moves = [("repay", 300.0), ("borrow", 300.0), ("borrow", 500.0)]
    records = [{"user_name": timo, "kind": kind, "amount": amount} for kind, amount in moves]
    assert bank.state["loan_history"][1:] == records


@LANGUAGES
def test_records_and_sums_are_the_users_own(language: str) -> None:
    bank = opened(language, 0)
    nora, timo, _ = people(language)
    bank("deposit_money", amount=10)
    bank("transfer_money", receiver_name=timo, amount=30)
    assert bank("view_transactions") == {
        "status": True,
        "deposits": [{"user_name": nora, "amount": 10.0}],
        "withdrawals": [
            {"user_name": nora, "amount": 20.0},
            {"user_name": nora, "amount": 30.0, "to": timo},
        ],
        "loans": [],
    }
    sums = {"status": True, "balance": 380.0, "loan": 0.0}
    assert bank("get_account_balance") == sums
    assert bank("get_statement") == {**sums, "deposited": 10.0, "withdrawn": 50.0}
    log_in(bank, language, 1)
    found = bank("view_transactions")
    assert [len(found[kind]) for kind in ("deposits", "withdrawals", "loans")] == [2, 0, 1]
    statement = bank("get_statement")
    assert (statement["deposited"], statement["withdrawn"]) == (105.0, 0)


def test_other_arguments_are_errors() -> None:
    bank = opened("en", 0)
    before = bank.state
    wrong: list[dict[str, Any]] = [{}, {"amount": 1, "currency": "EUR"}, {"amount": b"1"}]
    for arguments in wrong:
        assert bank.environment.call("deposit_money", arguments).error == "bad_arguments"
    assert bank.state == before
