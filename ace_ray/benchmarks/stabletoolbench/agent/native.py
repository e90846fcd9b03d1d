"""Native tool calling: the stored messages as chat templates take them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.stabletoolbench.apis.values import Unusable, arguments_of

_KEYS = ("role", "content", "name", "tool_call_id")


def call_id(number: int) -> str:
    """Nine characters: some templates insist."""
    return f"call{number % 100_000:05d}"


def chat(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The messages with arguments as objects, which templates write in their own syntax; those
    that are none are shown as an empty object."""
    found = []
    for message in messages:
        sent = {key: message[key] for key in _KEYS if key in message}
        if calls := message.get("tool_calls"):
            sent["tool_calls"] = [
                call | {"function": call["function"] | {"arguments": _arguments(call)}}
                for call in calls
            ]
        found.append(sent)
    return found


def _arguments(call: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return arguments_of(call["function"]["arguments"])
    except Unusable:
        return {}
