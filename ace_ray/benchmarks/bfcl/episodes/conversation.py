"""A conversation in progress (upstream ``base_handler.inference_multi_turn_prompting`` and
``_FC``): who said what, what ran, and why it ended."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from ace_ray.benchmarks.bfcl.answers import Answer
from ace_ray.benchmarks.bfcl.decode import executable
from ace_ray.benchmarks.context import EpisodeContext, Truncated, tool_results

MAX_STEPS = 21
"""Steps with calls in one turn: upstream's limit is 20, and it stops after one more."""

Results = Literal["tool", "user"]
"""How a prompt-mode model is told what its calls returned: one ``tool`` message a call, named like
the call (upstream's local models), or one user message with all (its API models)."""
Execute = Callable[[list[str]], Awaitable[list[str]]]
"""The results of the calls of one step."""
Message = Mapping[str, Any]
Docs = Sequence[Mapping[str, Any]]


class EpisodePrompts(Protocol):
    """What episodes need of `ace_ray.benchmarks.bfcl.prompts.Prompts`."""

    def messages(self, question: Sequence[Message], functions: Docs) -> list[dict[str, Any]]: ...
    def tools(
        self, functions: Docs, language: Literal["python"] = "python", hints: int = 1
    ) -> list[dict[str, Any]]: ...
    def more_functions(self, functions: Docs | None) -> str: ...
    def memory(self, scenario: str, backend: str, content: str) -> str: ...
    @property
    def agentic(self) -> str: ...


@dataclass
class Conversation:
    """Turns of one conversation, whose messages are the episode's. ``tools`` are offered through
    the model's own template; None in prompt mode."""

    context: EpisodeContext
    execute: Execute
    tools: list[dict[str, Any]] | None = None
    results: Results = "tool"
    turns: list[list[Answer]] = field(default_factory=list)
    observed: list[list[list[str]]] = field(default_factory=list)
    """The results of each step with calls, by turn."""

    async def turn(self, messages: Sequence[Message]) -> None:
        """One turn: the model is asked until its answer holds no call.

        Raises `Truncated`, by "steps" too; `PromptTooLong` where the first prompt of all does not
        fit; other `RowError`s as the model and the tools do.
        """
        self.context.episode.messages += [dict(message) for message in messages]
        answers: list[Answer] = []
        observed: list[list[str]] = []
        self.turns.append(answers)
        self.observed.append(observed)
        while True:
            completion = await self.context.ask(tools=self.tools)
            if isinstance(completion, Truncated):
                raise completion
            answers.append(Answer.of(completion))
            calls = executable(answers[-1])
            if not calls:
                return
            observed.append(await self.execute(calls))
            self.context.episode.messages += self._told(calls, observed[-1])
            if len(observed) >= MAX_STEPS:
                raise Truncated("steps")

    def state(self, ended: str) -> dict[str, Any]:
        """What is stored of the conversation, so that it is scored without an engine."""
        return {
            "turns": [[answer.as_json() for answer in turn] for turn in self.turns],
            "results": self.observed,
            "ended": ended,
        }

    def _told(self, calls: Sequence[str], results: Sequence[str]) -> list[dict[str, Any]]:
        if self.tools is not None:
            return tool_results(self.context.episode.messages[-1], results)
        told = [
            {"role": "tool", "name": call, "content": result}
            for call, result in zip(calls, results, strict=True)
        ]
        return told if self.results == "tool" else [{"role": "user", "content": repr(told)}]


def split_functions(
    entry_data: Mapping[str, Any], docs: Mapping[str, Docs]
) -> tuple[list[Mapping[str, Any]], dict[int, list[Mapping[str, Any]]]]:
    """The functions that a conversation begins with, and those held out until a turn.

    Upstream's ``utils.populate_test_cases_with_predefined_functions``.
    """
    functions = [doc for name in entry_data["involved_classes"] for doc in docs[name]]
    held: dict[int, list[Mapping[str, Any]]] = {}
    for turn, names in entry_data.get("missed_function", {}).items():
        held[int(turn)] = []
        for name in names:
            found = next((doc for doc in functions if doc["name"] == name), None)
            if found is not None:
                functions.remove(found)
                held[int(turn)].append(found)
    return functions, held
