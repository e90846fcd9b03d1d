"""A cluster of many engine workers, simulated on one machine.

    python perf/many_workers.py --rows 24000 [--workers 64] [--raylets 2]

Rows of 40 distinct sizes go through the whole graph on a Ray cluster of several raylets. Each
worker holds an engine without weights, whose answers take as long as real ones: exponential with a
mean of ``--delay`` seconds, three in a hundred at a limit of 17 times that. The engines' own bound,
workers x slots / mean delay, has to lie below what the machine carries in all: some 400 rows/s on
two cores with 4 workers, and less with 64, whose processes take a percent of a core each while they
idle. The defaults bound it at 49 rows/s. A worker tells the coordinator of groups of an eighth of
its slots.

On two cores 64 workers load one after another, for more than a minute, and on nodes of their own
all at once: here engines are ready when all have loaded. The first 5 % of the rows are to fill all
slots: rows are 20 times all slots, or more.

It prints how busy the workers were from the first to the last 5 % of the rows (the share of their
slots in which an answer was being made, its nominal time counted, so that too small a machine
shows), what a row costs each kind of process in CPU time between them, how large the processes
became and whether that grows, and the seconds from the last row to ``_SUCCESS``. Exit code 1 if the
workers were less than 95 % busy or the end took more than 60 s.

A million rows: --rows 1000000 --workers 16 --slots 96 --delay 2.5 (bound 415 rows/s, more than two
cores carry; about an hour and a quarter).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
from large_run import COMMAND, MIB, size_of
from processes import family
from soak_config import RUN_ID, fake_config

from ace_ray.run.storage.parts import read_ledger
from ace_ray.store import open_store

SLOW = {"share": 0.03, "times": 17.0}
SIZES = 40
EDGE = 0.05
"""Of the rows, at each end of a run."""
SAMPLE_S = 5.0
CPUS = 0.04
"""Logical CPUs of a worker."""
IDLE = 1.0
"""CPU seconds a second that all engines take together, at most, while they wait for each other."""
BUSY, END_S = 0.95, 60.0
COLUMNS = ["worker", "started_at", "generation_s", "duration_s"]


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

    each = math.ceil(workers / raylets) * CPUS
    nodes = Cluster()
    try:
        for number in range(raylets):
            # The first one has room for the other actors of a run as well.
            nodes.add_node(num_cpus=math.ceil(each) + (number == 0), include_dashboard=False)
        yield nodes.address
    finally:
        nodes.shutdown()


class Watch:
    """CPU time and memory of this script's descendants, sampled."""

    def __init__(self, driver: subprocess.Popen[bytes]) -> None:
        self._driver = driver
        self._cpu: dict[tuple[int, float], tuple[str, float]] = {}
        """Process -> its kind and seconds; those that have ended count on."""
        self.at: list[float] = []
        self.seconds: list[defaultdict[str, float]] = []
        """By kind, of all its processes together."""
        self.private: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
        """By kind: (time, bytes of the largest process)."""
        self.processes: Counter[str] = Counter()
        """Most of a kind at a time."""

    def sample(self) -> None:
        now, found = time.time(), family(os.getpid())
        driver = psutil.Process(self._driver.pid)
        drivers = [driver, *driver.children()[:1]]
        found["driver"] = drivers
        ours = {process.pid for process in drivers}
        for kind, group in found.items():
            alive = [p for p in group if kind == "driver" or p.pid not in ours]
            sizes = []
            for process in alive:
                try:
                    times = process.cpu_times()
                    key = (process.pid, process.create_time())
                    self._cpu[key] = (kind, times.user + times.system)
                except psutil.Error:
                    continue
                if (size := size_of(process)) is not None:
                    sizes.append(size[1])
            if sizes:
                self.private[kind].append((now, max(sizes)))
                self.processes[kind] = max(self.processes[kind], len(sizes))
        total: defaultdict[str, float] = defaultdict(float)
        for kind, seconds in self._cpu.values():
            total[kind] += seconds
        self.at.append(now)
        self.seconds.append(total)

    def cores(self, kind: str) -> float:
        """CPU seconds of a kind in a second, since the sample before the last."""
        if len(self.at) < 3:
            return math.inf
        spent = self.seconds[-1][kind] - self.seconds[-3][kind]
        return float(spent / (self.at[-1] - self.at[-3]))

    def spent(self, kind: str, began: float, ended: float) -> float:
        """CPU seconds of a kind between two times."""
        seconds = [total[kind] for total in self.seconds]
        first, last = np.interp([began, ended], self.at, seconds)
        return float(last - first)

    def largest(self, kind: str, began: float, ended: float) -> float:
        """MiB, 0 where there was none."""
        sizes = [size for at, size in self.private[kind] if began <= at <= ended]
        return float(max(sizes, default=0)) / MIB


