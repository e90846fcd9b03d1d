"""tau2-bench whose turns are scripted while a model answers in full: a benchmark in a local file.

A small model calls no tool well, so each of its answers is generated to its end, as ever, and then
replaced by the turn that the script has: the gold calls, which the tools really run, and what two
sides would say around them. Prompts grow as those of an able model do, and no prompt depends on
what the model wrote.

The script of a task: the user says what it is about (scenario); then, for each gold call, the agent
makes it and tells the user, who answers; where the call is the user's, the agent asks for it, the
user makes it and says so; then the agent says what has to be told, and the user ends. In solo mode
the agent looks at two things of the phone that need no arguments before each gold call, and ends by
``done``. Calls are written in the text protocol (``mode: prompt``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import cycle, islice
from typing import Any

from ace_ray.benchmarks.context import EpisodeContext, Model, RoleModel
from ace_ray.benchmarks.tau2.benchmark import Tau2
from ace_ray.benchmarks.tau2.categories import CATEGORIES
from ace_ray.benchmarks.tau2.data.tasks import UserScenario
from ace_ray.benchmarks.tau2.data.upstream_texts import DONE, STOP
from ace_ray.records import Completion, Entry, Episode, Sampling

EPISODES = 50
"""Tasks of each category, evenly from all of its split."""
USER_TOKENS = 64
"""Of a user's turn at most, and no more than ``sampling.max_tokens``."""
LOOKS = (
    *("check_network_status", "check_sim_status", "check_data_restriction_status"),
    *("run_speed_test", "check_network_mode_preference", "check_vpn_status"),
)
"""Tools of telecom's phone that only read and take no arguments."""
LOOKS_A_CALL = 2


class ScriptedTau2(Tau2):
    """`Tau2` in which both sides say what the script says."""

    name = "tau2_scripted"

    def entries(self) -> Sequence[Entry]:
        found: dict[str, list[Entry]] = {}
        for entry in super().entries():
            found.setdefault(entry.category, []).append(replace(entry, benchmark=self.name))
        return [entry for entries in found.values() for entry in evenly(entries, EPISODES)]

    async def run(self, entry: Entry, context: EpisodeContext) -> Episode:
        turns = script(entry)
        candidate = scripted(context.candidate, turns["assistant"])
        roles = {n: scripted(role, turns.get(n, [])) for n, role in context.roles.items()}
        return await super().run(entry, replace(context, candidate=candidate, roles=roles))

    def role_sampling(self, role: str) -> Sampling:
        return Sampling(max_tokens=USER_TOKENS)


class Scripted:
    """A model that answers in full, and then says what its script says."""

    def __init__(self, model: Model, turns: Sequence[str]) -> None:
        self._model, self._turns = model, iter(turns)

    async def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        sampling: Sampling,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> Completion:
        completion = await self._model.chat(messages, sampling, tools)
        text = next(self._turns, STOP)
        return replace(completion, text=text, reasoning="", raw="", finish_reason="stop")


def scripted(role: RoleModel, turns: Sequence[str]) -> RoleModel:
    return replace(role, model=Scripted(role.model, turns))


def script(entry: Entry) -> dict[str, list[str]]:
    """The turns of each side."""
    criteria = entry.gold or {}
    actions = criteria.get("actions") or ()
    if CATEGORIES[entry.category].solo:
        return {"assistant": list(_solo(actions))}
    agent: list[str] = []
    user = [UserScenario.model_validate(entry.data["user_scenario"]).text()]
    for action in actions:
        made = written(action["name"], action["arguments"])
        name = action["name"].replace("_", " ")
        if action.get("requestor", "assistant") == "user":
            agent.append(f"Please do this on your device: {name}. Tell me what it shows.")
            user += [made, f"I did that: {name}. What is next?"]
        else:
            agent += [made, f"I have done this for you: {name}. Shall I go on?"]
            user.append("Yes, please go on.")
    told = ". ".join(criteria.get("communicate_info") or ("Everything is done",))
    return {"assistant": [*agent, told], "user": [*user, STOP]}


def _solo(actions: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    looks = cycle(LOOKS)
    for action in actions:
        yield from (written(name, {}) for name in islice(looks, LOOKS_A_CALL))
        yield written(action["name"], action["arguments"])
    yield written(DONE, {})


def written(name: str, arguments: Mapping[str, Any]) -> str:
    """A call in the text protocol."""
    call = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{call}\n</tool_call>"


def evenly(entries: Sequence[Entry], most: int) -> list[Entry]:
    """At most ``most``, at even distances."""
    count = min(most, len(entries))
    return [entries[place * len(entries) // count] for place in range(count)]
