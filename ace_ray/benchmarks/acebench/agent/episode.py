"""Agent episodes: from the opening of their sandbox through upstream's loops to what is stored."""

from __future__ import annotations

from typing import Any

from ace_ray.benchmarks.acebench.agent.prompts import AgentTexts
from ace_ray.benchmarks.acebench.agent.rollout import Protocol, Rollout
from ace_ray.benchmarks.context import EpisodeContext, Truncated
from ace_ray.records import Entry, Episode

_LABELS = {"user": "user:", "agent": "agent:", "execution": "execution:"}


async def run_agent(
    entry: Entry,
    context: EpisodeContext,
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
    episode that is truncated (by its deadline, the context or the message limit) keeps what it has
    reached. Raises `RowError` when it could not be had: the simulator or the sandbox is gone.
    """
    async with context.sandbox() as session:
        before = await session.state()
        rollout = Rollout(entry, context, texts, protocol, max_messages, session, tools)
        try:
            if entry.category == "agent_multi_turn":
                ended = await _multi_turn(rollout)
            else:
                ended = await _multi_step(rollout, step_language or entry.language)
        except Truncated as truncated:
            ended = truncated.reason
        end = await session.state()
    context.episode.state = rollout.state(before, end, ended)
    return context.episode


async def _multi_step(rollout: Rollout, language: str) -> str:
    """The agent works alone, every message of it goes to execution; why it ended: "finished" or
    "max_messages".

    ``language`` is that of the agent's prompt. Under ``official`` the agent never sees its own
    messages. Raises `Truncated`.
    """
    history = f"user:{rollout.entry.data['question']}\n"
    for index in range(0, rollout.max_messages, 2):
        text, calls = await rollout.ask_agent(history, language)
        if not rollout.official:
            history += f"agent:{text}\n"
        # A call is a call under "fixed", whatever else the message says.
        if (rollout.official or calls is None) and rollout.finished(index, text):
            return "finished"
        if index + 1 == rollout.max_messages:
            break
        answer = rollout.refuse(text) if calls is None else await rollout.execute(text, calls)
        history += f"execution result:{answer}\n"
        if rollout.official and rollout.finished(index + 1, answer):
            return "finished"
    return "max_messages"


def own_role(*, official: bool) -> str:
    """The role of the user simulator's own lines in what it is sent; upstream's is the system."""
    return "system" if official else "assistant"


async def _multi_turn(rollout: Rollout) -> str:
    """Agent, user simulator and execution speak in turns (upstream's Scene); why it ended:
    "finished" or "max_messages".

    Who speaks next is whom the last message addresses: execution if the agent's message is a call,
    else the user. Raises `Truncated`.
    """
    user = _User(rollout)
    speaker, message = "user", await user.begin()
    calls = None
    history = ""
    for index in range(rollout.max_messages):
        history += f"{_LABELS[speaker]}{message}\n"
        if speaker == "agent" and calls is not None:
            speaker, message = "execution", await rollout.execute(message, calls)
        elif speaker == "agent":
            speaker, message = "user", await user.reply(message)
        else:
            speaker = "agent"
            message, calls = await rollout.ask_agent(history, rollout.entry.language)
            if calls is not None and not rollout.official:
                continue  # a call is a call, whatever else the message says
        if rollout.finished(index, message):
            return "finished"
    return "max_messages"


class _User:
    """The user simulator's side: it sees what the agent tells it, never calls or results."""

    def __init__(self, rollout: Rollout) -> None:
        entry, texts = rollout.entry, rollout.texts
        self._rollout = rollout
        self._messages: list[dict[str, Any]] = [
            texts.person(entry.language, rollout.classes, str(entry.data["question"])),
            {"role": "user", "content": texts.texts[entry.language]["opener"]},
        ]
        self._own_role = own_role(official=rollout.official)

    async def begin(self) -> str:
        text = await self._rollout.ask_user(self._messages)
        self._messages.append({"role": self._own_role, "content": text})
        return text

    async def reply(self, message: str) -> str:
        for prefix in ("user:", "agent:"):
            if message.startswith(prefix):
                message = message[len(prefix) :]
                break
        self._messages.append({"role": "user", "content": message})
        return await self.begin()
