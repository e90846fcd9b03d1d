"""Memory entries: conversations that fill a memory, then questions that start from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.bfcl.episodes.conversation import (
    Conversation,
    Docs,
    EpisodePrompts,
    Results,
    split_functions,
)
from ace_ray.benchmarks.bfcl.episodes.sandbox import Embedder, Sandbox
from ace_ray.benchmarks.bfcl.prompts import with_system
from ace_ray.benchmarks.context import EpisodeContext, Truncated
from ace_ray.errors import PromptTooLong
from ace_ray.records import Entry, Episode, digest

_FORGOTTEN = ("context", "deadline")
"""Endings of a conversation of which the memory keeps nothing."""


async def prepare(
    entry: Entry,
    context: EpisodeContext,
    prompts: EpisodePrompts,
    docs: Mapping[str, Docs],
    conversations: Sequence[Mapping[str, Any]],
    *,
    native: bool = False,
    results: Results = "tool",
    embed: Embedder | None = None,
) -> dict[str, Any]:
    """Hold the conversations of a memory entry's scenario in order, each from the memory that the
    one before left.

    Args:
        entry: any entry of the scenario and backend.
        conversations: ``{"id", "question": [[message, ...] per turn]}``.

    Returns:
        {"snapshot": the final memory, "conversations": [{"id", "ended", "messages", "turns",
        "results"}, ...]}. What a conversation wrote that the context or the deadline truncated is
        forgotten, as upstream forgets it; one that the step limit truncated keeps it. Those that
        the deadline left no time for are there too, empty and ended by it.

    Raises:
        RowError: the candidate gave no answer, or its engine no sign of life, before the deadline;
            or the sandbox is gone.
    """
    held: list[dict[str, Any]] = []
    snapshot: dict[str, Any] = {}
    for number, conversation in enumerate(conversations, start=1):
        async with Sandbox.open(context, embed) as sandbox:
            await sandbox.restore(snapshot)
            talk = _talk(entry, context, prompts, docs, sandbox, native, results)
            context.episode.messages = []
            turns = [list(map(dict, turn)) for turn in conversation["question"]]
            turns[0] = await _opened(entry, prompts, docs, sandbox, turns[0], native)
            try:
                ended = await _turns(talk, turns)
            except PromptTooLong:  # this one is forgotten too; the others may fit
                ended = "context"
            if ended not in _FORGOTTEN:
                snapshot = await sandbox.snapshot()
        messages = context.episode.messages
        held.append({"id": conversation["id"], "messages": messages, **talk.state(ended)})
        if ended == "deadline":
            never = {"messages": [], "turns": [], "results": [], "ended": ended}
            held += [{"id": left["id"], **never} for left in conversations[number:]]
            break
    return {"snapshot": snapshot, "conversations": held}


async def rollout(
    entry: Entry,
    context: EpisodeContext,
    prompts: EpisodePrompts,
    docs: Mapping[str, Docs],
    *,
    native: bool = False,
    results: Results = "tool",
    embed: Embedder | None = None,
) -> Episode:
    """The episode of one question, from the memory of ``context.prepared`` (what `prepare`
    returns).

    ``state`` as of multi-turn entries, and ``memory``: the snapshot that it started from, with
    ``memory_sha256``; ``prepared`` [{"id", "ended"}, ...] of the conversations that filled it.
    Where one of these was truncated, so that the memory may lack what is asked for, the episode's
    ``ended`` is "preparation", unless the context or the deadline truncated the question too.
    """
    before = context.prepared or {}
    snapshot = dict(before.get("snapshot", {}))
    prepared = [
        {"id": talk["id"], "ended": talk["ended"]} for talk in before.get("conversations", ())
    ]
    async with Sandbox.open(context, embed) as sandbox:
        await sandbox.restore(snapshot)
        talk = _talk(entry, context, prompts, docs, sandbox, native, results)
        question = with_system(prompts.agentic, entry.data["question"][0])
        messages = await _opened(entry, prompts, docs, sandbox, question, native)
        ended = await _turns(talk, [messages])
    if ended not in _FORGOTTEN and any(one["ended"] in _FORGOTTEN for one in prepared):
        ended = "preparation"
    context.episode.state = {
        **talk.state(ended),
        "memory": snapshot,
        "memory_sha256": digest(snapshot),
        "prepared": prepared,
    }
    return context.episode


def _talk(
    entry: Entry,
    context: EpisodeContext,
    prompts: EpisodePrompts,
    docs: Mapping[str, Docs],
    sandbox: Sandbox,
    native: bool,
    results: Results,
) -> Conversation:
    functions, _ = split_functions(entry.data, docs)
    tools = prompts.tools(functions) if native else None
    return Conversation(context, sandbox.step, tools, results)


async def _opened(
    entry: Entry,
    prompts: EpisodePrompts,
    docs: Mapping[str, Docs],
    sandbox: Sandbox,
    messages: Sequence[Mapping[str, Any]],
    native: bool,
) -> list[dict[str, Any]]:
    """The first turn's messages, with the memory and in prompt mode the functions before them."""
    backend = entry.category.removeprefix("memory_")
    text = prompts.memory(entry.data["scenario"], backend, await sandbox.dump())
    messages = with_system(text, messages)
    return messages if native else prompts.messages(messages, split_functions(entry.data, docs)[0])


async def _turns(talk: Conversation, turns: Sequence[Sequence[Mapping[str, Any]]]) -> str:
    """Why it ended; "" where it came to its end."""
    try:
        for messages in turns:
            await talk.turn(messages)
    except Truncated as truncated:
        return truncated.reason
    return ""
