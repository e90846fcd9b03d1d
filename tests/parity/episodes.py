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
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from official import answers_of
from text_variations import TEXT_KINDS

from ace_ray.benchmarks.acebench.benchmark import ACEBench
from ace_ray.benchmarks.context import EpisodeContext, RoleModel
from ace_ray.errors import UserError
from ace_ray.sandbox.protocol import LocalSession
from ace_ray.types import Completion, Entry, Episode, Sampling

_LONGEST = 2_000  # characters of a message; the prompts repeat it up to 20 times
_MESSAGES = 40
_NOISE = [
    "Hello", "[hello]", "[a, b]", "[turn_on_wifi(), 5]", "[nosuch(a=1)]", "[1]", "[]", "", "['a']",
    "[turn_on_wifi(), nosuch(b=2)]", "[nosuch(), turn_on_wifi()]", "ok finish conversation",
    "finish conversation", "[login_device()]\n", "Sure: [login_device()]", " [login_device()]",
    "login_device()", "[delete_message(message_id=3)]", "[delete_message(message_id='3')]",
    "[delete_message(message_id=1+2)]", "[delete_message(3)]", "[delete_message(id=3)]",
    "[delete_message(message_id=-3)]", "[delete_message(message_id=[3])]",
    "[search_messages(user_name='Eve', keyword='a')]", "[view_all_reminders()]",
    "[search_reminders(keyword='a')]", "[view_orders(user_name='Eve')]",
    "[get_all_message_times_with_ids()]", "[get_flight_details()]", "[get_latest_message_id()]",
    "[send_message(sender_name='Eve', receiver_name='Frank', message='hi [x]')]",
    "[send_message(sender_name='Eve', receiver_name='Frank', message='finish conversation')]",
    "[view_messages_between_users(sender_name='Eve', receiver_name='Frank')]",
    "[get_user_details(user_id='user1', password='password123')]",
    "[get_reservation_details(user_id='user1')]",
    "[get_reservation_details(reservation_id='res_1')]",
    "[reserve_flight(user_id='user1', password='bad', flight_no='CA1234', cabin='经济舱',"
    " payment_method='cash', baggage_count=1)]",
    "[cancel_reservation(user_id='user1', reservation_id='res_1', reason='x')]",
    "[modify_flight(user_id='user1', reservation_id='res_1', new_cabin='Business Class')]",
    "[modify_flight(user_id='user1', reservation_id='res_1', add_baggage=2)]",
    "[add_reminder(title='a', description='b', time='c')]", "[delete_reminder(reminder_id=1)]",
    "[add_reminder(title='q', description=['x'], time=None)]",
    "[add_reminder(title=abc, description=-5, time=(1,2))]",
    "[add_food_delivery_order(username='Eve', merchant_name='Domino\\'s',"
    " items=[{'product': 'x', 'quantity': 1}])]",
    "[check_balance(user_name='Eve')]", "[get_products(merchant_name='KFC')]",
    "[login_food_platform(username='Eve', password='password123')]", "[turn_on_wifi(on=True)]",
]  # fmt: skip
# Of these, batches are made. Some answers hold records that the calls behind them change.
_CALLS = [
    *[text.strip()[1:-1] for text in _NOISE if text.strip()[:1] == "[" and "(" in text],
    "view_logged_in_users()", "login_food_platform(username='Eve', password='password123')",
    "login_food_platform(username='Frank', password='password456')",
    "login_food_platform(username='Grace', password='password789')",
    "view_reminder_by_title(title='Meeting')", "view_reminder_by_title(title='会议')",
    "view_reminder_by_title(title='a')", "mark_as_notified(reminder_id=1)", "turn_on_wifi()",
    "view_all_reminders()", "view_orders(user_name='Eve')", "view_orders(user_name='Frank')",
    "add_food_delivery_order(username='Eve', merchant_name='KFC Fried Chicken',"
    " items=[{'product': 'Spicy Chicken Burger'}])",
    "add_food_delivery_order(username='Frank', merchant_name='Domino\'s Pizza',"
    " items=[{'product': 'Super Supreme Pizza', 'quantity': 2}])",
    "add_food_delivery_order(username='Eve', merchant_name='达美乐',"
    " items=[{'product': '超级至尊披萨', 'quantity': 1}])",
    "authenticate_user(user_id='user1', password='password123')",
    "get_reservation_details(user_id='user1')", "get_reservation_details(reservation_id='res_1')",
    "find_transfer_flights(origin_city='Beijing', transfer_city='Shanghai',"
    " destination_city='Hangzhou')",
    "find_transfer_flights(origin_city='北京', transfer_city='上海', destination_city='杭州')",
    "reserve_flight(user_id='user1', password='password123', flight_no='CA1234',"
    " cabin='Economy Class', payment_method='bank', baggage_count=1)",
    "reserve_flight(user_id='user1', password='password123', flight_no='CA1234', cabin='经济舱',"
    " payment_method='bank', baggage_count=1)",
    "modify_flight(user_id='user1', reservation_id='res_1', add_baggage=2)",
    "cancel_reservation(user_id='user1', reservation_id='res_1', reason='x')",
    "get_user_details(user_id='user1', password='password123')", "check_balance(user_name='Eve')",
    "nosuch(a=1)", "foo.bar()", "foo.bar(a=1).baz()", "m.turn_on_wifi()", "a.b.login_device()",
    "m.nosuch(x=1)", "turn_on_wifi(self=1)", "turn_on_wifi(x=1, self=1)",
    "turn_on_wifi(self=1, x=1)",
    "delete_message(message_id=1, self=2)", "打开()", "打开.turn_on_wifi()", "turn_on_wifi.x()",
    "delete_message(message_id=a-b)", "nosuch(a=1 + b)", "delete_message(message_id=2025-Q2)",
    "send_message(sender_name='Eve', receiver_name='Frank', message='x')", "login_device(1)",
    "search_messages(user_name='Eve', keyword='a')", "get_products(merchant_name='KFC')",
]  # fmt: skip
_USER = ["yes", "Please do it", "hm", "agent: x", "user: y", "[a]", "finish", "是", ""]


