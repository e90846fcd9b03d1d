"""Stored episodes as steps: calls beside what came back, whoever wrote the row."""

from __future__ import annotations

from typing import Any

import pytest

from ace_ray.benchmarks.acebench.benchmark import ACEBench
from ace_ray.benchmarks.transcript import Call, Step, of_messages


def call(name: str, arguments: str, call_id: str | None = None) -> dict[str, Any]:
    identity = {} if call_id is None else {"id": call_id}
    return {**identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_a_tool_answers_the_call_that_it_names() -> None:
    steps = of_messages(
        [
            {"role": "user", "content": "two of them"},
            {
                "role": "assistant",
                "content": "",
                "text": "<tool_call>...",
                "reasoning": "both",
                "tool_calls": [call("a", "{}", "c1"), call("b", '{"x": 1}', "c2")],
            },
            {"role": "tool", "tool_call_id": "c2", "content": "of b"},
            {"role": "tool", "tool_call_id": "c1", "content": "of a"},
            {"role": "assistant", "content": "done"},
        ]
    )
    assert [step.role for step in steps] == ["user", "assistant", "assistant"]
    assert steps[1].calls == [Call("a", "{}", "of a"), Call("b", '{"x": 1}', "of b")]
    assert (steps[1].reasoning, steps[1].written) == ("both", "<tool_call>...")
    assert steps[2] == Step("assistant", "done")


def test_calls_in_the_text_come_with_their_answers() -> None:
    """BFCL's prompt mode: the tool's message is named like the call."""
    steps = of_messages(
        [
            {"role": "assistant", "content": "[ls(), pwd()]"},
            {"role": "tool", "name": "ls()", "content": "a.txt"},
            {"role": "tool", "name": "pwd()", "content": "/"},
        ]
    )
    (only,) = steps
    assert only.calls == [Call("ls()", "", "a.txt"), Call("pwd()", "", "/")]


def test_a_call_that_was_not_run_has_no_observation() -> None:
    (step,) = of_messages(
        [{"role": "assistant", "content": None, "tool_calls": [call("a", "{"), call("b", "{}")]}]
    )
    assert [one.observation for one in step.calls] == [None, None]


@pytest.mark.parametrize(
    "messages",
    [
        [{}],
        [{"role": 1, "content": {"a": [1]}}],
        [{"role": "tool", "content": "alone"}],
        [{"role": "assistant", "tool_calls": "x", "reasoning": 3}],
        [{"role": "assistant", "tool_calls": [None, {"function": None}, {"id": 3}, {}]}],
        [{"role": "assistant", "tool_calls": [{}]}, {"role": "tool", "tool_call_id": [1]}],
        [{"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image"}]}],
    ],
)
def test_messages_of_any_shape_are_steps(messages: list[dict[str, Any]]) -> None:
    for step in of_messages(messages):
        assert all(isinstance(v, str) for v in (step.role, step.text, step.reasoning))
        assert all(isinstance(v, str) for one in step.calls for v in (one.name, one.arguments))


def agent(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"before": [{"A": {"x": 1}}], "end": [{"A": {"x": 2}}], "steps": list(steps)}


def test_an_agent_episode_has_its_calls_where_they_were_made() -> None:
    state = agent(
        {"speaker": "user", "text": "switch it on", "seconds": 1.0},
        {"speaker": "agent", "text": "[a(x=1), b()]", "reasoning": "r", "finish_reason": "stop"},
        {
            "speaker": "execution",
            "text": "[...]",
            "calls": [{"name": "a", "arguments": {"x": 1}}, {"name": "b", "arguments": {}}],
            "observations": [{"ok": True}],
            "errors": [""],
        },
        {"speaker": "execution", "text": "nobody answers", "errors": ["not_a_call"]},
    )
    messages = [{"role": "system", "content": "rules"}, {"role": "user", "content": "switch it on"}]
    system, user, answer, refusal = ACEBench.transcript(messages, state)
    assert (system.text, user.text, answer.reasoning) == ("rules", "switch it on", "r")
    assert [one.name for one in answer.calls] == ["a", "b"]
    assert answer.calls[0].observation == '{\n  "ok": true\n}'
    assert answer.calls[1].observation is None
    assert refusal == Step("tool", "nobody answers")
    assert ACEBench.sandbox_states(state) == ([{"A": {"x": 1}}], [{"A": {"x": 2}}])


def test_the_task_of_an_agent_that_works_alone_comes_first() -> None:
    state = agent({"speaker": "agent", "text": "[a()]"})
    messages = [{"role": "system", "content": "rules"}, {"role": "user", "content": "task"}]
    steps = ACEBench.transcript([*messages, {"role": "assistant", "content": "[a()]"}], state)
    assert [step.role for step in steps] == ["system", "user", "assistant"]


@pytest.mark.parametrize(
    "state",
    [
        None,
        [],
        {"steps": 3},
        {"steps": [None]},
        {"steps": [{}]},
        {"steps": [{"speaker": "agent"}, {"speaker": "execution", "calls": 3}]},
        {"steps": [{"speaker": "agent"}, {"speaker": "execution", "calls": [1, {}], "errors": 1}]},
        {"before": 1},
    ],
)
def test_states_of_any_shape_are_steps(state: Any) -> None:
    for step in ACEBench.transcript([{"role": "user", "content": "q"}], state):
        assert isinstance(step.text, str)
    ACEBench.sandbox_states(state)
