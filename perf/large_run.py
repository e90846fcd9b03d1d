"""Large runs: speed, CPU time of a row by process, and whether memory stays flat as rows grow.

    python perf/large_run.py --rows 20000 100000 [--workers 16] [--store s3]
    python perf/large_run.py --rows 8000 --workers 4 --delay 2 --rounds 3 --tree OTHER_CHECKOUT

The mini set, as often as it takes, goes through the whole graph, with engines without weights that
answer after ``--delay`` seconds. Every second the memory and the CPU time of every kind of process
are read from outside. Memory is private; the object store's is what /dev/shm holds more than
before. CPU time is that between the first and the last 5 % of the rows.

The share of time outside the engine is 1 - sum(generation_s) / (workers x IN_FLIGHT x wall).
``--tree`` runs the same config with the code of another checkout, in turns with this one's, and
compares the CPU time of a row.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ace_ray.storage.object_store import open_store
from fake_runs import RUN_ID, Ran, fake_config, watched
from processes import MIB, Watch
from runs import ROOT, of_tree
from s3_server import S3Server

IN_FLIGHT = 512
"""Rows that a worker holds when vLLM batches its default of 256 sequences."""
CPUS = 0.8
"""Logical CPUs of all workers together: they fit a machine of two cores beside the others."""
COMPARED = ("driver", "coordinator", "checker", "writer")


def run_once(
    options: argparse.Namespace, rows: int, output: str, tree: Path, scratch: Path
) -> tuple[Ran, Watch]:
    """Evaluate ``rows`` rows with the code of ``tree``, and print what that took."""
    config = {
        **fake_config(rows, options.delay, options.categories),
        "workers": options.workers,
        "worker_cpus": CPUS / options.workers,
        "concurrency": IN_FLIGHT,
    }
    before, peak = shutil.disk_usage("/dev/shm").used, 0

    def look(watch: Watch) -> None:
        nonlocal peak
        peak = max(peak, shutil.disk_usage("/dev/shm").used - before)

    watch = watched(config, output, scratch, of_tree(tree), every_s=1.0, each_sample=look)
    ran = Ran(f"{output}/{RUN_ID}")
    report(options, f"{output}/{RUN_ID}", ran, watch)
    print(f"object store: {peak / MIB:.0f} MiB of /dev/shm at most", flush=True)
    return ran, watch


def report(options: argparse.Namespace, uri: str, ran: Ran, watch: Watch) -> None:
    timing, rows = ran.summary["timing"], ran.summary["declared"]
    slots, wall = options.workers * IN_FLIGHT, timing["until_stored_s"]
    generated, total_worker_s = ran.generation.sum(), ran.worker_s.sum()
    after = timing["wall_s"] - timing["plan_s"] - timing["engine_start_s"] - wall
    print(
        f"{rows} rows, {ran.summary['scored']} scored, {ran.summary['missing']} missing: "
        f"{rows / wall:.1f} rows/s until stored ({wall:.1f} s; bound "
        f"{slots / options.delay:.0f}); plan {timing['plan_s']:.1f} s, engines up in "
        f"{timing['engine_start_s']:.1f} s, end and summary {after:.1f} s"
    )
    print(
        f"time outside the engine: {1 - generated / (slots * wall):.3f} of all slots, "
        f"{1 - generated / total_worker_s:.3f} of the time that rows spent on workers"
    )
    print(*watch.table(ran.first, ran.last, ran.count), sep="\n")
    sizes = [part.size / MIB for part in open_store(uri).list("rows/")]
    print(
        f"{len(sizes)} parts, {sum(sizes):.1f} MiB; median {statistics.median(sizes):.2f} MiB, "
        f"largest {max(sizes):.2f} MiB"
    )


def compare(results: dict[str, list[tuple[Ran, Watch]]]) -> None:
    """Print the CPU time of a row in both trees: medians of their rounds, and all rounds."""
    this, second_tree = results
    print(f"\n| CPU ms a row | {this} | {second_tree} | {this} / {second_tree} | rounds of each |")
    print("|---|---|---|---|---|")
    for name, kinds in {**{kind: (kind,) for kind in COMPARED}, "sum": COMPARED}.items():
        rounds = [
            [sum(ran.ms_a_row(watch, kind) for kind in kinds) for ran, watch in results[tree]]
            for tree in results
        ]
        ours, theirs = map(statistics.median, rounds)
        per_round = "; ".join(", ".join(f"{ms:.2f}" for ms in side) for side in rounds)
        print(f"| {name} | {ours:.2f} | {theirs:.2f} | {ours / theirs:.3f} | {per_round} |")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000], help="one run each")
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--delay", type=float, default=10.0, help="seconds of one answer")
    parser.add_argument("--store", choices=("local", "s3"), default="local")
    parser.add_argument(
        "--categories", nargs="+", default=["normal", "special"], help="agent: the episodes too"
    )
    parser.add_argument("--tree", type=Path, help="another checkout, compared with this one")
    parser.add_argument("--rounds", type=int, default=1, help="of each tree")
    options = parser.parse_args()
    trees = {"this": ROOT, **({"other": options.tree} if options.tree else {})}
    results: dict[str, list[tuple[Ran, Watch]]] = {name: [] for name in trees}
    scratch = Path(tempfile.mkdtemp(prefix="ace-ray-large-"))
    local: AbstractContextManager[Any] = nullcontext(SimpleNamespace(uri=str(scratch / "runs")))
    try:
        with S3Server() if options.store == "s3" else local as server:
            for number, rows in enumerate(options.rows * options.rounds):
                for name, tree in trees.items():
                    print(f"\nround {number + 1}, {name} checkout", flush=True)
                    output = f"{server.uri}/{name}-{number}"
                    results[name].append(run_once(options, rows, output, tree, scratch))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if options.tree:
        compare(results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
