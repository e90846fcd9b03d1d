"""What a run's driver holds for each of its rows, without Ray.

    python perf/driver_memory.py [--rows 20000 200000]

For each size a fresh process does what the driver of a run does with rows: it plans them, makes
their blocks, finds them stored (`resume.py` writes them, in a process of its own) and which are
pending. Printed is its private memory after each step, and what that is for each row more.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import deque

import numpy as np
from large_run import MIB, size_of
from psutil import Process
from resume import planned, write

from ace_ray.run.graph import PlannedBlocks, Work
from ace_ray.run.health.processes import give_back_memory
from ace_ray.run.open_run import OpenRun
from ace_ray.run.storage.lease import Lease
from ace_ray.store import open_store

STEPS = ("plan", "blocks", "stored rows", "pending rows")
BLOCK_ROWS = 256


def measured(rows: int) -> dict[str, float]:
    """Rows, and MiB of this process after each step."""
    sizes: dict[str, float] = {}

    def note(step: str) -> None:
        size = size_of(Process())
        assert size is not None
        sizes[step] = size[1] / MIB

    plan = planned(rows)
    note("plan")
    work = Work(0, plan.rows, np.ones(len(plan.rows), np.int32))
    for _ in range(2):  # as Ray looks at them
        deque(PlannedBlocks([work], BLOCK_ROWS), maxlen=0)
    give_back_memory()
    note("blocks")
    with tempfile.TemporaryDirectory(prefix="ace-ray-driver-") as folder:
        store = open_store(folder)
        writer = os.fork()
        if not writer:
            write(store, plan)
            os._exit(0)
        os.waitpid(writer, 0)
        lease = Lease.acquire(store, print)
        run = OpenRun(plan, store, lease, {}, True, 0.0, 0.0, False, print)
        run.read()
        note("stored rows")
        run.pending(again=True)
        run.set_aside()
        note("pending rows")
        lease.release()
    return {"rows": len(plan.rows), **sizes}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[20_000, 200_000])
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measured(options.one)))
        return 0
    print(f"| rows | {' | '.join(STEPS)} | bytes a row |")
    print("|---" * (len(STEPS) + 2) + "|")
    before: dict[str, float] = {}
    for rows in options.rows:
        command = [sys.executable, __file__, "--one", str(rows)]
        found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        more = ""
        if before:
            grown = max(found[step] for step in STEPS) - max(before[step] for step in STEPS)
            more = f"{grown * MIB / (found['rows'] - before['rows']):.0f}"
        sizes = " | ".join(f"{found[step]:.1f} MiB" for step in STEPS)
        print(f"| {found['rows']} | {sizes} | {more} |", flush=True)
        before = found
    return 0


if __name__ == "__main__":
    sys.exit(main())
