"""Whether every gold path scores, and how many tasks one that does nothing passes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from ace_ray.benchmarks.tau2.categories import CATEGORIES
from ace_ray.benchmarks.tau2.data.tasks import Message
from ace_ray.benchmarks.tau2.data.upstream_texts import STOP
from ace_ray.records import Entry, Episode, Verdict
from ace_ray.sandbox.protocol import Scenario


class Judging(Protocol):
    """What is asked of the benchmark."""

    @property
    def rule_sets(self) -> Sequence[str]: ...
    def dataset(self) -> Sequence[Entry]: ...
    def scenario(self, entry: Entry) -> Scenario: ...
    def verdicts(self, entry: Entry, episode: Episode) -> Mapping[str, Verdict]: ...


def check_gold(benchmark: Judging, say: Callable[[str], object]) -> bool:
    """Whether the gold calls, with all that has to be said, score 1 in every task that has any;
    says so by category, with how many tasks an agent passes that does nothing."""
    fine = True
    by_category: dict[str, list[Entry]] = {}
    for entry in benchmark.dataset():
        by_category.setdefault(entry.category, []).append(entry)
    for name, entries in by_category.items():
        passed = {rules: 0 for rules in benchmark.rule_sets}
        silent, without = 0, []
        for entry in entries:
            verdicts = benchmark.verdicts(entry, gold_episode(benchmark, entry))
            for rules, verdict in verdicts.items():
                passed[rules] += verdict.valid
            if not verdicts["official"].valid:
                without.append(entry.id)
            silent += benchmark.verdicts(entry, silent_episode(entry))["official"].valid
        counts = ", ".join(f"{rules} {count}" for rules, count in passed.items())
        say(
            f"{name}: {len(entries)} tasks; gold paths that score: {counts}; silent agent: {silent}"
        )
        # A task of mock expects a change and has no gold call that makes it.
        if lacking := [one for one in without if _has_gold(entries, one)]:
            fine = False
            say(f"{name}: the gold path does not score in {', '.join(lacking[:5])}")
    return fine


def _has_gold(entries: Sequence[Entry], entry_id: str) -> bool:
    entry = next(one for one in entries if one.id == entry_id)
    return bool((entry.gold or {}).get("actions"))


def gold_episode(benchmark: Judging, entry: Entry) -> Episode:
    """An episode in which the gold calls were made by whom they are of, and all was said."""
    scenario = benchmark.scenario(entry)
    criteria: Mapping[str, Any] = entry.gold or {}
    solo = CATEGORIES[entry.category].solo
    trajectory = list(history(entry))
    for number, action in enumerate(criteria.get("actions") or ()):
        side = "assistant" if solo else action.get("requestor", "assistant")
        trajectory += call(scenario, side, f"gold{number}", action["name"], action["arguments"])
    told = ". ".join(criteria.get("communicate_info") or ("Done",))
    trajectory.append({"role": "assistant", "content": told})
    return _ended(trajectory, solo=solo)


def silent_episode(entry: Entry) -> Episode:
    """One in which the agent does nothing and the user ends."""
    return _ended(list(history(entry)), solo=CATEGORIES[entry.category].solo)


def call(
    scenario: Scenario, side: str, call_id: str, name: str, arguments: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """The messages of one call on a scenario."""
    given = {"requestor": side, "arguments": arguments, "last": True}
    observation = scenario.call(name, given)
    made = {"id": call_id, "name": name, "arguments": json.dumps(arguments)}
    yield {"role": side, "content": "", "tool_calls": [made]}
    yield {
        "role": "tool",
        "id": call_id,
        "requestor": side,
        "content": observation.value,
        "error": bool(observation.error),
    }


def history(entry: Entry) -> Iterator[dict[str, Any]]:
    """Return the messages that a task begins with, as a trajectory has them."""
    for message in (entry.data.get("initial_state") or {}).get("message_history") or ():
        yield Message.model_validate(message).stored()


def _ended(trajectory: list[dict[str, Any]], *, solo: bool) -> Episode:
    stop = {"role": "assistant" if solo else "user", "content": STOP}
    ended = "agent_stop" if solo else "user_stop"
    state = {"trajectory": [*trajectory, stop], "ended": ended, "stopped": True}
    return Episode(output=STOP, state=state)
