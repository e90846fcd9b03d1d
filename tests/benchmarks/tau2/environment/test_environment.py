"""Databases that episodes share, and tools of the user's own copy, in a limited process."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from ace_ray.benchmarks.tau2.environment.limited import Attempt, TauEnvironment, schemas
from ace_ray.benchmarks.tau2.environment.sources import (
    KNOWN_SHA256,
    ToolSources,
    dict_hash,
    tool_sources,
    updated,
)
from ace_ray.benchmarks.tau2.upstream_package import UpstreamPackage
from ace_ray.errors import UserError
from tests.sandbox.limited_processes import limited_processes

BOOKED = "EHGLP3"
Call = tuple[str, str, Mapping[str, Any]]
"""Side, tool, arguments."""


@pytest.fixture(scope="module")
def airline(package: UpstreamPackage) -> ToolSources:
    return tool_sources(package, "airline")


@pytest.fixture(scope="module")
def telecom(package: UpstreamPackage) -> ToolSources:
    return tool_sources(package, "telecom")


def call(
    sources: ToolSources,
    *calls: Call,
    solo: bool = False,
    initial: Mapping[str, Any] | None = None,
) -> list[tuple[str, str]]:
    environment = TauEnvironment(sources, solo=solo, initial_state=initial)
    return [told(environment, *one) for one in calls]


def told(
    environment: TauEnvironment, side: str, name: str, arguments: Mapping[str, Any]
) -> tuple[str, str]:
    given = {"requestor": side, "arguments": arguments, "last": True}
    observation = environment.call(name, given)
    return observation.value, observation.error


def test_known_sources_are_the_published_ones(package: UpstreamPackage) -> None:
    for domain in KNOWN_SHA256:
        assert tool_sources(package, domain).known


def test_tools_and_their_schemas(airline: ToolSources, telecom: ToolSources) -> None:
    (tools,) = schemas(airline).values()
    assert len(tools) == 14
    by_name = {tool["function"]["name"]: tool["function"] for tool in tools}
    details = by_name["get_user_details"]
    assert details["description"].startswith("Get the details of a user")
    user_id = details["parameters"]["properties"]["user_id"]
    assert user_id == {
        "description": "The user ID, such as 'sara_doe_496'.",
        "title": "User Id",
        "type": "string",
    }
    assert {side: len(one) for side, one in schemas(telecom).items()} == {
        "assistant": 13,
        "user": 30,
    }


def test_errors_have_upstreams_words(airline: ToolSources) -> None:
    answers = call(
        airline,
        ("assistant", "nothing", {}),
        ("assistant", "get_user_details", {"user_id": "nobody"}),
        ("assistant", "get_user_details", {}),
        ("assistant", "get_user_details", {"user_id": "x", "more": 1}),
        ("user", "get_user_details", {"user_id": "x"}),
        ("assistant", "calculate", {"expression": "2 * 3.456"}),
        ("assistant", "calculate", {"expression": "__import__('os')"}),
        ("assistant", "calculate", {"expression": "9**9**9"}),
        ("assistant", "_get_user", {"user_id": "mia_li_3668"}),
        ("assistant", "__init__", {}),
        ("assistant", "get_user_details", {"self": 1, "requestor": "user"}),
        ("assistant", "nothing", {"tool_name": "x", "self": 1}),
        ("assistant", "calculate", {"expression": ["1", "+"]}),
        ("assistant", "calculate", {"expression": "1(1/0)"}),
    )
    named = "Environment.make_tool_call() got multiple values for"
    assert answers == [
        ("Error: Tool 'nothing' not found.", "failed"),
        ("Error: User nobody not found", "failed"),
        (
            "Error: AirlineTools.get_user_details() missing 1 required positional argument: "
            "'user_id'",
            "failed",
        ),
        (
            "Error: AirlineTools.get_user_details() got an unexpected keyword argument 'more'",
            "failed",
        ),
        ("Error: User tools not available", "failed"),
        ("6.91", ""),
        ("Error: Invalid characters in expression", "failed"),
        ("Error: an integer of more than 100,000 bits", "failed"),
        ("Error: Tool '_get_user' not found.", "failed"),
        ("Error: Tool '__init__' not found.", "failed"),
        (f"Error: tau2.environment.environment.{named} keyword argument 'requestor'", "failed"),
        (f"Error: {named} argument 'tool_name'", "failed"),
        ("Error: eval() arg 1 must be a string, bytes or code object", "failed"),
        ("Error: division by zero", "failed"),
    ]


def test_episodes_do_not_see_each_other(airline: ToolSources) -> None:
    one = TauEnvironment(airline, solo=False, initial_state=None)
    other = TauEnvironment(airline, solo=False, initial_state=None)
    before = told(other, "assistant", "get_reservation_details", {"reservation_id": BOOKED})
    told(one, "assistant", "cancel_reservation", {"reservation_id": BOOKED})
    mine = told(one, "assistant", "get_reservation_details", {"reservation_id": BOOKED})
    assert '"status": "cancelled"' in mine[0]
    theirs = told(other, "assistant", "get_reservation_details", {"reservation_id": BOOKED})
    assert theirs == before
    assert '"status": null' in theirs[0]
    assert other.state() == [{"assistant": {}}, {"assistant": {}}]


def test_a_database_is_what_upstream_hashes(airline: ToolSources) -> None:
    attempt = Attempt(airline)
    attempt.do([("open", "ours", False, None)])
    (whole,) = attempt.do([("hashed", "ours")])
    made = ("call", "ours", "assistant", "cancel_reservation", {"reservation_id": BOOKED}, True)
    attempt.do([made])
    (after,) = attempt.do([("hashed", "ours")])
    assert whole != after
    # A second look changes nothing.
    assert attempt.do([("hashed", "ours")]) == [after]


def test_a_phone_that_was_broken_breaks_no_other(telecom: ToolSources) -> None:
    """Upstream's function changes a default of its class, and with it every later environment."""
    broken = {
        "initialization_actions": [
            {"env_type": "user", "func_name": "break_vpn", "arguments": {}},
            {"env_type": "user", "func_name": "disconnect_vpn", "arguments": {}},
        ]
    }
    connect: Call = ("user", "connect_vpn", {})
    look: Call = ("user", "check_vpn_status", {})
    *_, after = call(telecom, connect, look, initial=broken)
    assert "poor" in after[0]
    *_, fresh = call(telecom, connect, look)
    assert "excellent" in fresh[0]


