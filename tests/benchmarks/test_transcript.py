"""Stored episodes as steps: calls beside their results, whatever the shape of the row."""

from __future__ import annotations

from typing import Any

import pytest

from ace_ray.benchmarks.acebench.benchmark import ACEBench
from ace_ray.benchmarks.transcript import Call, Step, of_messages


def call(name: str, arguments: str, **more: str) -> dict[str, Any]:
    return {**more, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_a_tool_answers_the_call_that_it_names() -> None:
    calls = [call("a", "{}", id="c1"), call("b", '{"x": 1}', id="c2")]
    steps = of_messages(
        [
            {"role": "user", "content": "two of them"},
            {
                "role": "assistant",
                "content": "",
                "text": "<tool_call>...",
                "reasoning": "both",
                "tool_calls": calls,
                "tool_parser_error": "odd",
            },
            {"role": "tool", "tool_call_id": "c2", "content": "of b"},
            {"role": "tool", "tool_call_id": "c1", "content": "of a"},
            {"role": "assistant", "content": "done", "tool_calls": [call("c", "{"), call("d", "")]},
            {"role": "tool", "content": [{"type": "text", "text": "of c"}]},
        ]
    )
    assert [step.role for step in steps] == ["user", "assistant", "assistant"]
    assert steps[1].calls == [Call("a", "{}", "of a"), Call("b", '{"x": 1}', "of b")]
    assert (steps[1].reasoning, steps[1].written) == ("both", "<tool_call>...")
    assert steps[1].facts == {"tool_parser_error": "odd"}
    # Without an id, results belong to the first calls; a call that was not run has none.
    assert steps[2].calls == [Call("c", "{", "of c"), Call("d", "", None)]


def test_calls_in_the_text_come_with_their_results() -> None:
    """In BFCL's prompt mode the tool's message is named like the call."""
    steps = of_messages(
        [
            {"role": "assistant", "content": "[ls(), pwd()]"},
            {"role": "tool", "name": "ls()", "content": "a.txt"},
            {"role": "tool", "name": "pwd()", "content": "/"},
        ]
    )
    (only,) = steps
    assert only.calls == [Call("ls()", "", "a.txt"), Call("pwd()", "", "/")]


@pytest.mark.parametrize(
    "messages",
    [
        [{}],
        [{"role": 1, "content": {"a": [1]}}],
        [{"role": "tool", "content": "alone"}],
        [{"role": "assistant", "tool_calls": "x", "reasoning": 3}],
        [{"role": "assistant", "tool_calls": [None, {"function": None}, {"id": 3}, {}]}],
        [{"role": "assistant", "tool_calls": [{}]}, {"role": "tool", "tool_call_id": [1]}],
    ],
)
def test_messages_of_any_shape_are_steps(messages: list[dict[str, Any]]) -> None:
    steps = of_messages(messages)
    assert len(steps) == 1
    for step in steps:
        assert all(isinstance(v, str) for v in (step.role, step.text, step.reasoning))
        assert all(isinstance(v, str) for one in step.calls for v in (one.name, one.arguments))


def test_an_agent_episode_has_its_calls_where_they_were_made() -> None:
    steps = [
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
    ]
    state = {"before": [{"A": {"x": 1}}], "end": [{"A": {"x": 2}}], "steps": steps}
    messages = [{"role": "system", "content": "rules"}, {"role": "user", "content": "switch it on"}]
    system, user, answer, refusal = ACEBench.transcript(messages, state)
    assert (system.text, user.text, answer.reasoning) == ("rules", "switch it on", "r")
    assert [one.name for one in answer.calls] == ["a", "b"]
    assert answer.calls[0].observation == '{\n  "ok": true\n}'
    assert answer.calls[1].observation is None
    assert refusal == Step("tool", "nobody answers")
    assert ACEBench.sandbox_states(state) == ([{"A": {"x": 1}}], [{"A": {"x": 2}}])
    # The task of an agent that works alone comes first.
    state["steps"] = [{"speaker": "agent", "text": "[a()]"}]
    alone = ACEBench.transcript([*messages, {"role": "assistant", "content": "[a()]"}], state)
    assert [step.role for step in alone] == ["system", "user", "assistant"]


@pytest.mark.parametrize(
    "state",
    [
        None,
        {"steps": 3},
        {"steps": [None, {}]},
        {"steps": [{"speaker": "agent"}, {"speaker": "execution", "calls": 3}]},
        {"steps": [{"speaker": "agent"}, {"speaker": "execution", "calls": [1, {}], "errors": 1}]},
        {"before": 1},
    ],
)
def test_states_of_any_shape_are_steps(state: Any) -> None:
    for step in ACEBench.transcript([{"role": "user", "content": "q"}], state):
        assert isinstance(step.text, str)
    assert ACEBench.sandbox_states(state) is None
