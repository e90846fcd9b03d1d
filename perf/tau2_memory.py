"""Memory and time of tau2-bench's environments: a sandbox actor and its limited process with 1, 100
and 500 open episodes, beside what a database per episode would take.

    python perf/tau2_memory.py [--domains airline retail telecom] [--episodes 1 100 500]

Each domain has a sandbox actor of its own, as a run has, and episodes of its tasks are opened there
one after another, tasks in turns, and stay open. Each makes all gold calls of its task (at least
one call: without any, one that fails), so that the records which tools change have been copied.
``private`` is memory that no other process shares (USS). Times are medians over all episodes, as
the worker that plays an episode waits: through the actor and the limited process. The first episode
of an actor also starts its limited process and loads the database; it is shown apart.

``per episode`` is what the limited process grows by between the second and the last number of
episodes. ``a copy`` is what a deep copy of the databases takes (``--copies`` of them, of small ones
more, in a process of its own, with the classes and data of the limited process), and the time to
make one.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import psutil
import ray

from ace_ray.benchmarks.tau2.categories import DOMAINS, LEADERBOARD
from ace_ray.benchmarks.tau2.data.upstream_package import UpstreamPackage
from ace_ray.benchmarks.tau2.environment.environment import Domain
from ace_ray.benchmarks.tau2.environment.sources import ToolSources, tool_sources
from ace_ray.config import RunConfig, validated
from ace_ray.records import Entry
from ace_ray.run import connection
from ace_ray.run.actors.coordinator import start_coordinator
from ace_ray.run.actors.job import Scenarios
from ace_ray.run.entries import entry_table
from ace_ray.run.evaluate import plan_run
from ace_ray.run.planning import cluster
from ace_ray.run.planning.plan import Plan
from ace_ray.sandbox.actor import SandboxPool, start_actors
from ace_ray.sandbox.protocol import Session

MIB = 1 << 20
SMALL_BYTES = 4 * MIB
"""Of a small database so many copies are made that their texts would have this size."""


@dataclass
class Found:
    """Of one domain: MiB by number of open episodes (rss and private of the actor, then of its
    limited process), and times, s."""

    memory: dict[int, tuple[float, float, float, float]] = field(default_factory=dict)
    first_open_s: float = 0.0
    opens_s: list[float] = field(default_factory=list)
    calls_s: list[float] = field(default_factory=list)
    failed: int = 0
    processes: set[int] = field(default_factory=set)
    """Limited processes that were there, by id: a second one says that the first was ended."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="installed")
    parser.add_argument("--domains", nargs="+", choices=DOMAINS, default=list(LEADERBOARD))
    parser.add_argument("--episodes", nargs="+", type=int, default=[1, 100, 500])
    parser.add_argument("--copies", type=int, default=5)
    options = parser.parse_args()
    section = {"name": "tau2", "data": options.data, "domains": options.domains}
    tree = {"model": {"source": "none"}, "backend": "fake", "benchmarks": [section]}
    plan = plan_run(validated(RunConfig, tree, where="perf"))
    connection.connect()
    _coordinator = start_coordinator(  # lives with this name
        entry_table(plan.entries, plan.openings), plan.benchmarks, name="coordinator"
    )
    lines = []
    for domain in options.domains:
        found = asyncio.run(measured(plan, domain, sorted(options.episodes)))
        lines += rows(domain, found, copied(options.data, domain, options.copies))
        print(
            f"{domain}: {len(found.calls_s)} calls, {found.failed} failed; first episode "
            f"{1000 * found.first_open_s:.0f} ms; limited processes: {len(found.processes)}",
            flush=True,
        )
    ray.shutdown()
    print("\n".join([*HEAD, *lines]))
    return 0


