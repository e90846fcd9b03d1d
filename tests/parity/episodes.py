"""Whole agent episodes: our loops and sandboxes under the official protocol against upstream's.

``ACEBENCH_OFFICIAL=CLONE python tests/parity/episodes.py --data imported --episodes 1000`` plays
the rows of both agent categories with scripted agents and users, and compares every prompt of the
agent, every message to the user, the recorded state and process. Exit code 1 when any differs.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from official import answers_of, clone
from report import Found
from variations import fuzzed, replaced

from ace_ray.benchmarks.acebench.benchmark import ACEBench
from ace_ray.benchmarks.context import EpisodeContext, RoleModel
from ace_ray.errors import UserError
from ace_ray.sandbox.protocol import LocalSession
from ace_ray.types import Completion, Entry, Episode, Sampling

COLUMNS = ("episodes", "compared", "equal", "messages", "crash", "refused")
_MESSAGES = 40
_TEXTS = [
    "Hello", "[hello]", "[a, b]", "[turn_on_wifi(), 5]", "[1]", "[]", "", "[login_device()]\n",
    "ok finish conversation", "finish conversation", "Sure: [login_device()]", "login_device()",
    "[delete_message(message_id=1+2)]", "[add_reminder(title=abc, description=-5, time=(1,2))]",
]  # fmt: skip
# Beside the calls of all ideal paths. Some answers hold records that later calls of a batch change.
_CALLS = [
    "nosuch(a=1)", "foo.bar(a=1).baz()", "m.turn_on_wifi()", "turn_on_wifi(x=1, self=1)", "打开()",
    "turn_on_wifi()", "turn_on_wifi.x()", "turn_on_wifi(on=True)", "login_device(1)", "nosuch(a=b)",
    "delete_message(message_id='3')", "delete_message(3)", "delete_message(message_id=2025-Q2)",
    "get_latest_message_id()", "get_all_message_times_with_ids()", "view_all_reminders()",
    "send_message(sender_name='Eve', receiver_name='Frank', message='hi [x]')",
    "send_message(sender_name='Eve', receiver_name='Frank', message='finish conversation')",
    "view_reminder_by_title(title='Meeting')", "mark_as_notified(reminder_id=1)",
    "add_reminder(title='q', description=['x'], time=None)", "view_orders(user_name='Eve')",
    "login_food_platform(username='Eve', password='password123')", "view_logged_in_users()",
    "get_reservation_details(user_id='user1')", "get_reservation_details(reservation_id='res_1')",
    "modify_flight(user_id='user1', reservation_id='res_1', add_baggage=2)",
    "cancel_reservation(user_id='user1', reservation_id='res_1', reason='x')",
]  # fmt: skip
_USER = ["yes", "Please do it", "agent: x", "user: y", "[a]", "finish", "是", ""]


class _Script:
    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = iter(texts)
        self.seen: list[Any] = []

    async def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        sampling: Sampling,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> Completion:
        self.seen.append([dict(message) for message in messages])
        return Completion(text=next(self._texts))


def steps_of(entry: Entry) -> list[list[str]]:
    """Return the ideal paths of a row."""
    milestones: list[Any] = entry.gold["mile_stone"]
    return milestones if isinstance(milestones[0], list) else [milestones]


def script(
    entry: Entry, known: Sequence[str], rng: random.Random, batches: float
) -> tuple[list[str], list[str]]:
    """Return what agent and user say: an ideal path with gaps, noise and altered messages.

    ``known`` are calls of the language; ``batches``: share of the noise that is several calls.
    """
    path = rng.choice(steps_of(entry))
    tools = [function["name"] for function in entry.data["function"]]
    pool = [*known, *[call for call in known if any(name in call for name in tools)] * 4]

    def noise() -> str:
        if rng.random() < batches:
            return f"[{', '.join(rng.choice(pool) for _ in range(rng.randint(2, 5)))}]"
        return rng.choice([*_TEXTS, *(f"[{call}]" for call in pool)])

    agent: list[str] = []
    for step in path:
        while rng.random() < 0.3:
            agent.append(noise())
        if rng.random() < 0.9:
            altered = rng.choice([fuzzed, replaced])(step, rng) if rng.random() < 0.15 else step
            agent.append(altered[:2_000])
    ending = 0.5 if batches else 0.25
    agent += ["finish conversation" if rng.random() < ending else noise() for _ in range(_MESSAGES)]
    said = ["finish conversation" if rng.random() < 0.05 else rng.choice(_USER) for _ in agent]
    return agent, said


def play(
    data: str, language: str, episodes: int, seed: int = 0, batches: float = 0.0, *, found: Found
) -> None:
    """Play ``episodes`` of one language both ways."""
    options = {"data": data, "languages": [language], "categories": ["agent"]}
    benchmark = ACEBench.from_options(options)
    rng = random.Random(f"{seed}:{language}")
    rows = list(benchmark.entries())
    chosen = [rng.choice(rows) for _ in range(episodes)]
    paths = [step.strip("[]") for row in rows for path in steps_of(row) for step in path]
    scripts = [script(entry, [*_CALLS, *paths], rng, batches) for entry in chosen]
    lines = [
        {"language": language, "category": e.category, "row": e.data, "agent": agent, "user": user}
        for e, (agent, user) in zip(chosen, scripts, strict=True)
    ]
    answers = answers_of("official_loops.py", [clone()], lines)
    for entry, (agent, user), answer in zip(chosen, scripts, answers, strict=True):
        if "result" not in answer:
            found.count(language, episodes=1, **dict.fromkeys(answer, 1))
            continue
        candidate, person = _Script(agent), _Script(user)
        episode = asyncio.run(_ours(benchmark, entry, candidate, person))
        ours = {
            "result": episode.state["after"],
            "process": episode.state["process"],
            "prompts": [[message["content"] for message in seen] for seen in candidate.seen],
            "user_prompts": person.seen,
        }
        wrong = [key for key, value in ours.items() if value != answer[key]]
        messages = len(candidate.seen) + len(person.seen)
        found.count(language, episodes=1, compared=1, equal=not wrong, messages=messages)
        if wrong:
            found.differences.append(f"{language} {entry.id}: {wrong}\n  agent said {agent[:12]}")


async def _ours(benchmark: ACEBench, entry: Entry, agent: _Script, user: _Script) -> Episode:
    async def open_sandbox() -> LocalSession:
        return LocalSession(benchmark.scenario(entry))

    roles = {"user": RoleModel(user, Sampling())}
    context = EpisodeContext(RoleModel(agent, Sampling()), roles, open_sandbox)
    return await benchmark.run(entry, context)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="imported", help="as in a run's config")
    parser.add_argument("--episodes", type=int, default=500, help="of each language")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batches", type=float, default=0.0, help="share of noise in batches")
    asked = parser.parse_args()
    found = Found()
    try:
        for language in ("en", "zh"):
            play(asked.data, language, asked.episodes, asked.seed, asked.batches, found=found)
    except UserError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return found.print(COLUMNS)


if __name__ == "__main__":
    sys.exit(main())
