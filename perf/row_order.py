"""Simulate the order of rows with known durations (`durations_from`), and without them.

    python perf/row_order.py --acebench FOLDER [--workers 8 64] [--samples 1 4 16] [--runs RUN ...]

The product's plan, layout and blocks feed workers in which a row takes its seconds whatever else
runs. Durations are lognormal (sigma 1), or drawn from the rows of stored ``--runs`` (their logs
scaled to sigma 1 or more), and cut at 12 medians. In each run, the earlier one too, a row takes its
entry's time times a factor of sigma ``--noise`` (0.1 to 0.4 in BFCL's result files of 2024).
Workers keep the prefixes of all prompts of single calls, in parts of 16 tokens of 4 characters.
"""

from __future__ import annotations

import argparse
import heapq
import math
from collections import deque
from itertools import accumulate, count, product
from types import SimpleNamespace
from typing import Any

import numpy as np

from ace_ray.cluster.resources import Resources
from ace_ray.config.schema import RunConfig
from ace_ray.pipeline.evaluate import plan_run
from ace_ray.pipeline.graph import Layout, Work, blocks, layout
from ace_ray.pipeline.planning.plan import Plan
from ace_ray.storage.durations import Durations
from runs import stored_columns

PART, ROUNDS, CUT = 64, 4, 12.0


def simulate(work: Work, cut: Layout, team: list[Any], took: Any, parts: Any) -> list[float]:
    """Return the times at which rows end. ``took``: by row id; ``parts``: by entry. A worker
    holds `held` blocks; of `calls` of them, rows are admitted in groups; `rows` of these run."""
    queue = deque(table.to_pylist() for table in blocks(work, cut.size))
    events, ends, number, size = list[Any](), [0.0], count(), max(1, cut.concurrency // 8)
    while True:
        while queue and (idlest := min(team, key=lambda w: w.held)).held < cut.calls + cut.spare:
            idlest.blocks.append(queue.popleft())
            idlest.held += 1
        for worker in team:
            while worker.blocks and worker.calls < cut.calls:
                block, worker.calls = worker.blocks.popleft(), worker.calls + 1
                left = [len(block)]
                worker.groups += [(block[at : at + size], left) for at in range(0, left[0], size)]
            while worker.groups and worker.rows + len(worker.groups[0][0]) <= cut.concurrency:
                group, left = worker.groups.popleft()
                worker.rows += len(group)
                for row in group:
                    worker.cache.update(parts[row["entry"]])
                    end_s = ends[-1] + took[row["row_id"]]
                    heapq.heappush(events, (end_s, next(number), worker, left))
        if not events:
            return ends[1:]
        end_s, _, worker, left = heapq.heappop(events)
        ends.append(end_s)
        left[0] -= 1
        worker.rows -= 1
        worker.calls, worker.held = worker.calls - (not left[0]), worker.held - (not left[0])


def stored_logs(uris: list[str], benchmark: str) -> np.ndarray:
    """Return the logs of the seconds of stored rows, relative to their median."""
    rows = [row for u in uris for row in stored_columns(u, ["benchmark", "duration_s"]).to_pylist()]
    logs = np.log([max(1e-3, r["duration_s"]) for r in rows if r["benchmark"] == benchmark])
    return (logs - np.median(logs)) * max(1.0, 1.0 / logs.std())


def compare(plan: Plan, workers: int, slots: int, noise: float, logs: Any) -> np.ndarray:
    """Return total seconds, tail (the time from 90 % of the rows) and computed share without
    durations, the same with them, and the ratio of the totals, for each round."""
    rows, entries, single = plan.rows, len(plan.entries), not plan.rows.interactive.any()
    job: Any = SimpleNamespace(config=plan.config.model_copy(update={"concurrency": slots}))
    cut = layout(job, Resources(workers, 1.0, 1, 1), len(rows), int(rows.interactive.sum()))
    cuts = [[o[at : at + PART] for at in range(0, len(o), PART)] for o in plan.openings]
    parts = [[*accumulate(c, lambda a, b: hash((a, b)), initial=0)] * single for c in cuts]
    tokens, rounds = max(1, sum(len(parts[entry]) for entry in rows.entry.tolist())), []
    for seed in range(ROUNDS):
        draw = np.random.default_rng(seed)
        base = np.exp(draw.normal(0, 1, entries) if logs is None else draw.choice(logs, entries))
        now = np.minimum(base[rows.entry] * draw.lognormal(0, noise, len(rows)), CUT)
        earlier = base * draw.lognormal(0, noise, (plan.config.samples, entries))
        took, figures = dict(zip(rows.ids.astype(str).tolist(), now.tolist(), strict=True)), []
        for known in (np.zeros(entries), np.minimum(earlier, CUT).mean(axis=0)):
            work = Work(0, rows, np.ones(len(rows)), Durations(known, known, np.ones(entries)))
            idle = {"held": 0, "calls": 0, "rows": 0}
            lists = [{"blocks": deque(), "groups": deque(), "cache": set()} for _ in range(workers)]
            team = [SimpleNamespace(**idle, **queues) for queues in lists]
            ends = simulate(work, cut, team, took, parts)
            computed = sum(len(worker.cache) for worker in team) / tokens
            figures += [ends[-1], ends[-1] - ends[math.ceil(0.9 * len(ends)) - 1], computed]
        rounds.append([*figures, figures[3] / figures[0]])
    return np.array(rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--acebench", default="mini", help="ACEBench's data: a folder, or mini")
    parser.add_argument("--workers", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--samples", type=int, nargs="+", default=[1, 4, 16], help="of episodes")
    parser.add_argument("--slots", type=int, default=8, help="rows at work on a worker")
    parser.add_argument("--noise", type=float, default=0.35)
    parser.add_argument("--runs", nargs="+", help="stored runs whose durations are drawn")
    options = parser.parse_args()
    sections: dict[str, dict[str, Any]] = {
        "ACEBench agent": {"name": "acebench", "data": options.acebench, "categories": ["agent"]},
        "BFCL multi-turn": {"name": "bfcl", "data": "installed", "categories": ["multi_turn"]},
        "tau2": {"name": "tau2", "data": "installed"},
        "BFCL single-turn": {"name": "bfcl", "data": "installed", "categories": ["single_turn"]},
    }
    for (name, section), samples in product(sections.items(), options.samples):
        tree = {"model": {"source": "fake"}, "backend": "fake", "benchmarks": [section]}
        tree |= {"samples": samples, "sampling": {"temperature": 0.7}}
        plan = plan_run(RunConfig.model_validate(tree))
        logs = stored_logs(options.runs, section["name"]) if options.runs else None
        for workers in options.workers if plan.rows.interactive.any() or samples == 1 else ():
            rounds = compare(plan, workers, options.slots, options.noise, logs)
            total, tail, share, known, known_tail, known_share, ratio = rounds.mean(axis=0)
            rows, worst = len(plan.rows), rounds[:, 6].max()
            print(f"| {name} | {rows} | {workers} | {rows / workers / options.slots:.1f}", end=" ")
            print(f"| {total:.1f} | {known:.1f} | {ratio:.3f} (at most {worst:.3f})", end=" ")
            print(f"| {tail:.1f} | {known_tail:.1f} | {known_tail / tail:.2f}", end=" ")
            print(f"| {share:.3f} | {known_share:.3f} |", flush=True)


if __name__ == "__main__":
    main()
