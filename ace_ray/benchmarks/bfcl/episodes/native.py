"""Conversations with native tool calling: the stored messages are the chat that a model sees."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

_KEYS = ("role", "content", "name", "tool_call_id")


def number(messages: Sequence[dict[str, Any]]) -> None:
    """Give the calls of the last message ids; nine characters, which some templates insist on."""
    before = sum(len(message.get("tool_calls", ())) for message in messages[:-1])
    for index, call in enumerate(messages[-1].get("tool_calls", ())):
        call["id"] = f"call{before + index:05d}"


def results(message: Mapping[str, Any], texts: Sequence[str]) -> list[dict[str, Any]]:
    """What the calls of the assistant's ``message`` returned, one message a call."""
    return [
        {
            "role": "tool",
            "name": call["function"]["name"],
            "tool_call_id": call["id"],
            "content": text,
        }
        for call, text in zip(message.get("tool_calls", ()), texts, strict=False)
    ]


def chat(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The stored messages as chat templates take them: arguments as objects."""
    found = []
    for message in messages:
        sent = {key: message[key] for key in _KEYS if key in message}
        if calls := message.get("tool_calls"):
            sent["tool_calls"] = [
                {"id": call["id"], "type": "function", "function": _function(call["function"])}
                for call in calls
            ]
        found.append(sent)
    return found


def _function(call: Mapping[str, Any]) -> dict[str, Any]:
    try:
        arguments = json.loads(call["arguments"])
    except (ValueError, RecursionError):
        arguments = {}
    return {
        "name": call["name"],
        "arguments": arguments if isinstance(arguments, dict) else {},
    }
