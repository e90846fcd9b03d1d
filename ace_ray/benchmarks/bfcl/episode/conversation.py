"""Run conversations with tools, and the episodes of multi-turn entries. The rules are upstream's
(``base_handler.inference_multi_turn_prompting`` and ``_FC``).

A turn begins with a user message and has several steps. A step is one answer of the model and the
results of its calls. Held-out functions are offered only from a later turn on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ace_ray.benchmarks.bfcl.decode import executable_calls
from ace_ray.benchmarks.bfcl.decode.calls import Answer
from ace_ray.benchmarks.bfcl.functions import split_functions
from ace_ray.benchmarks.bfcl.prompts import Prompts
from ace_ray.benchmarks.context import EpisodeContext, Truncated, tool_messages
from ace_ray.sandbox.protocol import Session
from ace_ray.types import Entry, Episode

# Maximum steps with calls in one turn. Upstream's limit is 20, but it stops only after step 21.
MAX_STEPS = 21

# Messages with tool results in prompt mode: one ``tool`` message per call, named like the call (as
# for upstream's local models), or one user message for all calls (as for its API models).
Results = Literal["tool", "user"]
# Runs the calls of one step, and returns their results.
Execute = Callable[[list[str]], Awaitable[list[str]]]
# Returns the embedding vectors of texts, in order. Raises `RowError`.
Embedder = Callable[[Sequence[str]], Awaitable[list[list[float]]]]
Message = Mapping[str, Any]
Docs = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class EpisodeSettings:
    """Settings that all episodes of a run share. ``docs``: the functions of each class. ``native``:
    functions are offered through the model's chat template."""

    prompts: Prompts
    docs: Mapping[str, Docs]
    native: bool = False
    results: Results = "tool"

    def functions(self, entry: Entry) -> tuple[Docs, Mapping[int, Docs]]:
        """Return the functions offered from the first turn on, and the held-out functions by the
        number of the turn that adds them."""
        held_out = entry.data.get("missed_function", {})
        return split_functions(self.docs, entry.data["involved_classes"], held_out)

    def tools(self, functions: Docs) -> list[dict[str, Any]] | None:
        """Return the tools of native mode; None in prompt mode."""
        return self.prompts.tools(functions) if self.native else None

    def opening(self, messages: Sequence[Message], functions: Docs) -> list[dict[str, Any]]:
        """Return the messages of the first turn, with a system prompt first in prompt mode."""
        return [*map(dict, messages)] if self.native else self.prompts.messages(messages, functions)


@dataclass
class Conversation:
    """A conversation with tools. Its messages are appended to ``context.episode.messages``.
    ``tools`` are offered through the chat template; None in prompt mode."""

    context: EpisodeContext
    execute: Execute
    tools: list[dict[str, Any]] | None = None
    results: Results = "tool"
    turns: list[list[Answer]] = field(default_factory=list)
    observed: list[list[list[str]]] = field(default_factory=list)
    """For each turn, the results of each step with calls."""

    async def run_turn(self, messages: Sequence[Message]) -> None:
        """Run one turn: call the model and execute its calls, until an answer contains no call.

        Raises `Truncated`, with reason "steps" at the step limit; `PromptTooLong` if the very first
        prompt does not fit; and any `RowError` of the model or the tools."""
        self.context.episode.messages += [dict(message) for message in messages]
        answers: list[Answer] = []
        observed: list[list[str]] = []
        self.turns.append(answers)
        self.observed.append(observed)
        while True:
            completion = await self.context.ask(tools=self.tools)
            if isinstance(completion, Truncated):
                raise completion
            answers.append(Answer.from_completion(completion))
            calls = executable_calls(answers[-1])
            if not calls:
                return
            observed.append(await self.execute(calls))
            self.context.episode.messages += self._result_messages(calls, observed[-1])
            if len(observed) >= MAX_STEPS:
                raise Truncated("steps")

    async def play(self, turns: Iterable[Sequence[Message]]) -> str:
        """Run all turns. Return the reason if the conversation was truncated, else ""."""
        try:
            for messages in turns:
                await self.run_turn(messages)
        except Truncated as truncated:
            return truncated.reason
        return ""

    def state(self, ending: str) -> dict[str, Any]:
        """Return the values for `Episode.state`, from which `BFCL.check` computes the verdicts."""
        return {
            "turns": [[answer.as_json() for answer in turn] for turn in self.turns],
            "results": self.observed,
            "ended": ending,
        }

    def _result_messages(
        self, calls: Sequence[str], results: Sequence[str]
    ) -> list[dict[str, Any]]:
        if self.tools is not None:
            return tool_messages(self.context.episode.messages[-1], results)
        messages = [
            {"role": "tool", "name": call, "content": result}
            for call, result in zip(calls, results, strict=True)
        ]
        if self.results == "tool":
            return messages
        return [{"role": "user", "content": repr(messages)}]


class Sandbox:
    """Client of an episode's `Environment`, which may run in another process. ``embed`` is only
    used for vector memory."""

    def __init__(self, session: Session, embed: Embedder | None = None) -> None:
        self._session, self._embed = session, embed

    async def step(self, calls: list[str]) -> list[str]:
        """Run the calls of one step, and return their results in the format that a model sees."""
        if self._embed is not None:
            await self._give_vectors(await self._call("texts", texts=calls))
        return list(await self._call("step", texts=calls))

    async def dump(self) -> str:
        """Return the part of the memory that a prompt shows."""
        return str(await self._call("dump"))

    async def snapshot(self) -> dict[str, Any]:
        """Return the complete memory as JSON values."""
        return dict(await self._call("snapshot"))

    async def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Set the memory to ``snapshot``."""
        if self._embed is not None:
            stores = [part["store"] for part in snapshot.values()]
            await self._give_vectors([text for store in stores for text in store.values()])
        await self._call("restore", snapshot=dict(snapshot))

    async def _give_vectors(self, texts: Sequence[str]) -> None:
        if texts and self._embed is not None:
            embeddings = await self._embed(texts)
            await self._call("vectors", vectors=dict(zip(texts, embeddings, strict=True)))

    async def _call(self, name: str, **arguments: Any) -> Any:
        return (await self._session.call(name, arguments)).value


async def rollout(entry: Entry, context: EpisodeContext, settings: EpisodeSettings) -> Episode:
    """Run the episode of a multi-turn entry. Raises `RowError` if the model or sandbox fails.

    A conversation that the step limit, the context or the deadline truncates keeps its earlier
    results. Held-out functions are added in their turn, in the user message (prompt mode) or as
    tools (native mode). `Episode.state` has ``turns`` (answers, see `Answer.as_json`), ``results``
    (strings of each step) and ``ended``. ``before`` and ``end`` are the sandbox's states at the
    start and at the end; a state that is too large is None."""
    functions, held_out = settings.functions(entry)
    prompts, native = settings.prompts, settings.native
    async with context.sandbox() as session:
        before = await session.state()
        conversation = Conversation(
            context, Sandbox(session).step, settings.tools(functions), settings.results
        )

        def turns() -> Iterator[Sequence[Message]]:
            for number, messages in enumerate(entry.data["question"]):
                if number in held_out:
                    if conversation.tools is not None:
                        more = prompts.tools(held_out[number], hints=0)
                        conversation.tools = [*conversation.tools, *more]
                    text = prompts.more_functions(None if native else held_out[number])
                    messages = [{"role": "user", "content": text}]
                yield settings.opening(messages, functions) if number == 0 else messages

        ending = await conversation.play(turns())
        end = await session.state()
    context.episode.state = {**conversation.state(ending), "before": before, "end": end}
    return context.episode
