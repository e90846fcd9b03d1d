"""Finance against its specification in the mini set's README."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ace_ray.benchmarks.acebench.environment.environment import Environment
from tests.benchmarks.acebench.environment.mini_environments import (
    answer,
    initial,
    part,
    refusal,
    start,
    success,
)

LANGUAGES = pytest.mark.parametrize("language", ["en", "zh"])
FI = "Finance"
MONEY_TOOLS = ("deposit_money", "withdraw_money", "transfer_money", "apply_loan", "repay_loan")
READ_TOOLS = ("get_account_balance", "view_transactions", "get_statement")
BAD_AMOUNTS = [0, -1, -0.5, 0.0, True, False, None, "5", "", [5], {"a": 5}, math.inf, -math.inf]


def people(language: str) -> list[str]:
    """Three users with 400, 80, 150 on the account; 0, 300, 0 owed; 1000, 800, 600 of credit."""
    return list(initial(language, FI, "user_accounts"))


def opened(language: str = "en", user: int | None = 0) -> Environment:
    environment = start(FI, language, {})
    if user is not None:
        password = ("pear11", "plum22", "kiwi33")[user]
        answer(environment, "login_account", user_name=people(language)[user], password=password)
    return environment


def move(environment: Environment, tool: str, language: str, amount: Any) -> Any:
    receiver = {"receiver_name": people(language)[1]} if tool == "transfer_money" else {}
    return answer(environment, tool, **receiver, amount=amount)


@LANGUAGES
def test_logging_in(language: str) -> None:
    environment = opened(language, user=None)
    nora, timo, _ = people(language)
    wrong = refusal(language, FI, "login_account", 1)
    for user, password in ((nora, "plum22"), ("?", "pear11"), ([nora], "pear11"), (None, None)):
        assert answer(environment, "login_account", user_name=user, password=password) == wrong
        assert part(environment, FI)["is_logged_in"] is False
    assert answer(environment, "login_account", user_name=nora, password="pear11") == success(
        language, FI, "login_account", 0, user_name=nora
    )
    assert part(environment, FI)["is_logged_in"] is True
    assert answer(environment, "get_account_balance")["balance"] == 400.0
    assert answer(environment, "login_account", user_name=timo, password="?") == wrong
    assert answer(environment, "get_account_balance")["balance"] == 400.0
    answer(environment, "login_account", user_name=timo, password="plum22")
    assert answer(environment, "get_account_balance")["balance"] == 80.0


@LANGUAGES
def test_everything_else_needs_a_login_first_of_all(language: str) -> None:
    environment = opened(language, user=None)
    before = environment.state()
    for tool in READ_TOOLS:
        assert answer(environment, tool) == refusal(language, FI, tool, 0)
    for tool in MONEY_TOOLS:
        arguments = {"receiver_name": "?"} if tool == "transfer_money" else {}
        assert answer(environment, tool, **arguments, amount=-1) == refusal(language, FI, tool, 1)
    assert environment.state() == before


@LANGUAGES
@pytest.mark.parametrize("tool", MONEY_TOOLS)
def test_what_is_no_amount(language: str, tool: str) -> None:
    environment = opened(language)
    before = environment.state()
    number = 3 if tool == "transfer_money" else 2
    for amount in BAD_AMOUNTS:
        assert move(environment, tool, language, amount) == refusal(
            language, FI, tool, number, amount=amount
        )
    assert move(environment, tool, language, math.nan)["status"] is False
    assert environment.state() == before


def accounts(environment: Environment) -> list[tuple[float, float]]:
    """(balance, loan) of each user."""
    users = part(environment, FI)["user_accounts"].values()
    return [(user["balance"], user["loan"]) for user in users]


@LANGUAGES
def test_depositing(language: str) -> None:
    environment = opened(language)
    nora = people(language)[0]
    for amount, balance in ((250, 650.0), (0.5, 650.5)):
        assert move(environment, "deposit_money", language, amount) == success(
            language, FI, "deposit_money", 0, amount=amount, balance=balance
        )
    state = part(environment, FI)
    assert state["deposit_history"][1:] == [
        {"user_name": nora, "amount": 250.0},
        {"user_name": nora, "amount": 0.5},
    ]
    assert type(state["deposit_history"][1]["amount"]) is float
    assert accounts(environment) == [(650.5, 0.0), (80.0, 300.0), (150.0, 0.0)]


@LANGUAGES
def test_withdrawing(language: str) -> None:
    environment = opened(language)
    short = refusal(language, FI, "withdraw_money", 3, amount=400.5)
    assert move(environment, "withdraw_money", language, 400.5) == short
    assert accounts(environment)[0] == (400.0, 0.0)
    assert move(environment, "withdraw_money", language, 400) == success(
        language, FI, "withdraw_money", 0, amount=400, balance=0.0
    )
    assert accounts(environment)[0] == (0.0, 0.0)
    record = {"user_name": people(language)[0], "amount": 400.0}
    assert part(environment, FI)["withdrawal_history"][1:] == [record]


@LANGUAGES
def test_transferring(language: str) -> None:
    environment = opened(language)
    nora, timo, _ = people(language)
    before = environment.state()
    for receiver in ("?", nora, None, [timo], 5):
        for amount in (-1, 1):
            assert answer(
                environment, "transfer_money", receiver_name=receiver, amount=amount
            ) == refusal(language, FI, "transfer_money", 2, receiver_name=receiver)
    assert move(environment, "transfer_money", language, 401) == refusal(
        language, FI, "transfer_money", 4, amount=401
    )
    assert environment.state() == before
    assert move(environment, "transfer_money", language, 100) == success(
        language, FI, "transfer_money", 0, amount=100, receiver_name=timo, balance=300.0
    )
    state = part(environment, FI)
    assert accounts(environment) == [(300.0, 0.0), (180.0, 300.0), (150.0, 0.0)]
    assert state["withdrawal_history"][1:] == [{"user_name": nora, "amount": 100.0, "to": timo}]
    assert state["deposit_history"][1:] == [{"user_name": timo, "amount": 100.0, "from": nora}]


@LANGUAGES
def test_borrowing(language: str) -> None:
    environment = opened(language, user=1)
    timo = people(language)[1]
    assert move(environment, "apply_loan", language, 500.5) == refusal(
        language, FI, "apply_loan", 3
    )
    assert accounts(environment)[1] == (80.0, 300.0)
    assert move(environment, "apply_loan", language, 500) == success(
        language, FI, "apply_loan", 0, amount=500, loan=800.0
    )
    assert accounts(environment)[1] == (580.0, 800.0)
    assert part(environment, FI)["loan_history"][1:] == [
        {"user_name": timo, "kind": "borrow", "amount": 500.0}
    ]
    assert move(environment, "apply_loan", language, 0.5)["status"] is False


@LANGUAGES
def test_repaying(language: str) -> None:
    environment = opened(language, user=1)
    timo = people(language)[1]
    assert move(environment, "repay_loan", language, 301) == refusal(
        language, FI, "repay_loan", 3, loan=300.0
    )
    assert move(environment, "repay_loan", language, 81) == refusal(
        language, FI, "repay_loan", 4, amount=81
    )
    assert move(environment, "repay_loan", language, 80) == success(
        language, FI, "repay_loan", 0, amount=80, loan=220.0
    )
    assert accounts(environment)[1] == (0.0, 220.0)
    assert part(environment, FI)["loan_history"][1:] == [
        {"user_name": timo, "kind": "repay", "amount": 80.0}
    ]


def test_a_loan_can_be_repaid_whole() -> None:
    environment = opened(user=0)
    move(environment, "apply_loan", "en", 300)
    assert move(environment, "repay_loan", "en", 300)["status"] is True
    assert accounts(environment)[0] == (400.0, 0.0)


@LANGUAGES
def test_records_and_sums_are_the_users_own(language: str) -> None:
    environment = opened(language)
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
    sums = {"status": True, "balance": 380.0, "loan": 0.0, "deposited": 10.0, "withdrawn": 50.0}
    assert answer(environment, "get_statement") == sums
    assert answer(environment, "get_account_balance") == {
        "status": True,
        "balance": 380.0,
        "loan": 0.0,
    }
    answer(environment, "login_account", user_name=timo, password="plum22")
    assert answer(environment, "view_transactions") == {
        "status": True,
        "deposits": [
            {"user_name": timo, "amount": 75.0},
            {"user_name": timo, "amount": 30.0, "from": nora},
        ],
        "withdrawals": [],
        "loans": [{"user_name": timo, "kind": "borrow", "amount": 300.0}],
    }
    statement = answer(environment, "get_statement")
    assert (statement["deposited"], statement["withdrawn"]) == (105.0, 0)


@LANGUAGES
def test_the_recorded_state(language: str) -> None:
    state = part(opened(language, user=None), FI)
    assert list(state) == [
        "user_accounts",
        "is_logged_in",
        "deposit_history",
        "withdrawal_history",
        "loan_history",
        "orders",
        "holdings",
    ]
    assert state == {name: initial(language, FI, name) for name in state}


@pytest.mark.parametrize(
    "arguments", [{}, {"amount": 1, "currency": "EUR"}, {"sum": 1}, {"amount": b"1"}]
)
def test_other_arguments_are_errors(arguments: dict[str, Any]) -> None:
    environment = opened()
    before = environment.state()
    assert environment.call("deposit_money", arguments).error == "bad_arguments"
    assert environment.state() == before
