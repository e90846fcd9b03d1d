"""A cluster of many engine workers, simulated on one machine.

    python perf/many_workers.py --rows 24000 [--workers 64] [--raylets 2]

Rows of 40 distinct sizes go through the whole graph on a Ray cluster of several raylets. Engines
have no weights. Their answers take an exponential time with a mean of ``--delay`` seconds, three in
a hundred 17 times that. Workers x slots / mean delay must be below what the machine carries: some
400 rows/s on two cores with 4 workers. All engines load before the first row starts.

It prints, between the first and the last 5 % of the rows, the share of the workers' slots in which
an answer was being made, CPU time of a row and memory by kind of process, and the seconds from the
last row to ``_SUCCESS``. Exit code 1 below 95 % busy, or with an end of more than 60 s.

With ``--bfcl DATA`` the rows are BFCL's single-turn entries instead, the engines have prefix caches
of 400,000 words, and the share of the prompts that they computed is printed.
"""

from __future__ import annotations

import argparse
import math
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from fake_runs import EDGE, RUN_ID, Ran, fake_config, watched
from processes import Watch
from runs import ROOT, computed, of_tree

SLOW = {"share": 0.03, "times": 17.0}
SIZES = 40
CPUS = 0.04  # logical CPUs of a worker
IDLE = 1.0
"""CPU seconds a second that all engines take together, at most, while they wait for each other."""
BUSY, END_S = 0.95, 60.0


@contextmanager
def cluster(raylets: int, workers: int) -> Iterator[str]:
    """A cluster of ``raylets`` nodes that ends with the context; its address."""
    os.environ.update(
        RAY_AUTH_MODE="token",
        RAY_AUTH_TOKEN=secrets.token_hex(32),
        RAY_USAGE_STATS_ENABLED="0",
        RAY_enable_metrics_collection="0",
        RAY_task_events_report_interval_ms="0",
        RAY_worker_niceness="0",
    )
    from ray.cluster_utils import Cluster

    cpus = math.ceil(workers / raylets) * CPUS
    nodes = Cluster()
    try:
        for number in range(raylets):
            # The first one has room for the other actors of a run as well.
            nodes.add_node(num_cpus=math.ceil(cpus) + (number == 0), include_dashboard=False)
        yield nodes.address
    finally:
        nodes.shutdown()


def run(options: argparse.Namespace, scratch: Path) -> bool:
    config = {
        **fake_config(options.rows, options.delay, ["normal", "special"], sizes=SIZES),
        "workers": options.workers,
        "worker_cpus": CPUS,
        "concurrency": options.slots,
        # So many processes that start at once on few cores are slow, and not dead.
        "engine_stall_timeout_s": 3600,
    }
    if options.bfcl:
        section = {"name": "bfcl", "data": options.bfcl, "categories": ["single_turn"]}
        engine = {"default": "[]", "delay_s": options.delay, "cache_tokens": 400_000}
        config |= {"benchmarks": [section], "engine": engine, "samples": 1}
    gate = scratch / "loaded"
    config["engine"] |= {"exponential": True, "slow": SLOW, "ready_file": str(gate)}

    def open_gate(watch: Watch) -> None:
        # Engines that have loaded wait without work.
        if watch.peaks["engine"] >= options.workers and watch.cores("engine") < IDLE:
            gate.touch()

    with cluster(options.raylets, options.workers) as address:
        watch = watched(
            config,
            str(scratch),
            scratch,
            {**of_tree(options.tree), "RAY_ADDRESS": address},
            every_s=5.0,
            with_siblings=True,
            each_sample=open_gate,
        )
    return report(options, scratch / RUN_ID, watch)


def report(options: argparse.Namespace, folder: Path, watch: Watch) -> bool:
    """Print the figures; True where the workers were busy enough, and the end short enough."""
    ran = Ran(str(folder))
    started, generation = np.sort(ran.started), ran.generation
    edge = max(1, int(len(started) * EDGE))
    began_at, ended_at = started[edge], started[-edge]
    overlap = np.minimum(ran.started + generation, ended_at) - np.maximum(ran.started, began_at)
    names, index = np.unique(ran.workers, return_inverse=True)
    busy_s = np.bincount(index, weights=np.maximum(overlap, 0.0), minlength=len(names))
    busy = busy_s / (options.slots * (ended_at - began_at))
    end_s = (folder / "_SUCCESS").stat().st_mtime - ran.ended_at[-1]
    bound = options.workers * options.slots / generation.mean()
    print(
        f"{ran.summary['declared']} rows, {ran.summary['scored']} scored, "
        f"{ran.summary['missing']} missing; "
        f"{len(names)} workers of {options.slots} slots on {options.raylets} raylets, answers of "
        f"{generation.mean():.1f} s on average, the longest {generation.max():.0f} s; bound "
        f"{bound:.0f} rows/s, carried {ran.count / (ran.last - ran.first):.0f} rows/s"
    )
    print(
        f"busy from the first to the last {EDGE:.0%} of the rows ({ended_at - began_at:.0f} s): "
        f"{busy.mean():.3f} of all slots, the idlest worker {busy.min():.3f}; outside the engine "
        f"{1 - generation.sum() / ran.worker_s.sum():.3f} of the time that rows spent on workers"
    )
    timing = ran.summary["timing"]
    print(
        f"from the last row to _SUCCESS {end_s:.1f} s; at most {watch.peaks['checker']} "
        f"checker(s); plan {timing['plan_s']:.1f} s, engines up in {timing['engine_start_s']:.0f} s"
    )
    print(*watch.table(ran.first, ran.last, ran.count), sep="\n", flush=True)
    if options.bfcl:
        print(f"computed {computed(folder):.3f} of the prompts")
    return bool(busy.mean() >= BUSY and end_s <= END_S)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=24_000)
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--raylets", type=int, default=2)
    parser.add_argument("--slots", type=int, default=16, help="rows at work on a worker")
    parser.add_argument("--delay", type=float, default=14.0, help="mean seconds of an answer")
    parser.add_argument("--bfcl", help="BFCL's data: a folder, or imported")
    parser.add_argument("--tree", default=ROOT, help="another checkout")
    options = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="ace-ray-many-"))
    try:
        return 0 if run(options, scratch) else 1
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
