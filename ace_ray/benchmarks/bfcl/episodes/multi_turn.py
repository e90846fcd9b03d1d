"""The episode of a multi-turn entry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ace_ray.benchmarks.bfcl.episodes.conversation import (
    Conversation,
    Docs,
    EpisodePrompts,
    Results,
    split_functions,
)
from ace_ray.benchmarks.bfcl.episodes.sandbox import Sandbox
from ace_ray.benchmarks.context import EpisodeContext, Truncated
from ace_ray.records import Entry, Episode


async def rollout(
    entry: Entry,
    context: EpisodeContext,
    prompts: EpisodePrompts,
    docs: Mapping[str, Docs],
    *,
    native: bool = False,
    results: Results = "tool",
) -> Episode:
    """The episode of a multi-turn entry.

    A conversation that is truncated (by the step limit, the context or the deadline) keeps what it
    has reached. Functions that are held out come in their turn: written down by the user in prompt
    mode, as further tools in native mode. ``state`` of the episode: ``turns`` (answers, see
    `Answer.as_json`), ``results`` (texts of each step) and ``ended``. Raises `RowError` when it
    could not be had.
    """
    functions, held = split_functions(entry.data, docs)
    async with Sandbox.open(context) as sandbox:
        talk = Conversation(context, sandbox.step, results=results)
        if native:
            talk.tools = prompts.tools(functions)
        ended = ""
        try:
            for number, question in enumerate(entry.data["question"]):
                messages: list[dict[str, Any]] = [dict(message) for message in question]
                if number in held:
                    if talk.tools is not None:
                        talk.tools = [*talk.tools, *prompts.tools(held[number], hints=0)]
                    text = prompts.more_functions(None if native else held[number])
                    messages = [{"role": "user", "content": text}]
                if number == 0 and not native:
                    messages = prompts.messages(messages, functions)
                await talk.turn(messages)
        except Truncated as truncated:
            ended = truncated.reason
    context.episode.state = talk.state(ended)
    return context.episode