def run(options: argparse.Namespace, scratch: Path) -> bool:
    config = {
        **fake_config(options.rows, options.delay, ["normal", "special"], sizes=SIZES),
        "workers": options.workers,
        "worker_cpus": CPUS,
        "concurrency": options.slots,
        # So many processes that start at once on few cores are slow, and not dead.
        "stall_s": 3600,
        "checkers": "auto" if options.checkers == "auto" else int(options.checkers),
    }
    gate = scratch / "loaded"
    config["engine"] |= {"exponential": True, "slow": SLOW, "ready_file": str(gate)}
    (scratch / "config.yaml").write_text(json.dumps(config))
    log = scratch / "driver.log"
    with cluster(options.raylets, options.workers) as address, log.open("wb") as out:
        driver = subprocess.Popen(
            [*COMMAND, str(scratch / "config.yaml"), "--output", str(scratch)],
            stdout=out,
            stderr=out,
            cwd=scratch,
            env={**os.environ, "RAY_ADDRESS": address},
        )
        watch = Watch(driver)
        try:
            while driver.poll() is None:
                watch.sample()
                # Engines that have loaded wait without work.
                if watch.processes["engine"] >= options.workers and watch.cores("engine") < IDLE:
                    gate.touch()
                time.sleep(SAMPLE_S)
        finally:
            driver.terminate()
            driver.wait()
    if driver.returncode:
        raise SystemExit(f"the run ended with {driver.returncode}:\n{log.read_text()[-3000:]}")
    return report(options, scratch / RUN_ID, watch)


def report(options: argparse.Namespace, folder: Path, watch: Watch) -> bool:
    """Prints it; whether the workers were busy, and the end short, enough."""
    store = open_store(str(folder))
    summary: dict[str, Any] = json.loads(store.get("summary.json") or b"{}")
    rows = pa.concat_tables(read_ledger(store).tables(COLUMNS))
    started = rows.column("started_at").cast(pa.int64()).to_numpy() / 1e6
    generation, held = (rows.column(n).to_numpy() for n in ("generation_s", "duration_s"))
    ended = np.sort(started + held)
    edge = max(1, int(len(ended) * EDGE))
    began_at, ended_at = np.sort(started)[edge], np.sort(started)[-edge]
    overlap = np.minimum(started + generation, ended_at) - np.maximum(started, began_at)
    names, index = np.unique(rows.column("worker").to_pylist(), return_inverse=True)
    made = np.bincount(index, weights=np.maximum(overlap, 0.0), minlength=len(names))
    busy = made / (options.slots * (ended_at - began_at))
    end_s = (folder / "_SUCCESS").stat().st_mtime - ended[-1]
    bound = options.workers * options.slots / generation.mean()
    first, last = ended[edge], ended[-edge]
    count = int(((ended > first) & (ended <= last)).sum())
    print(
        f"{summary['declared']} rows, {summary['scored']} scored, {summary['missing']} missing; "
        f"{len(names)} workers of {options.slots} slots on {options.raylets} raylets, answers of "
        f"{generation.mean():.1f} s on average, the longest {generation.max():.0f} s; bound "
        f"{bound:.0f} rows/s, carried {count / (last - first):.0f} rows/s"
    )
    print(
        f"busy from the first to the last {EDGE:.0%} of the rows ({ended_at - began_at:.0f} s): "
        f"{busy.mean():.3f} of all slots, the idlest worker {busy.min():.3f}; outside the engine "
        f"{1 - generation.sum() / held.sum():.3f} of the time that rows spent on workers"
    )
    print(
        f"from the last row to _SUCCESS {end_s:.1f} s; at most {watch.processes['checker']} "
        f"checker(s); plan {summary['timing']['plan_s']:.1f} s, engines up in "
        f"{summary['timing']['engine_start_s']:.0f} s"
    )
    print("| process | at most | CPU ms a row | private MiB, second quarter | last | at most |")
    print("|---|---|---|---|---|---|")
    span = (last - first) / 4
    for kind in sorted(watch.processes, key=lambda kind: -watch.spent(kind, first, last)):
        print(
            f"| {kind} | {watch.processes[kind]} "
            f"| {1000 * watch.spent(kind, first, last) / count:.2f} "
            f"| {watch.largest(kind, first + span, first + 2 * span):.0f} "
            f"| {watch.largest(kind, last - span, last):.0f} "
            f"| {watch.largest(kind, 0.0, math.inf):.0f} |",
            flush=True,
        )
    return bool(busy.mean() >= BUSY and end_s <= END_S)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=24_000)
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--raylets", type=int, default=2)
    parser.add_argument("--slots", type=int, default=16, help="rows at work on a worker")
    parser.add_argument("--delay", type=float, default=14.0, help="mean seconds of an answer")
    parser.add_argument("--checkers", default="auto", help="a number, or auto")
    options = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="ace-ray-many-"))
    try:
        return 0 if run(options, scratch) else 1
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