def test_solo_agents_have_the_users_tools(telecom: ToolSources) -> None:
    looked: Call = ("assistant", "check_status_bar", {})
    (alone,) = call(telecom, looked, solo=True)
    assert alone[0].startswith("Status Bar")
    assert not alone[1]
    assert call(telecom, looked) == [("Error: Tool 'check_status_bar' not found.", "failed")]
    (refused,) = call(telecom, ("user", "check_status_bar", {}), solo=True)
    assert refused == ("Error: User tool calls are not allowed in solo mode", "failed")


def test_arguments_are_bounded(airline: ToolSources) -> None:
    deep: Any = "x"
    for _ in range(60):
        deep = [deep]
    for value in (deep, 10**101, ["x"] * 20_000):
        ((text, error),) = call(airline, ("assistant", "get_user_details", {"user_id": value}))
        assert error == "failed"
        assert text.startswith("Error: got ")


@pytest.mark.nightly
def test_a_process_that_is_killed_is_replayed(airline: ToolSources) -> None:
    environment = TauEnvironment(airline, solo=False, initial_state=None)
    told(environment, "assistant", "cancel_reservation", {"reservation_id": BOOKED})
    state = environment.state()
    for child in limited_processes():
        child.send_signal(signal.SIGKILL)
    assert environment.state() == state
    again = told(environment, "assistant", "get_reservation_details", {"reservation_id": BOOKED})
    assert '"status": "cancelled"' in again[0]


@pytest.mark.nightly
def test_ids_that_upstream_draws_are_the_same_again(telecom: ToolSources) -> None:
    """A customer without a draft bill gets a new one, whose id is random upstream."""
    customer = {"customer_id": "C1002", "line_id": "L1004", "gb_amount": 1.0}
    refuel = ("assistant", "refuel_data", customer)
    look = ("assistant", "get_bills_for_customer", {"customer_id": "C1002"})
    assert call(telecom, refuel, look) == call(telecom, refuel, look)


@pytest.mark.nightly
def test_a_strange_copy_is_not_run_for_a_stored_run(airline: ToolSources) -> None:
    strange = replace(airline, sha256="0" * 64)
    with pytest.raises(UserError, match="only the stored run names them"):
        schemas(strange)
    assert schemas(replace(strange, named=True))


def test_a_database_that_does_not_fit_is_refused(airline: ToolSources) -> None:
    import json
    import zlib

    data = zlib.compress(json.dumps({"assistant": '{"flights": 3}'}).encode())
    with pytest.raises(UserError, match="does not fit its classes"):
        TauEnvironment(replace(airline, data=data, data_sha256="1"), solo=False, initial_state=None)


def test_merging_data_into_a_database() -> None:
    from pydantic import BaseModel

    class Inner(BaseModel):
        a: int = 1
        b: list[int] = []

    class Outer(BaseModel):
        inner: Inner = Inner()
        more: dict[str, Inner] = {}

    merged = updated(Outer(), {"inner": {"b": [1]}, "more": {"x": {"a": 2}}})
    assert merged.model_dump() == {
        "inner": {"a": 1, "b": [1]},
        "more": {"x": {"a": 2, "b": []}},
    }
    assert dict_hash({"b": 1, "a": 2}) == dict_hash({"a": 2, "b": 1})
