"""Episodes of tau2 with models that say what a test has them say."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.context import EpisodeContext, RoleModel
from ace_ray.benchmarks.tau2.benchmark import Tau2
from ace_ray.sandbox.protocol import LocalSession
from ace_ray.types import Completion, Entry, Episode, Sampling, ToolAnswer, ToolCall, Verdict

Turn = Any
"""A text; a call (name, arguments); a list of calls; (text, [calls]); or an exception to raise."""


class Scripted:
    """Says its turns one after another, the last one for ever. Keeps what it was asked."""

    def __init__(self, *turns: Turn) -> None:
        self._turns = list(turns)
        self.asked: list[list[Mapping[str, Any]]] = []
        self.tools: list[Any] = []
        self.sampling: list[Sampling] = []

    async def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        sampling: Sampling,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> Completion:
        self.asked.append([dict(message) for message in messages])
        self.tools.append(tools)
        self.sampling.append(sampling)
        turn = self._turns.pop(0) if len(self._turns) > 1 else self._turns[0]
        if isinstance(turn, Exception):
            raise turn
        text, calls = spoken(turn)
        answer = ToolAnswer(text, calls) if tools is not None else None
        return Completion(text, prompt_tokens=7, completion_tokens=2, tools=answer)


def spoken(turn: Turn) -> tuple[str, tuple[ToolCall, ...]]:
    if isinstance(turn, str):
        return turn, ()
    if isinstance(turn, list):
        return "", tuple(map(_call, turn))
    if isinstance(turn[1], list):
        return turn[0], tuple(map(_call, turn[1]))
    return "", (_call(turn),)


def _call(made: tuple[str, Any]) -> ToolCall:
    name, arguments = made
    return ToolCall(name, arguments if isinstance(arguments, str) else json.dumps(arguments))


def made(**options: Any) -> Tau2:
    return Tau2.from_options({"data": "installed", **options})


def entry_of(benchmark: Tau2, category: str, entry_id: str = "") -> Entry:
    """The entry with this id, or the first of a category."""
    return next(
        entry
        for entry in benchmark.dataset()
        if entry.category == category and entry_id in ("", entry.id)
    )


def play(
    benchmark: Tau2,
    entry: Entry,
    agent: Scripted,
    user: Scripted | None = None,
) -> Episode:
    """The entry's episode, without Ray."""
    sampling = Sampling(max_tokens=50)
    roles = {} if user is None else {"user": RoleModel(user, sampling, {"model": "user"})}

    async def opened() -> LocalSession:
        return LocalSession(benchmark.scenario(entry))

    context = EpisodeContext(RoleModel(agent, sampling), roles, open_sandbox=opened)
    return asyncio.run(benchmark.run(entry, context))


def verdicts(benchmark: Tau2, entry: Entry, episode: Episode) -> dict[str, Verdict]:
    return benchmark.verdicts(entry, episode)
