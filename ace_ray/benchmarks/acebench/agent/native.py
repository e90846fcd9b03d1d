"""Agent episodes with native tool calling: the stored messages are the chat that a model sees."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.acebench.agent.calls import AgentCall, agent_calls
from ace_ray.benchmarks.acebench.json_calls import NotJson, arguments_of
from ace_ray.benchmarks.acebench.native import answer_text
from ace_ray.records import Completion


def read(
    completion: Completion, functions: Sequence[Mapping[str, Any]]
) -> tuple[str, list[AgentCall] | None]:
    """The message in the official syntax, and its calls; None when the model called no tool."""
    answer = completion.tools
    if answer is None:
        raise ValueError("an answer to tools has been taken apart")
    text = answer_text(answer.content, answer.calls, functions)
    if not answer.calls:
        return text, None
    calls = agent_calls(text, loop="multi_step", protocol="fixed")
    if calls is None:
        calls = [AgentCall(c.name, {}, "the arguments are no JSON object") for c in answer.calls]
    return text, calls


def chat(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The stored messages as chat templates take them: arguments as objects, calls with ids."""
    found = []
    for message in messages:
        sent = {key: message[key] for key in _KEYS if key in message}
        if calls := message.get("tool_calls"):
            sent["tool_calls"] = [
                {"id": _id(number), "type": "function", "function": _function(call["function"])}
                for number, call in enumerate(calls)
            ]
        found.append(sent)
    return found


def results(message: Mapping[str, Any], answers: Sequence[Any]) -> list[dict[str, Any]]:
    """What the calls of the assistant's ``message`` returned, one message a call."""
    calls = message.get("tool_calls", [])
    return [
        {
            "role": "tool",
            "name": call["function"]["name"],
            "tool_call_id": _id(number),
            "content": answer
            if isinstance(answer, str)
            else json.dumps(answer, ensure_ascii=False, default=str),
        }
        for number, (call, answer) in enumerate(zip(calls, answers, strict=False))
    ]


_KEYS = ("role", "content", "name", "tool_call_id")


def _id(number: int) -> str:
    return f"call{number:05d}"  # nine characters: some templates insist


def _function(call: Mapping[str, Any]) -> dict[str, Any]:
    try:
        arguments: Any = arguments_of(call["arguments"])
    except NotJson:
        arguments = {}
    return {"name": call["name"], "arguments": arguments}
