"""How many calls a second one sandbox actor answers: from many episodes at once, and from one.

    python perf/sandbox_calls.py --data DIR [--rounds 5] [--floor 1000]

Each English agent entry makes the calls of its milestones, again and again, in its own scenario.
The sessions live in an actor, as those of an engine worker do, and are opened before the clock
starts. Exit code 1 below the floor. ``without Ray`` is what the same calls cost in one process.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import ray

from ace_ray.benchmarks.acebench.episode.calls import agent_calls
from ace_ray.config import RunConfig, validated
from ace_ray.run import connection
from ace_ray.run.actors.coordinator import start_coordinator
from ace_ray.run.actors.job import Scenarios
from ace_ray.run.entries import entry_table
from ace_ray.run.evaluate import plan_run
from ace_ray.run.planning import cluster
from ace_ray.sandbox.actor import SandboxPool, start_actors
from ace_ray.sandbox.local import LocalSession
from ace_ray.sandbox.protocol import Session

Call = tuple[str, Mapping[str, Any]]
CALLS = 6000
"""At least so many a measurement; a single session makes a third of them."""


class Player:
    """Plays the calls of many episodes, as an engine worker does."""

    async def play(
        self, actors: Sequence[Any], paths: Mapping[int, Sequence[Call]], calls: int
    ) -> tuple[float, float, Counter[str]]:
        """(Openings a second, calls a second, errors by kind), all episodes at once."""
        pool = SandboxPool(actors)
        start = time.perf_counter()
        sessions = await asyncio.gather(*(pool.open(entry) for entry in paths))
        opened = len(sessions) / (time.perf_counter() - start)
        rate, errors = await played(list(zip(sessions, paths.values(), strict=True)), calls)
        await asyncio.gather(*(session.close() for session in sessions))
        return opened, rate, errors


async def played(
    episodes: Sequence[tuple[Session, Sequence[Call]]], calls: int
) -> tuple[float, Counter[str]]:
    """Calls a second when every session repeats its path until all have made ``calls``."""
    each = -(-calls // len(episodes))
    errors: Counter[str] = Counter()

    async def play(session: Session, path: Sequence[Call]) -> None:
        for number in range(each):
            name, arguments = path[number % len(path)]
            errors[(await session.call(name, arguments)).error] += 1

    start = time.perf_counter()
    await asyncio.gather(*(play(session, path) for session, path in episodes))
    return each * len(episodes) / (time.perf_counter() - start), errors


def milestone_calls(gold: Any) -> list[Call]:
    """The calls of an entry's milestones, of the first path where there are several."""
    steps = gold["mile_stone"]
    path = steps if isinstance(steps[0], str) else steps[0]
    found = [agent_calls(step, loop="multi_step", protocol="fixed") for step in path]
    return [(call.name, call.arguments) for calls in found for call in calls or ()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="ACEBench data folder, or mini")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--floor", type=int, default=1000, help="calls a second per actor")
    options = parser.parse_args()

    section = {"name": "acebench", "data": options.data, "languages": ["en"]}
    tree = {
        "model": {"source": "none"},
        "backend": "fake",
        "benchmarks": [{**section, "categories": ["agent"]}],
    }
    plan = plan_run(validated(RunConfig, tree, where="perf"))
    paths = {index: milestone_calls(entry.gold) for index, entry in enumerate(plan.entries)}
    paths = {index: path for index, path in paths.items() if path}
    one = dict([max(paths.items(), key=lambda item: len(item[1]))])
    classes = Counter(
        name for index in paths for name in plan.entries[index].data["involved_classes"]
    )
    print(f"{len(paths)} of {len(plan.entries)} entries have calls; {dict(classes)}")

    def local(chosen: Mapping[int, Sequence[Call]], calls: int) -> float:
        episodes = []
        for index, path in chosen.items():
            entry = plan.entries[index]
            scenario = plan.benchmarks[entry.benchmark].scenario(entry)
            episodes.append((LocalSession(scenario), path))
        return asyncio.run(played(episodes, calls))[0]

    connection.connect()
    entries = entry_table(plan.entries, plan.openings)
    _coordinator = start_coordinator(entries, plan.benchmarks, name="coordinator")  # lives with it
    actors = start_actors(Scenarios("coordinator"), 1, cpus=cluster.SANDBOX_CPUS)
    player = ray.remote(Player).options(num_cpus=1).remote()
    ray.get(player.play.remote(actors, one, 10))  # both processes are up then
    rates: dict[str, list[float]] = {"open": [], "many": [], "one": [], "local": []}
    errors: Counter[str] = Counter()
    for number in range(options.rounds):
        opened, many, found = ray.get(player.play.remote(actors, paths, CALLS))
        _, single, _ = ray.get(player.play.remote(actors, one, CALLS // 3))
        for name, rate in (
            ("open", opened),
            ("many", many),
            ("one", single),
            ("local", local(paths, CALLS)),
        ):
            rates[name].append(rate)
        errors += found
        print(
            f"round {number + 1}: {many:,.0f} calls/s from {len(paths)} episodes, "
            f"{single:,.0f} from one, {rates['local'][-1]:,.0f} without Ray; "
            f"{opened:,.0f} openings/s",
            flush=True,
        )
    ray.shutdown()
    medians = {name: statistics.median(found) for name, found in rates.items()}
    print(f"answers with errors, by kind: {dict(errors)}")
    print(
        f"medians of {options.rounds}: {medians['many']:,.0f} calls/s per actor "
        f"(floor {options.floor:,}), {medians['one']:,.0f} from one episode, "
        f"{medians['local']:,.0f} without Ray, {medians['open']:,.0f} openings/s"
    )
    return 0 if medians["many"] >= options.floor else 1


if __name__ == "__main__":
    sys.exit(main())
