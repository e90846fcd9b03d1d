"""Episodes in which the gold calls are made, and in which no call is made."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ace_ray.benchmarks.tau2.options import CATEGORIES
from ace_ray.benchmarks.tau2.tasks import Message
from ace_ray.benchmarks.tau2.upstream_package import STOP
from ace_ray.sandbox.protocol import Scenario
from ace_ray.types import Entry, Episode


def gold_episode(scenario: Scenario, entry: Entry) -> Episode:
    """Return an episode in which each side makes its gold calls, and the agent says everything.

    ``scenario`` is a fresh scenario of the entry."""
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
    """Return an episode in which the agent does nothing and the user ends."""
    return _ended(list(history(entry)), solo=CATEGORIES[entry.category].solo)


def call(
    scenario: Scenario, side: str, call_id: str, name: str, arguments: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """Make a call on a scenario, and yield its messages."""
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
    """Yield the message history of a task in the form of a trajectory."""
    for message in (entry.data.get("initial_state") or {}).get("message_history") or ():
        yield Message.model_validate(message).stored()


def _ended(trajectory: list[dict[str, Any]], *, solo: bool) -> Episode:
    stop = {"role": "assistant" if solo else "user", "content": STOP}
    ended = "agent_stop" if solo else "user_stop"
    state = {"trajectory": [*trajectory, stop], "ended": ended, "stopped": True}
    return Episode(output=STOP, state=state)
