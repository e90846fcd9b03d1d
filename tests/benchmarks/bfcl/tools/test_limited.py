"""Environments in a limited process: a call that breaks its limits costs its own attempt alone."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from ace_ray.benchmarks.bfcl.check import conversations
from ace_ray.benchmarks.bfcl.check.conversations import check_multi_turn
from ace_ray.benchmarks.bfcl.decode.calls import Answer
from ace_ray.benchmarks.bfcl.tools.environment import InitialState, open_environment
from ace_ray.benchmarks.bfcl.tools.limited import LimitedEnvironment, load_classes
from ace_ray.benchmarks.bfcl.tools.sources import ToolSources
from ace_ray.errors import SandboxLost, UserError
from ace_ray.sandbox import limited as limited_process
from ace_ray.sandbox.attempts import end_processes
from ace_ray.sandbox.limited import LimitBroken, LimitedProcess, ProcessLost
from ace_ray.types import Entry
from tests.sandbox.limited_processes import limited_processes

CLASS = """
class TicketAPI:
    def __init__(self):
        self.total = 0
        self.held = []

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

    def swallow(self):
        try:
            return bytes(1 << 40)
        except Exception as error:
            return {"error": type(error).__name__}

    def hold(self):
        self.held.append(bytes(200 << 20))
        return {}

    def hide(self):
        self.held.append(Endless())

class Endless:
    @property
    def contents(self):
        while True:
            pass
"""
NAMES = ("add", "spin", "grow", "swallow", "hold", "hide")
SOURCES = ToolSources({"ticket_api": CLASS}, "made up", "made up", named=True)
INITIAL_STATE = InitialState({"TicketAPI": NAMES}, {"TicketAPI": {"total": 10}})
BROKEN = f"Error during execution: {LimitBroken()}"


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    yield
    end_processes()


def opened() -> LimitedEnvironment:
    return LimitedEnvironment(SOURCES, INITIAL_STATE)


def step(environment: LimitedEnvironment, *texts: str) -> list[str]:
    found = environment.call("step", {"texts": list(texts)})
    assert not found.error
    return list(found.value)


def total(environment: LimitedEnvironment) -> Any:
    return environment.state()["TicketAPI"]["total"]


@pytest.mark.nightly
def test_it_answers_as_a_toolbox_does() -> None:
    here, there = open_environment(SOURCES, INITIAL_STATE), opened()
    for name, arguments in (
        ("step", {"texts": ["add(by=1)", "add()", "add(by='x')", "nothing()", "\ud83d\ude00"]}),
        ("unknown", {}),
    ):
        assert there.call(name, arguments) == here.call(name, arguments)
    assert there.state() == here.state()


@pytest.mark.nightly
def test_a_state_that_takes_too_much_to_record_is_none() -> None:
    environment = opened()
    assert step(environment, "add(by=1)", "hide()") == ['{"total": 11}', "None"]
    assert environment.state() is None
    assert step(environment, "add(by=1)") == ['{"total": 12}'], "the row goes on"


@pytest.mark.nightly
def test_a_call_that_breaks_a_limit_is_an_error_without_effect() -> None:
    other, environment = opened(), opened()
    step(other, "add(by=5)")
    calls = ("add(by=1)", "spin()", "add(by=2)", "grow()", "add(by=4)")
    assert step(environment, *calls) == [
        '{"total": 11}',
        BROKEN,
        '{"total": 13}',
        BROKEN,
        '{"total": 17}',
    ]
    assert total(environment) == 17
    assert total(other) == 15
    assert step(environment, "spin()") == [BROKEN]
    # They have used up the processor time of the attempt: nothing is endless.
    assert "used up their budget" in step(environment, "spin()")[0]
    assert total(other) == 15


def test_a_tool_that_survives_its_memory_error_goes_on() -> None:
    environment = opened()
    assert step(environment, "swallow()", "add(by=1)") == [
        '{"error": "MemoryError"}',
        '{"total": 11}',
    ]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_that_is_killed_is_replaced(number: signal.Signals) -> None:
    environments = [opened() for _ in range(3)]
    for by, environment in enumerate(environments):
        step(environment, f"add(by={by})", "nothing()")
    for child in limited_processes():
        child.send_signal(number)
    assert [total(environment) for environment in environments] == [10, 11, 12]


def test_a_process_that_is_lost_every_time_costs_the_row_no_verdict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environment = opened()

    def lost(self: LimitedProcess, request: Any) -> Any:
        raise ProcessLost("exit code -9")

    monkeypatch.setattr(limited_process.LimitedProcess, "ask", lost)
    with pytest.raises(SandboxLost, match=r"lost 3 times \(exit code -9\)"):
        step(environment, "add(by=1)")


@pytest.mark.nightly
def test_classes_that_do_not_load_are_the_users_mistake() -> None:
    def loaded(text: str) -> None:
        load_classes(ToolSources({"ticket_api": text}, "copy", text, named=True), ["TicketAPI"])

    with pytest.raises(UserError, match=r"ticket_api.py: does not load \(SyntaxError"):
        loaded("class TicketAPI(:")
    with pytest.raises(UserError, match="copy: a class does not load: the call takes more than"):
        loaded("while True: pass")
    with pytest.raises(UserError, match="no stand-in for socket"):
        loaded("import socket")


class TestChecks:
    def verdicts(self, *turns: list[str]) -> tuple[str, str]:
        data = {"question": [[]] * len(turns), "involved_classes": ["TicketAPI"]}
        gold = [["add(by=1)"] for _ in turns]
        entry = Entry("bfcl", "multi_turn_base", "en", "multi_turn_base_0", data, gold)
        answers = [[Answer(text) for text in turn] for turn in turns]
        docs = {"TicketAPI": [{"name": name} for name in NAMES]}
        found = check_multi_turn(entry, answers, "", SOURCES, docs)
        return found["official"].error_type, found["strict"].error_type

    @pytest.mark.nightly
    def test_it_is_the_models_error(self) -> None:
        assert self.verdicts(["[spin()]", "Done."]) == (conversations.STATE, conversations.STATE)

    @pytest.mark.nightly
    def test_it_changes_nothing_else(self) -> None:
        turns = [["[grow()]", "[add(by=1), spin()]", "Done."], ["[add(by=1)]", "Done."]]
        assert self.verdicts(*turns) == ("", "")
