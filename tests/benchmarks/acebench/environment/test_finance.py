"""Finance against its specification in the mini set's README."""

from __future__ import annotations

import math
from typing import Any

from tests.benchmarks.acebench.environment.mini_environments import Sandbox, mini

MONEY_TOOLS = ("deposit_money", "withdraw_money", "transfer_money", "apply_loan", "repay_loan")
NORA = {"user_name": "Nora", "password": "pear11"}
TIMO = {"user_name": "Timo", "password": "plum22"}


def opened(user: dict[str, str]) -> Sandbox:
    """Open the bank. Nora, Timo and Yara have 400, 80, 150 and owe 0, 300, 0. Timo may owe 800."""
    bank = Sandbox("Finance", config={})
    bank("login_account", **user)
    return bank


def accounts(bank: Sandbox) -> list[tuple[float, float]]:
    """Return (balance, loan) of each user."""
    users = bank.state["user_accounts"].values()
    return [(user["balance"], user["loan"]) for user in users]


def test_logging_in() -> None:
    bank = Sandbox("Finance", config={})
    login = "login_account"
    for wrong in ({**NORA, "password": "plum22"}, {**NORA, "user_name": "?"}):
        assert bank(login, **wrong) == bank.no(login, 1)
        assert bank.state["is_logged_in"] is False
    assert bank(login, user_name=["Nora"], password="pear11") == bank.no(login, 1)
    assert bank(login, **NORA) == bank.yes(login, 0, user_name="Nora")
    assert bank.state["is_logged_in"] is True
    assert bank(login, **{**TIMO, "password": "?"}) == bank.no(login, 1)
    assert bank("get_account_balance")["balance"] == 400.0
    bank(login, **TIMO)
    assert bank("get_account_balance")["balance"] == 80.0


def test_a_login_and_an_amount_of_money_are_needed() -> None:
    bank = Sandbox("Finance", config={})
    before = dict(mini()["multi_turn"]["en"]["Finance"]["state"])
    del before["current_user"]
    for tool in ("get_account_balance", "view_transactions", "get_statement"):
        assert bank(tool) == bank.no(tool, 0)
    for tool in MONEY_TOOLS:
        receiver = {"receiver_name": "?"} if tool == "transfer_money" else {}
        assert bank(tool, **receiver, amount=-1) == bank.no(tool, 1)
    assert bank.state == before
    bank("login_account", **NORA)
    for tool in MONEY_TOOLS:
        receiver = {"receiver_name": "Timo"} if tool == "transfer_money" else {}
        number = 3 if receiver else 2
        for amount in (0, -0.5, True, None, "5", math.inf):
            assert bank(tool, **receiver, amount=amount) == bank.no(tool, number, amount=amount)
        assert bank(tool, **receiver, amount=math.nan)["status"] is False
    assert bank.state == {**before, "is_logged_in": True}
    wrong: list[dict[str, Any]] = [{}, {"amount": 1, "currency": "EUR"}, {"amount": b"1"}]
    for arguments in wrong:
        assert bank.environment.call("deposit_money", arguments).error == "bad_arguments"


def test_paying_in_and_out() -> None:
    bank = opened(NORA)
    pay_in, pay_out = "deposit_money", "withdraw_money"
    for amount, balance in ((250, 650.0), (0.5, 650.5)):
        assert bank(pay_in, amount=amount) == bank.yes(pay_in, 0, amount=amount, balance=balance)
    assert bank(pay_out, amount=651) == bank.no(pay_out, 3, amount=651)
    assert accounts(bank) == [(650.5, 0.0), (80.0, 300.0), (150.0, 0.0)]
    assert bank(pay_out, amount=650.5) == bank.yes(pay_out, 0, amount=650.5, balance=0.0)
    assert accounts(bank)[0] == (0.0, 0.0)
    deposits = [{"user_name": "Nora", "amount": amount} for amount in (250.0, 0.5)]
    assert bank.state["deposit_history"][1:] == deposits
    assert type(bank.state["deposit_history"][1]["amount"]) is float
    assert bank.state["withdrawal_history"][1:] == [{"user_name": "Nora", "amount": 650.5}]


def test_transferring() -> None:
    bank, tool = opened(NORA), "transfer_money"
    before = bank.state
    for receiver in ("?", "Nora", ["Timo"]):
        refused = bank.no(tool, 2, receiver_name=receiver)
        assert bank(tool, receiver_name=receiver, amount=-1) == refused
    assert bank(tool, receiver_name="Timo", amount=401) == bank.no(tool, 4, amount=401)
    assert bank.state == before
    done = bank.yes(tool, 0, amount=400, receiver_name="Timo", balance=0.0)
    assert bank(tool, receiver_name="Timo", amount=400) == done
    assert accounts(bank) == [(0.0, 0.0), (480.0, 300.0), (150.0, 0.0)]
    paid = {"user_name": "Nora", "amount": 400.0, "to": "Timo"}
    assert bank.state["withdrawal_history"][1:] == [paid]
    received = {"user_name": "Timo", "amount": 400.0, "from": "Nora"}
    assert bank.state["deposit_history"][1:] == [received]


def test_borrowing_and_repaying() -> None:
    bank = opened(TIMO)
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
    records = [{"user_name": "Timo", "kind": kind, "amount": amount} for kind, amount in moves]
    assert bank.state["loan_history"][1:] == records


def test_records_and_sums_are_the_users_own() -> None:
    bank = opened(NORA)
    bank("deposit_money", amount=10)
    bank("transfer_money", receiver_name="Timo", amount=30)
    paid = [{"user_name": "Nora", "amount": 20.0}]
    paid += [{"user_name": "Nora", "amount": 30.0, "to": "Timo"}]
    deposits = [{"user_name": "Nora", "amount": 10.0}]
    found = {"status": True, "deposits": deposits, "withdrawals": paid, "loans": []}
    assert bank("view_transactions") == found
    sums = {"status": True, "balance": 380.0, "loan": 0.0}
    assert bank("get_account_balance") == sums
    assert bank("get_statement") == {**sums, "deposited": 10.0, "withdrawn": 50.0}
    bank("login_account", **TIMO)
    found = bank("view_transactions")
    assert [len(found[kind]) for kind in ("deposits", "withdrawals", "loans")] == [2, 0, 1]
    statement = bank("get_statement")
    assert (statement["deposited"], statement["withdrawn"]) == (105.0, 0)
