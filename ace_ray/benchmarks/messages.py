"""Change the roles of messages, for chat templates that lack a role."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Message = Mapping[str, Any]


def add_system(text: str, messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return ``messages`` with ``text`` at the start of the system message, added if missing."""
    if messages and messages[0]["role"] == "system":
        first = {**messages[0], "content": f"{text}\n\n{messages[0]['content']}"}
        return [first, *map(dict, messages[1:])]
    return [{"role": "system", "content": text}, *map(dict, messages)]


def merge_system(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Turn system messages into user messages, and join consecutive user messages."""
    return join_users([{**m, "role": "user"} if m["role"] == "system" else m for m in messages])


def join_users(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Join consecutive user messages, with a blank line between them."""
    joined: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] == "user" and joined and joined[-1]["role"] == "user":
            joined[-1]["content"] += "\n\n" + message["content"]
        else:
            joined.append(dict(message))
    return joined
