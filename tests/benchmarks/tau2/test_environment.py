"""Databases that episodes share, and tools of the user's own copy, in a limited process."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel

from ace_ray.benchmarks.tau2.environment.limited import TauEnvironment, schemas
from ace_ray.benchmarks.tau2.environment.sources import (
    MAX_CHARS,
    Overlay,
    ToolSources,
    evaluate,
    tool_sources,
)
from ace_ray.benchmarks.tau2.upstream_package import UpstreamPackage
from ace_ray.errors import UserError

BOOKED = {"reservation_id": "EHGLP3"}
Call = tuple[str, str, Mapping[str, Any]]
"""Side, tool, arguments."""


@pytest.fixture(scope="module")
def airline(package: UpstreamPackage) -> ToolSources:
    return tool_sources(package, "airline")


@pytest.fixture(scope="module")
def telecom(package: UpstreamPackage) -> ToolSources:
    return tool_sources(package, "telecom")


def opened(sources: ToolSources, solo: bool = False, initial: Any = None) -> TauEnvironment:
    return TauEnvironment(sources, solo=solo, initial_state=initial)


def call_results(environment: TauEnvironment, *calls: Call) -> list[tuple[str, str]]:
    results = []
    for side, name, arguments in calls:
        options = {"requestor": side, "arguments": arguments, "last": True}
        observation = environment.call(name, options)
        results.append((observation.value, observation.error))
    return results


def test_tools_and_their_schemas(package, airline, telecom) -> None:
    domains = {category.domain for category in package.categories}
    assert all(tool_sources(package, domain).is_published for domain in domains)
    (tools,) = schemas(airline).values()
    assert len(tools) == 14
    sides = {side: len(side_schemas) for side, side_schemas in schemas(telecom).items()}
    assert sides == {"assistant": 13, "user": 30}


def test_episodes_do_not_see_each_other(airline: ToolSources) -> None:
    first, second = opened(airline), opened(airline)
    look: Call = ("assistant", "get_reservation_details", BOOKED)
    before = call_results(second, look)
    many: Call = ("assistant", "get_reservation_details", {"reservation_id": [[]] * 10_000})
    assert "more than 10000 values" in call_results(second, many)[0][0]
    _, mine = call_results(first, ("assistant", "cancel_reservation", BOOKED), look)
    assert '"status": "cancelled"' in mine[0]
    assert call_results(second, look) == before
    assert '"status": null' in before[0][0]
    assert second.state() == [{"assistant": {}}, {"assistant": {}}]


def test_solo_agents_have_the_users_tools(telecom: ToolSources) -> None:
    looked: Call = ("assistant", "check_status_bar", {})
    alone, refused = call_results(opened(telecom, solo=True), looked, ("user", *looked[1:]))
    assert alone[0].startswith("Status Bar")
    assert not alone[1]
    assert refused == ("Error: User tool calls are not allowed in solo mode", "failed")
    (missing,) = call_results(opened(telecom), looked)
    assert missing == ("Error: Tool 'check_status_bar' not found.", "failed")


@pytest.mark.nightly
def test_a_strange_copy_is_not_run_for_a_stored_run(airline: ToolSources) -> None:
    strange = replace(airline, sha256="0" * 64)
    with pytest.raises(UserError, match="only the stored run names this copy"):
        schemas(strange)
    assert schemas(replace(strange, is_trusted=True))


class Record(BaseModel):
    value: int = 1
    parts: list[int] = []


def test_a_shared_database_behaves_like_a_deep_copy() -> None:
    base = {key: Record() for key in "abcd"}
    ours, copy = Overlay(base), {key: Record() for key in "abcd"}
    for database in (ours, copy):
        database["a"].parts.append(1)
        del database["b"], database["c"]
        database["new"] = database["c"] = Record(value=9)
        database["d"].value = 1
        for record in database.values():
            record.value += record.value == 9
    assert dict(ours) == copy
    assert list(ours) == list(copy) == ["a", "d", "new", "c"]
    assert base == {key: Record() for key in "abcd"}
    assert set(ours.text_changes()) == {"a", "b", "c", "new"}
    assert ours.text_changes()["b"] == ('{"parts": [], "value": 1}', None)


def test_arithmetic_is_pythons() -> None:
    values = {"1+2*3": 7, " 7.//2": 3.0, "-2**2": -4, "2**-1": 0.5, "+3.5": 3.5, "()": ()}
    assert {text: evaluate(text) for text in values} == values
    # Upstream makes a float of this power and fails.
    assert evaluate("2**32**3//2**32**3") == 1
    errors: list[tuple[type[Exception], list[str]]] = [
        (ZeroDivisionError, ["(1-.5)/0", "1(1/0)"]),
        (TypeError, ["1(2)", "()+1"]),
        (SyntaxError, ["(1", "1 2", "3.5.2", "*"]),
        (ValueError, ["9**9**9**9", "(99**99)**(99**99)", "2**100001", "1+" * MAX_CHARS + "1"]),
    ]
    for kind, texts in errors:
        for text in texts:
            with pytest.raises(kind):
                evaluate(text)
