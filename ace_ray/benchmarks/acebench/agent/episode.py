"""An agent entry played on a stage, from the opening of its sandbox to the stored state."""

from __future__ import annotations

from typing import Any

from ace_ray.benchmarks.acebench.agent.multi_step import multi_step
from ace_ray.benchmarks.acebench.agent.multi_turn import multi_turn
from ace_ray.benchmarks.acebench.agent.play import Cut, Play, Protocol, as_state
from ace_ray.benchmarks.acebench.agent.prompts import AgentTexts
from ace_ray.benchmarks.protocol import Stage
from ace_ray.records import Entry, Episode


async def play_agent(
    entry: Entry,
    stage: Stage,
    texts: AgentTexts,
    *,
    protocol: Protocol,
    max_messages: int,
    step_language: str | None,
    tools: list[dict[str, Any]] | None,
) -> Episode:
    """The episode of an agent entry.

    ``tools`` are the functions for native tool calling, None in prompt mode.
    ``step_language`` is the language of the prompt of agent_multi_step; None: the entry's. An
    episode that is cut (by its deadline, the context or the message limit) keeps what it has
    reached. Raises `RowError` when it could not be played: the simulator or the sandbox is gone.
    """
    if stage.open_sandbox is None:
        raise ValueError("an agent episode needs a sandbox")
    session = await stage.open_sandbox()
    try:
        before = await session.state()
        play = Play(entry, stage, texts, protocol, max_messages, session, tools)
        try:
            if entry.category == "agent_multi_turn":
                ended = await multi_turn(play)
            else:
                ended = await multi_step(play, step_language or entry.language)
        except Cut as cut:
            ended = str(cut)
        end = await session.state()
    finally:
        await session.close()
    user = stage.roles["user"].identity if entry.category == "agent_multi_turn" else {}
    play.episode.state = as_state(play, before, end, ended, user)
    return play.episode
