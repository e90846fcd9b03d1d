"""Memory entries: conversations that fill a memory, then questions that start from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.bfcl.episode.conversation import (
    Conversation,
    Embedder,
    EpisodeSettings,
    Sandbox,
)
from ace_ray.benchmarks.bfcl.prompts import with_system
from ace_ray.benchmarks.context import EpisodeContext
from ace_ray.errors import PromptTooLong
from ace_ray.types import Entry, Episode, digest

_FORGOTTEN = ("context", "deadline")
"""Endings of a conversation of which the memory keeps nothing."""


async def prepare(
    entry: Entry,
    context: EpisodeContext,
    settings: EpisodeSettings,
    conversations: Sequence[Mapping[str, Any]],
    embed: Embedder | None = None,
) -> dict[str, Any]:
    """Hold the conversations of a memory entry's scenario in order, each from the memory that the
    one before left.

    Args:
        entry: any entry of the scenario and backend.
        conversations: ``{"id", "question": [[message, ...] per turn]}``.

    Returns:
        {"snapshot": the final memory, "conversations": [{"id", "ended", "messages", "turns",
        "results"}, ...]}. A conversation that the context or the deadline truncated leaves no
        trace in the memory, as in upstream; one that the step limit truncated does. Conversations
        after the deadline are listed too, empty and ended by it.

    Raises:
        RowError: the candidate did not answer before the deadline, its engine failed a health
            check, or the sandbox is gone.
    """
    records: list[dict[str, Any]] = []
    snapshot: dict[str, Any] = {}
    for number, prerequisite in enumerate(conversations, start=1):
        async with context.sandbox() as session:
            sandbox = Sandbox(session, embed)
            await sandbox.restore(snapshot)
            context.episode.messages = []
            first, *others = prerequisite["question"]
            conversation, opening = await _begin(entry, context, settings, sandbox, first)
            try:
                ended = await conversation.play([opening, *others])
            except PromptTooLong:  # this one is forgotten too; the others may fit
                ended = "context"
            if ended not in _FORGOTTEN:
                snapshot = await sandbox.snapshot()
        record = {"id": prerequisite["id"], "messages": context.episode.messages}
        records.append(record | conversation.state(ended))
        if ended == "deadline":
            never = {"messages": [], "turns": [], "results": [], "ended": ended}
            records += [{"id": left["id"], **never} for left in conversations[number:]]
            break
    return {"snapshot": snapshot, "conversations": records}


async def rollout(
    entry: Entry,
    context: EpisodeContext,
    settings: EpisodeSettings,
    embed: Embedder | None = None,
) -> Episode:
    """Play the episode of one question, from the memory in ``context.prepared`` (see `prepare`).

    ``state``: ``turns``, ``results`` and ``ended`` as of multi-turn entries; ``memory``, the
    snapshot that it started from, with ``memory_sha256``; ``memory_end``, the one that it left,
    which no other episode starts from; ``prepared`` [{"id", "ended"}, ...] of the conversations
    that filled it. If one of these was truncated, the memory may lack the answer: then the
    episode's ``ended`` is "preparation", unless the context or the deadline truncated the question
    too."""
    before = context.prepared or {}
    snapshot = dict(before.get("snapshot", {}))
    prepared = [
        {"id": record["id"], "ended": record["ended"]} for record in before.get("conversations", ())
    ]
    async with context.sandbox() as session:
        sandbox = Sandbox(session, embed)
        await sandbox.restore(snapshot)
        question = with_system(settings.prompts.texts.agentic, entry.data["question"][0])
        conversation, opening = await _begin(entry, context, settings, sandbox, question)
        ended = await conversation.play([opening])
        end = await sandbox.snapshot()
    if ended not in _FORGOTTEN and any(one["ended"] in _FORGOTTEN for one in prepared):
        ended = "preparation"
    context.episode.state = {
        **conversation.state(ended),
        "memory": snapshot,
        "memory_sha256": digest(snapshot),
        "memory_end": end,
        "prepared": prepared,
    }
    return context.episode


async def _begin(
    entry: Entry,
    context: EpisodeContext,
    settings: EpisodeSettings,
    sandbox: Sandbox,
    messages: Sequence[Mapping[str, Any]],
) -> tuple[Conversation, list[dict[str, Any]]]:
    """Make a conversation, and its first turn's messages with the memory before them."""
    functions, _ = settings.functions(entry)
    tools = settings.tools(functions)
    conversation = Conversation(context, sandbox.step, tools, settings.results)
    backend = entry.category.removeprefix("memory_")
    text = settings.prompts.memory(entry.data["scenario"], backend, await sandbox.dump())
    return conversation, settings.opening(with_system(text, messages), functions)
