"""Finance against its specification in the mini set's README."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest

from ace_ray.benchmarks.acebench.environment.environment import Environment
from tests.benchmarks.acebench.environment.mini_environments import (
    LANGUAGES,
    answer,
    initial,
    mini,
    part,
    refusal,
    start,
    success,
)

FI = "Finance"
MONEY_TOOLS = ("deposit_money", "withdraw_money", "transfer_money", "apply_loan", "repay_loan")
READ_TOOLS = ("get_account_balance", "view_transactions", "get_statement")
BAD_AMOUNTS = [0, -0.5, True, None, "5", [5], math.inf, -math.inf]


def people(language: str) -> list[str]:
    """Return three users with 400, 80, 150 on the account; 0, 300, 0 owed; 1000, 800, 600 of
    credit."""
    return list(initial(language, FI, "user_accounts"))


def opened(language: str, user: int) -> Environment:
    environment = start(FI, language, {})
    log_in(environment, language, user)
    return environment


def log_in(environment: Environment, language: str, user: int) -> None:
    password = ("pear11", "plum22", "kiwi33")[user]
    answer(environment, "login_account", user_name=people(language)[user], password=password)


def move(environment: Environment, tool: str, language: str, amount: Any) -> Any:
    receiver = {"receiver_name": people(language)[1]} if tool == "transfer_money" else {}
    return answer(environment, tool, **receiver, amount=amount)


def accounts(environment: Environment) -> list[tuple[float, float]]:
    """Return (balance, loan) of each user."""
    users = part(environment, FI)["user_accounts"].values()
    return [(user["balance"], user["loan"]) for user in users]


@LANGUAGES
def test_logging_in(language: str) -> None:
    environment = start(FI, language, {})
    nora, timo, _ = people(language)
    wrong = refusal(language, FI, "login_account", 1)
    for user, password in ((nora, "plum22"), ("?", "pear11"), ([nora], "pear11")):
        assert answer(environment, "login_account", user_name=user, password=password) == wrong
        assert part(environment, FI)["is_logged_in"] is False
    assert answer(environment, "login_account", user_name=nora, password="pear11") == success(
        language, FI, "login_account", 0, user_name=nora
    )
    assert part(environment, FI)["is_logged_in"] is True
    assert answer(environment, "login_account", user_name=timo, password="?") == wrong
    assert answer(environment, "get_account_balance")["balance"] == 400.0
    log_in(environment, language, 1)
    assert answer(environment, "get_account_balance")["balance"] == 80.0


@LANGUAGES
def test_other_tools_need_a_login_first_of_all(language: str) -> None:
    environment = start(FI, language, {})
    recorded = dict(mini()["multi_turn"][language][FI]["state"])
    del recorded["current_user"]
    for tool in READ_TOOLS:
        assert answer(environment, tool) == refusal(language, FI, tool, 0)
    for tool in MONEY_TOOLS:
        arguments = {"receiver_name": "?"} if tool == "transfer_money" else {}
        assert answer(environment, tool, **arguments, amount=-1) == refusal(language, FI, tool, 1)
    assert environment.state() == [{FI: recorded}]


@LANGUAGES
@pytest.mark.parametrize("tool", MONEY_TOOLS)
def test_bad_amounts_are_refused(language: str, tool: str) -> None:
    environment = opened(language, 0)
    before = environment.state()
    number = 3 if tool == "transfer_money" else 2
    for amount in BAD_AMOUNTS:
        refused = move(environment, tool, language, amount)
        assert refused == refusal(language, FI, tool, number, amount=amount)
    assert move(environment, tool, language, math.nan)["status"] is False
    assert environment.state() == before


@LANGUAGES
def test_paying_in_and_out(language: str) -> None:
    environment = opened(language, 0)
    nora = people(language)[0]
    yes = partial(success, language, FI)
    for amount, balance in ((250, 650.0), (0.5, 650.5)):
        done = yes("deposit_money", 0, amount=amount, balance=balance)
        assert move(environment, "deposit_money", language, amount) == done
    short = refusal(language, FI, "withdraw_money", 3, amount=651)
    assert move(environment, "withdraw_money", language, 651) == short
    assert accounts(environment) == [(650.5, 0.0), (80.0, 300.0), (150.0, 0.0)]
    done = yes("withdraw_money", 0, amount=650.5, balance=0.0)
    assert move(environment, "withdraw_money", language, 650.5) == done
    assert accounts(environment)[0] == (0.0, 0.0)
    state = part(environment, FI)
    deposits = [{"user_name": nora, "amount": amount} for amount in (250.0, 0.5)]
    assert state["deposit_history"][1:] == deposits
    assert type(state["deposit_history"][1]["amount"]) is float
    assert state["withdrawal_history"][1:] == [{"user_name": nora, "amount": 650.5}]


@LANGUAGES
def test_transferring(language: str) -> None:
    environment = opened(language, 0)
    nora, timo, _ = people(language)
    tool = "transfer_money"
    before = environment.state()
    for receiver in ("?", nora, [timo]):
        for amount in (-1, 1):
            refused = answer(environment, tool, receiver_name=receiver, amount=amount)
            assert refused == refusal(language, FI, tool, 2, receiver_name=receiver)
    short = refusal(language, FI, tool, 4, amount=401)
    assert move(environment, tool, language, 401) == short
    assert environment.state() == before
    done = success(language, FI, tool, 0, amount=100, receiver_name=timo, balance=300.0)
    assert move(environment, tool, language, 100) == done
    state = part(environment, FI)
    assert accounts(environment) == [(300.0, 0.0), (180.0, 300.0), (150.0, 0.0)]
    assert state["withdrawal_history"][1:] == [{"user_name": nora, "amount": 100.0, "to": timo}]
    assert state["deposit_history"][1:] == [{"user_name": timo, "amount": 100.0, "from": nora}]
    move(environment, tool, language, 300)
    assert accounts(environment)[0] == (0.0, 0.0)


@LANGUAGES
def test_borrowing_and_repaying(language: str) -> None:
    environment = opened(language, 1)
    timo = people(language)[1]
    no, yes = partial(refusal, language, FI), partial(success, language, FI)
    borrow = partial(move, environment, "apply_loan", language)
    repay = partial(move, environment, "repay_loan", language)
    assert repay(301) == no("repay_loan", 3, loan=300.0)
    assert repay(81) == no("repay_loan", 4, amount=81)
    assert repay(80) == yes("repay_loan", 0, amount=80, loan=220.0)
    assert borrow(580.5) == no("apply_loan", 3)
    assert accounts(environment)[1] == (0.0, 220.0)
    assert borrow(580) == yes("apply_loan", 0, amount=580, loan=800.0)
    assert accounts(environment)[1] == (580.0, 800.0)
    assert borrow(0.5)["status"] is False
    assert part(environment, FI)["loan_history"][1:] == [
        {"user_name": timo, "kind": "repay", "amount": 80.0},
        {"user_name": timo, "kind": "borrow", "amount": 580.0},
    ]


def test_a_loan_can_be_repaid_whole() -> None:
    environment = opened("en", 0)
    move(environment, "apply_loan", "en", 300)
    assert move(environment, "repay_loan", "en", 300)["status"] is True
    assert accounts(environment)[0] == (400.0, 0.0)


@LANGUAGES
def test_records_and_sums_are_the_users_own(language: str) -> None:
    environment = opened(language, 0)
    nora, timo, _ = people(language)
    move(environment, "deposit_money", language, 10)
    move(environment, "transfer_money", language, 30)
    assert answer(environment, "view_transactions") == {
        "status": True,
        "deposits": [{"user_name": nora, "amount": 10.0}],
        "withdrawals": [
            {"user_name": nora, "amount": 20.0},
            {"user_name": nora, "amount": 30.0, "to": timo},
        ],
        "loans": [],
    }
    sums = {"status": True, "balance": 380.0, "loan": 0.0}
    assert answer(environment, "get_account_balance") == sums
    statement = {**sums, "deposited": 10.0, "withdrawn": 50.0}
    assert answer(environment, "get_statement") == statement
    log_in(environment, language, 1)
    found = answer(environment, "view_transactions")
    assert [len(found[kind]) for kind in ("deposits", "withdrawals", "loans")] == [2, 0, 1]
    statement = answer(environment, "get_statement")
    assert (statement["deposited"], statement["withdrawn"]) == (105.0, 0)


def test_other_arguments_are_errors() -> None:
    environment = opened("en", 0)
    before = environment.state()
    wrong: list[dict[str, Any]] = [{}, {"amount": 1, "currency": "EUR"}, {"amount": b"1"}]
    for arguments in wrong:
        assert environment.call("deposit_money", arguments).error == "bad_arguments"
    assert environment.state() == before