@dataclass
class Played:
    """What came of the episodes of one language."""

    language: str
    counts: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)


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


def script(entry: Entry, rng: random.Random, batches: float = 0.0) -> tuple[list[str], list[str]]:
    """What agent and user say: an ideal path with gaps, noise and altered messages.

    ``batches``: which share of the noise is a list of several calls.
    """

    def noise() -> str:
        if rng.random() >= batches:
            return rng.choice(_NOISE)
        return f"[{', '.join(rng.choice(pool) for _ in range(rng.randint(2, 5)))}]"

    milestones = entry.gold["mile_stone"]
    agent: list[str] = []
    own = {call for steps in milestones for call in ([steps] if isinstance(steps, str) else steps)}
    tools = [function["name"] for function in entry.data["function"]]
    fitting = [call for call in _CALLS if any(name in call for name in tools)]
    pool = [*_CALLS, *fitting * 4, *(step.strip("[]") for step in sorted(own))]
    for step in rng.choice(milestones) if isinstance(milestones[0], list) else milestones:
        while rng.random() < 0.3:
            agent.append(noise())
        if rng.random() < 0.9:
            agent.append(step)
            if rng.random() < 0.15:
                altered = rng.choice(list(TEXT_KINDS.values()))(step, rng) or ""
                agent[-1] = altered[:_LONGEST]
    ending = ["finish conversation"] * 20
    agent += [
        rng.choice([noise(), *ending[:1]]) if batches else rng.choice([*_NOISE, *ending])
        for _ in range(_MESSAGES)
    ]
    said = ["finish conversation" if rng.random() < 0.05 else rng.choice(_USER) for _ in agent]
    return agent, said


def play(data: str, language: str, episodes: int, seed: int = 0, batches: float = 0.0) -> Played:
    """Play ``episodes`` of one language both ways."""
    benchmark = ACEBench.from_options(
        {
            "data": data,
            "languages": [language],
            "categories": ["agent"],
        }
    )
    rng = random.Random(f"{seed}:{language}")
    chosen = [rng.choice(list(benchmark.entries())) for _ in range(episodes)]
    scripts = [script(entry, rng, batches) for entry in chosen]
    lines = [
        {"language": language, "category": e.category, "row": e.data, "agent": agent, "user": user}
        for e, (agent, user) in zip(chosen, scripts, strict=True)
    ]
    found = Played(language)
    answers = answers_of("official_loops.py", lines)
    for entry, (agent, user), answer in zip(chosen, scripts, answers, strict=True):
        found.counts["episodes"] += 1
        if "result" not in answer:
            found.counts[" ".join(map(str, answer.popitem()))] += 1
            continue
        candidate, person = _Script(agent), _Script(user)
        episode = asyncio.run(_ours(benchmark, entry, candidate, person))
        ours = {
            "result": episode.state["after"],
            "process": episode.state["process"],
            "prompts": [[message["content"] for message in seen] for seen in candidate.seen],
            "user_prompts": person.seen,
        }
        found.counts["compared"] += 1
        found.counts["messages"] += len(candidate.seen) + len(person.seen)
        if wrong := [key for key, value in ours.items() if value != answer[key]]:
            found.differences.append(f"{language} {entry.id}: {wrong}\n  agent said {agent[:12]}")
        else:
            found.counts["equal"] += 1
    return found


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
    try:
        found = [
            play(asked.data, lang, asked.episodes, asked.seed, asked.batches)
            for lang in ("en", "zh")
        ]
    except UserError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    for one in found:
        print(one.language, dict(one.counts), *one.differences[:5], sep="\n")
    return int(any(one.differences for one in found))


if __name__ == "__main__":
    sys.exit(main())