async def measured(plan: Plan, domain: str, numbers: Sequence[int]) -> Found:
    """Open episodes of ``domain`` in a fresh actor up to each of ``numbers``."""
    indices = [place for place, entry in enumerate(plan.entries) if entry.category == domain]
    actors = start_actors(Scenarios("coordinator"), 1, cpus=cluster.SANDBOX_CPUS)
    process = psutil.Process(ray.get(actors[0].__ray_call__.remote(lambda _: os.getpid())))
    pool, found = SandboxPool(actors), Found()
    sessions: list[Session] = []  # open until the actor ends
    for number in numbers:
        while len(sessions) < number:
            index = indices[len(sessions) % len(indices)]
            start = time.perf_counter()
            session = await pool.open(index)
            found.opens_s.append(time.perf_counter() - start)
            sessions.append(session)
            await play(session, plan.entries[index], found)
        found.memory[number] = memory_of(process, found)
    found.first_open_s = found.opens_s[0]
    ray.kill(actors[0])
    return found


async def play(session: Session, entry: Entry, found: Found) -> None:
    """Make the gold calls of a task."""
    actions: Sequence[Mapping[str, Any]] = (entry.gold or {}).get("actions") or ()
    for action in actions or [{"name": "none", "arguments": {}}]:
        given = {
            "requestor": action.get("requestor", "assistant"),
            "arguments": action["arguments"],
            "last": True,
        }
        start = time.perf_counter()
        observation = await session.call(action["name"], given)
        found.calls_s.append(time.perf_counter() - start)
        found.failed += bool(observation.error)


def memory_of(actor: psutil.Process, found: Found) -> tuple[float, float, float, float]:
    children = actor.children()
    if len(children) != 1:
        raise SystemExit(f"the sandbox actor has {len(children)} child processes, expected one")
    found.processes.add(children[0].pid)
    own, child = actor.memory_full_info(), children[0].memory_full_info()
    return (own.rss / MIB, own.uss / MIB, child.rss / MIB, child.uss / MIB)


def copied(data: str, domain: str, count: int) -> tuple[float, float]:
    """MiB and seconds of a deep copy of the domain's databases."""
    sources = tool_sources(UpstreamPackage.locate(data), domain)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        return pool.submit(_copied, sources, count).result()


def _copied(sources: ToolSources, count: int) -> tuple[float, float]:
    domain = Domain.of(sources.domain, sources.source_texts(), sources.where, known=sources.known)
    texts = sources.database_texts()
    domain.load(texts)
    count = max(count, SMALL_BYTES // sum(map(len, texts.values())))
    kept = [[base.model_copy(deep=True) for base in domain.bases.values()]]  # warm
    gc.collect()
    process = psutil.Process()
    before, start = process.memory_full_info().uss, time.perf_counter()
    kept += [[base.model_copy(deep=True) for base in domain.bases.values()] for _ in range(count)]
    seconds = time.perf_counter() - start
    return (process.memory_full_info().uss - before) / MIB / count, seconds / count


HEAD = (
    "| domain | episodes | actor RSS, private, MiB | limited process RSS, private, MiB "
    "| per episode | a copy of the databases | so many copies | open | call |",
    "|---|---|---|---|---|---|---|---|---|",
)


def rows(domain: str, found: Found, copy: tuple[float, float]) -> list[str]:
    """The lines of a domain in the table; what holds for all of its lines is in the last."""
    copy_mib, copy_s = copy
    lines = []
    numbers = list(found.memory)
    for number, (rss, private, child_rss, child_private) in found.memory.items():
        cells = [domain, f"{number:,}", f"{rss:.0f}, {private:.0f}"]
        cells += [f"{child_rss:.0f}, {child_private:.0f}", "", "", f"{number * copy_mib:,.0f} MiB"]
        cells += ["", ""]
        if number == numbers[-1]:
            before = numbers[-2] if len(numbers) > 1 else number
            grown = child_private - found.memory[before][3]
            per = f"{1024 * grown / (number - before):.0f} KiB" if number > before else ""
            cells[4:6] = [per, f"{1024 * copy_mib:,.0f} KiB, {1000 * copy_s:.0f} ms"]
            opens = statistics.median(found.opens_s[1:] or found.opens_s)
            cells[7:] = [
                f"{1000 * opens:.1f} ms",
                f"{1000 * statistics.median(found.calls_s):.1f} ms",
            ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
