"""Environments in a limited process: a call that breaks its limits costs its own attempt alone."""

from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from ace_ray.benchmarks.bfcl.tools.environment import InitialState
from ace_ray.benchmarks.bfcl.tools.limited import LimitedEnvironment
from ace_ray.benchmarks.bfcl.tools.sources import ToolSources
from ace_ray.errors import SandboxLost
from ace_ray.sandbox.limited import LimitBroken, LimitedProcess, ProcessLost
from ace_ray.sandbox.replayed_environment import end_processes

CLASS = """
class TicketAPI:
    def __init__(self):
        self.total = 0

    def _load_scenario(self, config, long_context=False):
        self.total = config.get("total", 0)

    def add(self, by):
        self.total += by
        return {"total": self.total}

    def spin(self):
        self.total += 1000
        while True:
            pass

    def grow(self):
        self.total += 1000
        return [str(n) * 1000 for n in range(10**9)]

    def hide(self):
        self.held = Endless()

class Endless:
    @property
    def contents(self):
        while True:
            pass
"""
NAMES = ("add", "spin", "grow", "hide")
SOURCES = ToolSources({"ticket_api": CLASS}, "made up", "made up", named=True)
INITIAL_STATE = InitialState({"TicketAPI": NAMES}, {"TicketAPI": {"total": 10}})
BROKEN = f"Error during execution: {LimitBroken()}"


@pytest.fixture(autouse=True)
def end_after_test() -> Iterator[None]:
    yield
    end_processes()


def opened() -> LimitedEnvironment:
    return LimitedEnvironment(SOURCES, INITIAL_STATE)


def step(environment: LimitedEnvironment, *texts: str) -> list[str]:
    return list(environment.call("step", {"texts": list(texts)}).value)


@pytest.mark.nightly
def test_a_call_that_breaks_a_limit_is_an_error_without_effect() -> None:
    second_environment, environment = opened(), opened()
    step(second_environment, "add(by=5)")
    calls = ("add(by=1)", "spin()", "add(by=2)", "grow()", "add(by=4)")
    results = ['{"total": 11}', BROKEN, '{"total": 13}', BROKEN, '{"total": 17}']
    assert step(environment, *calls) == results
    assert environment.state() == {"TicketAPI": {"total": 17}}
    assert step(environment, "spin()") == [BROKEN]
    # Now the processor time of the attempt is used up.
    assert "used up their budget" in step(environment, "spin()")[0]
    assert step(second_environment, "hide()") == ["None"]
    assert second_environment.state() is None, "a state that takes too much to record"
    assert step(second_environment, "add(by=1)") == ['{"total": 16}'], "the row goes on"


def test_a_process_that_is_killed_is_replaced() -> None:
    environments = [opened() for _ in range(3)]
    for by, environment in enumerate(environments):
        step(environment, f"add(by={by})", "nothing()")
    for child in psutil.Process().children():
        if "limited_child" in " ".join(child.cmdline()):
            child.kill()
    states = [environment.state()["TicketAPI"]["total"] for environment in environments]
    assert states == [10, 11, 12]


def test_a_process_that_is_lost_every_time_costs_the_row_no_verdict(monkeypatch) -> None:
    environment = opened()

    def lost(self: LimitedProcess, request: Any) -> Any:
        raise ProcessLost("exit code -9")

    monkeypatch.setattr(LimitedProcess, "ask", lost)
    with pytest.raises(SandboxLost, match=r"lost 3 times \(exit code -9\)"):
        step(environment, "add(by=1)")
