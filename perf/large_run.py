"""Large runs: speed, and whether memory stays flat as rows grow.

    python perf/large_run.py --rows 20000 100000 [--workers 16] [--store s3]

The mini set, as often as it takes, goes through the whole graph: an engine without weights that
answers after ``--delay`` seconds on each of ``--workers`` workers with fractional CPUs, checker,
writer, store. Every second the memory of the driver and of every kind of process is read from
outside: resident bytes, and of these the private ones, without the pages of the object store. What
the object store holds is what the raylet notes in its debug_state.txt, told to do so every second;
its footprint is what /dev/shm holds more than before (freed objects leave their pages there).

A worker holds `IN_FLIGHT` rows. The share of time outside the engine is that of the slot-seconds,
from the first engine's start to the last stored part, in which no row of a slot was being answered:
1 - sum(generation_s) / (workers x IN_FLIGHT x wall). Where the engines could answer more rows a
second (``bound``) than this machine can carry, that says how much larger the machine should be.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pyarrow.compute as pc
import yaml
from processes import family
from s3_server import S3Server
from soak_config import RUN_ID, fake_config

from ace_ray.run.storage.parts import FOLDER, read_ledger
from ace_ray.store import open_store

MIB = 1 << 20
IN_FLIGHT = 512
"""What a worker holds when vLLM batches its default of 256 sequences."""
CPUS = 0.8
"""Logical CPUs of all workers together: they fit a machine of two cores beside the others."""
COMMAND = (sys.executable, "-m", "ace_ray.cli", "evaluate")
SHOWN = ("driver", "engine", "checker", "writer", "sandbox", "coordinator", "raylet", "gcs")
_NOTED = {
    "objects": re.compile(r"num local plasma objects: (\d+)"),
    "object_bytes": re.compile(r"- pinned objects size: (\d+)"),
}


@dataclass
class Memory:
    """What a driver and its descendants held, sampled."""

    samples: int = 0
    sizes: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """Kind -> (resident, private) bytes of its largest process at each sample."""
    peak: dict[str, int] = field(default_factory=dict)
    """Most at any sample: ``objects``, ``object_bytes``, ``shm_bytes``."""

    def sample(self, command: int, shm_before: int) -> None:
        driver = psutil.Process(command).children()[:1] or [psutil.Process(command)]
        found = {**family(command), "driver": driver}
        for name, group in found.items():
            if known := [size for process in group if (size := size_of(process))]:
                column = self.sizes.setdefault(name, [(0, 0)] * self.samples)
                column.append((max(s[0] for s in known), max(s[1] for s in known)))
        self.samples += 1
        noted = {name: 0 for name in _NOTED}
        for process in found.get("raylet", []):
            noted = noted_by(process)
        noted["shm_bytes"] = shutil.disk_usage("/dev/shm").used - shm_before
        self.peak = {name: max(value, self.peak.get(name, 0)) for name, value in noted.items()}

    def line(self, name: str) -> str:
        column = self.sizes[name]
        quarter = max(1, len(column) // 4)
        early = max(size[1] for size in column[quarter : 2 * quarter] or column)
        late = max(size[1] for size in column[-quarter:])
        resident, private = (max(size[i] for size in column) / MIB for i in (0, 1))
        return (
            f"  {name:8} {resident:6.0f} MiB resident, {private:6.0f} private at most; private in "
            f"the second quarter {early / MIB:.0f}, in the last {late / MIB:.0f}"
        )


def size_of(process: psutil.Process) -> tuple[int, int] | None:
    try:
        memory = process.memory_info()
    except psutil.Error:
        return None
    return memory.rss, memory.rss - memory.shared


def noted_by(raylet: psutil.Process) -> dict[str, int]:
    """What the raylet last wrote of its object store; zeros when it wrote nothing yet."""
    try:
        (logs,) = (a[10:] for a in raylet.cmdline() if a.startswith("--log_dir="))
        note = Path(logs, "debug_state.txt").read_text()
    except (psutil.Error, OSError, ValueError):
        note = ""
    found = {name: pattern.search(note) for name, pattern in _NOTED.items()}
    return {name: int(match[1]) if match else 0 for name, match in found.items()}


def run_once(options: argparse.Namespace, rows: int, output: str, scratch: Path) -> None:
    slots = options.workers * IN_FLIGHT
    config = {
        **fake_config(rows, options.delay, options.categories),
        "workers": options.workers,
        "worker_cpus": CPUS / options.workers,
        "concurrency": IN_FLIGHT,
        "checkers": "auto" if options.checkers == "auto" else int(options.checkers),
    }
    (scratch / "config.yaml").write_text(yaml.safe_dump(config))
    shm, memory = shutil.disk_usage("/dev/shm").used, Memory()
    with (scratch / "driver.log").open("wb") as log:
        driver = subprocess.Popen(
            [*COMMAND, str(scratch / "config.yaml"), "--output", output],
            stdout=log,
            stderr=log,
            cwd=scratch,
            env={**os.environ, "RAY_debug_dump_period_milliseconds": "1000"},
        )
        try:
            while driver.poll() is None:
                memory.sample(driver.pid, shm)
                time.sleep(1)
        finally:
            driver.terminate()
            driver.wait()
    if driver.returncode:
        tail = (scratch / "driver.log").read_text(errors="replace")[-3000:]
        raise SystemExit(f"the run ended with {driver.returncode}:\n{tail}")
    report(f"{output}/{RUN_ID}", slots, options.delay, memory)


def report(uri: str, slots: int, delay_s: float, memory: Memory) -> None:
    store = open_store(uri)
    summary: dict[str, Any] = json.loads(store.get("summary.json") or b"{}")
    timing, rows = summary["timing"], summary["declared"]
    wall = timing["until_stored_s"]
    sums = [
        (pc.sum(table.column("generation_s")).as_py(), pc.sum(table.column("duration_s")).as_py())
        for table in read_ledger(store).tables(["generation_s", "duration_s"])
    ]
    generated, held = (sum(pair[i] for pair in sums) for i in (0, 1))
    sizes = [part.size for part in store.list(FOLDER)]
    after = timing["wall_s"] - timing["plan_s"] - timing["engine_start_s"] - wall
    print(
        f"{rows} rows, {summary['scored']} scored, {summary['missing']} missing: "
        f"{rows / wall:.1f} rows/s until stored ({wall:.1f} s; bound {slots / delay_s:.0f}); "
        f"plan {timing['plan_s']:.1f} s, engines up in {timing['engine_start_s']:.1f} s, "
        f"end and summary {after:.1f} s"
    )
    print(
        f"  time outside the engine: {1 - generated / (slots * wall):.3f} of all slots, "
        f"{1 - generated / held:.3f} of the time that rows spent on workers"
    )
    for name in SHOWN:
        if name in memory.sizes:
            print(memory.line(name))
    print(
        f"  object store: {memory.peak['objects']} objects, "
        f"{memory.peak['object_bytes'] / MIB:.1f} MiB pinned, "
        f"{memory.peak['shm_bytes'] / MIB:.1f} MiB of /dev/shm at most"
    )
    print(
        f"  {len(sizes)} parts, {sum(sizes) / MIB:.1f} MiB; median "
        f"{statistics.median(sizes) / MIB:.2f} MiB, largest {max(sizes) / MIB:.2f} MiB",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000], help="one run each")
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--checkers", default="auto", help="a number, or auto")
    parser.add_argument("--delay", type=float, default=10.0, help="seconds of one answer")
    parser.add_argument("--store", choices=("local", "s3"), default="local")
    parser.add_argument(
        "--categories", nargs="+", default=["normal", "special"], help="agent: the episodes too"
    )
    options = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="ace-ray-large-"))
    local: AbstractContextManager[Any] = nullcontext(SimpleNamespace(uri=str(scratch / "runs")))
    try:
        with S3Server() if options.store == "s3" else local as server:
            for number, rows in enumerate(options.rows):
                run_once(options, rows, f"{server.uri}/run-{number}", scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
