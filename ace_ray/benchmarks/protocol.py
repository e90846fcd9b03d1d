"""What an episode has at its disposal: models, a sandbox, a service."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ace_ray.records import Completion, Sampling
from ace_ray.sandbox.protocol import Session


class Model(Protocol):
    """A chat model. Raises `RowError` when this request cannot be answered, `EngineDead` when no
    request can be any more."""

    async def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        sampling: Sampling,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> Completion: ...


@dataclass(frozen=True, slots=True)
class Player:
    """A model in a part of an episode, how it draws its tokens, and what can move a score in that
    (JSON values, for the row)."""

    model: Model
    sampling: Sampling
    identity: Mapping[str, Any] = field(default_factory=dict)


class Service(Protocol):
    """What all episodes of a run share and one process owns, such as a cache that is written."""

    def open(self) -> None:
        """Take hold of it, in that process, before any engine starts. Raises `UserError`: another
        run has it."""

    def call(self, method: str, *arguments: Any) -> Any:
        """Arguments and answer are plain values. Raises `RowError` where a row cannot go on."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What an episode has at its disposal.

    ``roles`` are the players of `Benchmark.roles` by name. ``open_sandbox`` opens the entry's
    scenario. ``deadline`` is a time of the event loop's clock at which the episode should end by
    itself; None: no limit. ``works`` tells whether the candidate's engine still does: what it owes
    at the deadline is the candidate's fault only then. ``prepared`` is the value of the entry's
    `Benchmark.prepare`. ``token_logprobs`` gives the candidate's logprob of each token of a text as
    the answer to messages; it raises as `Model.chat` does. ``service`` calls `Benchmark.service`,
    by method and arguments. ``attempt`` counts the tries of the row, from 1.
    """

    candidate: Player
    roles: Mapping[str, Player] = field(default_factory=dict)
    open_sandbox: Callable[[], Awaitable[Session]] | None = None
    deadline: float | None = None
    works: Callable[[], Awaitable[bool]] | None = None
    prepared: Any = None
    token_logprobs: Callable[[Sequence[Mapping[str, Any]], str], Awaitable[list[float]]] | None = (
        None
    )
    service: Callable[..., Awaitable[Any]] | None = None
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Preparation:
    """What came before the episodes of several entries, and what it took of the candidate."""

    value: Any
    prompt_tokens: int = 0
    completion_tokens: int = 0
    model_calls: int = 0
    generation_s: float = 0.0
