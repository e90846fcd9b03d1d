"""Episodes of StableToolBench as steps, out of what was stored."""

from __future__ import annotations

from typing import Any

import pytest

from ace_ray.benchmarks.stabletoolbench.benchmark import StableToolBench
from ace_ray.benchmarks.transcript import Call, Step

ASKED = [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}]


def node(kind: str, description: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "description": description, "parent": 0, **more}


ROOT = {"type": "Action Input", "description": "", "parent": None}


def of(*tries: list[dict[str, Any]], messages: Any = ASKED) -> list[Step]:
    state = {"run": {"tries": [{"nodes": [ROOT, *nodes]} for nodes in tries]}}
    return StableToolBench.transcript(messages, state)


def test_thoughts_calls_and_observations() -> None:
    steps = of(
        [
            node("Thought", "look"),
            node("Action", "f"),
            node("Action Input", "{}", observation="found"),
            node("Action", "g"),
            node("Action Input", '{"a": 1}'),
            node("Thought", "done", pruned=True),
        ]
    )
    assert [step.role for step in steps] == ["system", "user", "assistant", "assistant"]
    assert steps[2].text == "look"
    assert steps[2].calls == [Call("f", "{}", "found"), Call("g", '{"a": 1}')]
    assert (steps[3].text, steps[3].facts) == ("done", {"pruned": True})


def test_calls_without_a_thought_and_several_attempts() -> None:
    call = [node("Action", "f"), node("Action Input", "{}", observation="")]
    steps = of(call, call)
    assert [step.facts for step in steps[2:]] == [{}, {"attempt": 2}]
    assert all(step.calls == [Call("f", "{}", "")] for step in steps[2:])


def test_an_attempt_that_ended_is_told_once() -> None:
    messages = [*ASKED, {"role": "assistant", "content": "look"}, {"role": "tool", "content": "x"}]
    assert len(of([node("Thought", "look")], messages=messages)) == 3
    assert [step.role for step in of(messages=messages)] == ["system", "user", "assistant"]


@pytest.mark.parametrize(
    "state",
    [None, 1, {"run": []}, {"run": {"tries": {}}}, {"run": {"tries": [1, {"nodes": [1, {}]}]}}],
)
def test_states_of_anybody(state: Any) -> None:
    assert [step.text for step in StableToolBench.transcript(ASKED, state)] == ["s", "q"]


def test_values_of_anybody() -> None:
    odd: Any = [{"type": ["x"]}, node("Thought", None), node("Action", {"a": 1}), {"type": 7}]  # type: ignore[arg-type]
    steps = of([*odd, node("Action Input", [1], observation={"b": 2})])  # type: ignore[arg-type]
    assert steps[2].calls[0].observation == '{\n  "b": 2\n}'
