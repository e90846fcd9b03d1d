"""Stored agent episodes played again without a model: what was asked in each of their calls."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.context import EpisodeContext, RoleModel
from ace_ray.errors import PromptTooLong
from ace_ray.records import Completion, Entry, Sampling
from ace_ray.run.planning.plan import Plan
from ace_ray.run.storage.rows import episode_of
from ace_ray.sandbox.local import LocalSession


class Script:
    """A model that answers with the stored steps of an episode and keeps what it was asked."""

    def __init__(self, steps: Sequence[Mapping[str, Any]]) -> None:
        self._answers: Iterator[Mapping[str, Any]] = iter(
            [step for step in steps if step["speaker"] != "execution"]
        )
        self.calls: list[dict[str, Any]] = []

    def answer(self) -> Completion:
        step = next(self._answers, None)
        if step is None:
            raise PromptTooLong("nothing is stored of this call")
        return Completion(
            text=step["text"],
            reasoning=step["reasoning"],
            finish_reason=step["finish_reason"],
            prompt_tokens=step["prompt_tokens"],
            completion_tokens=step["completion_tokens"],
            seconds=step["seconds"],
        )

    async def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        sampling: Sampling,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> Completion:
        answer = self.answer()
        self.calls.append(
            {"messages": [dict(message) for message in messages], "max_tokens": sampling.max_tokens}
        )
        return answer


class Silent(Script):
    """A model in the place of one whose turns the benchmark itself scripts."""

    def __init__(self) -> None:
        super().__init__(())

    def answer(self) -> Completion:
        return Completion(text="")


async def replayed(plan: Plan, rows: Sequence[Mapping[str, Any]]) -> list[list[dict[str, Any]]]:
    """The model calls of every episode, in the order in which the run takes the episodes."""
    stored = {row["row_id"]: row for row in rows}
    episodes = []
    for planned in plan.rows:
        entry = plan.entries[planned.entry]
        benchmark = plan.benchmarks[entry.benchmark]
        episode = episode_of(stored[planned.row_id])
        steps = episode.state["steps"]
        script = Script(steps) if isinstance(steps, list) else Silent()
        bindings = plan.bindings[entry.benchmark]
        context = EpisodeContext(
            candidate=RoleModel(script, plan.config.sampling.sampling()),
            roles={n: RoleModel(script, b.sampling, b.identity) for n, b in bindings.items()},
            open_sandbox=partial(opened, benchmark, entry),
        )
        again = await benchmark.run(entry, context)
        if untimed(again.state) != untimed(episode.state) or again.messages != episode.messages:
            raise SystemExit(f"{entry.id}: the stored episode does not replay")
        episodes.append(script.calls)
    return episodes


async def opened(benchmark: Benchmark, entry: Entry) -> LocalSession:
    return LocalSession(benchmark.scenario(entry))


def untimed(state: Mapping[str, Any]) -> Any:
    """``state`` as stored, without the times of its steps; of a scripted episode, which counts
    them, without what its calls took."""
    plain = json.loads(json.dumps(state))
    if not isinstance(plain["steps"], list):
        return {key: value for key, value in plain.items() if key != "user"}
    for step in plain["steps"]:
        step.pop("seconds", None)
    return plain
