"""agent_multi_turn: agent, user simulator and execution speak in turns (upstream's Scene)."""

from __future__ import annotations

from typing import Any

from ace_ray.benchmarks.acebench.agent.play import Play

_LABELS = {"user": "user:", "agent": "agent:", "execution": "execution:"}


def own_role(*, official: bool) -> str:
    """The role of the user simulator's own lines in what it is sent; upstream's is the system."""
    return "system" if official else "assistant"


async def multi_turn(play: Play) -> str:
    """Plays the episode to its end and returns why it ended: "finished" or "max_messages".

    Who speaks next is whom the last message addresses: execution if the agent's message is a call,
    else the user. Raises `Cut`.
    """
    user = _User(play)
    speaker, message = "user", await user.begin()
    calls = None
    history = ""
    for index in range(play.max_messages):
        history += f"{_LABELS[speaker]}{message}\n"
        if speaker == "agent" and calls is not None:
            speaker, message = "execution", await play.execute(message, calls)
        elif speaker == "agent":
            speaker, message = "user", await user.reply(message)
        else:
            speaker = "agent"
            message, calls = await play.ask_agent(history, play.entry.language)
            if calls is not None and not play.official:
                continue  # a call is a call, whatever else the message says
        if play.finished(index, message):
            return "finished"
    return "max_messages"


class _User:
    """The user simulator's side: it sees what the agent tells it, never calls or results."""

    def __init__(self, play: Play) -> None:
        entry, texts = play.entry, play.texts
        self._play = play
        self._messages: list[dict[str, Any]] = [
            texts.person(entry.language, play.classes, str(entry.data["question"])),
            {"role": "user", "content": texts.texts[entry.language]["opener"]},
        ]
        self._own_role = own_role(official=play.official)

    async def begin(self) -> str:
        text = await self._play.ask_user(self._messages)
        self._messages.append({"role": self._own_role, "content": text})
        return text

    async def reply(self, message: str) -> str:
        for prefix in ("user:", "agent:"):
            if message.startswith(prefix):
                message = message[len(prefix) :]
                break
        self._messages.append({"role": "user", "content": message})
        return await self.begin()
