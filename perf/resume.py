"""How long a resumed run needs to find its pending rows, and a whole one to summarize them, and how
much memory that takes.

    python perf/resume.py [--rows 1000000] [--store s3] [--limit-s 60] [--limit-gib 2]

Stores all rows of a plan but `MISSING` of them as parts of 8,192 rows, as a run of that size would,
one in a thousand failed, and half of those once more, repeated with success. Then a fresh process
plans the run, reads the ledger, and finds the rows without a verdict; their number is known. Only
the reading and finding are measured against the limit of time, and by itself the summary, which
stands between the last row and ``_SUCCESS``; the whole process against that of memory. Prompts are
real, answers are 300 random characters.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
from s3_server import S3Server
from soak_config import fake_config

from ace_ray.config import RunConfig, validated
from ace_ray.records import RULE_SETS
from ace_ray.run.entries import ordered_json
from ace_ray.run.evaluate import plan_run
from ace_ray.run.planning.plan import Plan
from ace_ray.run.storage.parts import FOLDER, new_session, part_names, read_ledger, write_parts
from ace_ray.run.storage.rows import ROWS
from ace_ray.run.summary import summarize
from ace_ray.store import Store, open_store

PART_ROWS = 8192
MISSING = 1000
FAILED_EVERY = 1000
ANSWER = 300


def planned(rows: int) -> Plan:
    return plan_run(validated(RunConfig, fake_config(rows, 0.0), where="perf"))


def write(store: Store, plan: Plan) -> int:
    """Store the rows; returns how many are pending."""
    rows, writer = len(plan.rows) - MISSING, Parts(plan)
    failed = np.arange(rows) % FAILED_EVERY == 0
    session = new_session(part_names(store), "000001")
    for start in range(0, rows, PART_ROWS):
        at = np.arange(start, min(start + PART_ROWS, rows))
        write_parts(store, session, writer.table(at, failed[at]))
    again = np.flatnonzero(failed)[::2]
    session = new_session(part_names(store), "000002")
    write_parts(store, session, writer.table(again, np.zeros(len(again), bool)))
    return MISSING + int(failed.sum()) - len(again)


class Parts:
    """Tables of stored rows, by their positions in the plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        prompts = [ordered_json(plan.benchmarks[e.benchmark].prompt(e)) for e in plan.entries]
        self._of_entry = {
            "messages": pa.array(prompts, pa.large_string()),
            **{
                name: pa.array([getattr(entry, name) for entry in plan.entries])
                for name in ("benchmark", "category", "language", "id", "group")
            },
        }

    def table(self, at: np.ndarray, failed: np.ndarray) -> pa.Table:
        planned = {name: column[at] for name, column in self._plan.rows.columns().items()}
        count, entry = len(at), pa.array(planned["entry"])
        answers = os.urandom(count * ANSWER // 2).hex()
        columns: dict[str, Any] = {
            **{name: values.take(entry) for name, values in self._of_entry.items()},
            "row_id": pa.array(planned["row_id"]).cast(pa.string()),
            "sample": planned["sample"],
            "repeat": planned["repeat"],
            "status": pa.array(np.where(failed, "infra_error", "scored")),
            "error_class": ["TimeoutError" if is_one else None for is_one in failed],
            "output": [answers[i * ANSWER : (i + 1) * ANSWER] for i in range(count)],
            "official_valid": pa.array(~failed),
            "strict_valid": pa.array(~failed),
        }
        alike = {
            "run_id": "soak",
            "attempts": 1,
            "finish_reason": "stop",
            "started_at": datetime.now(UTC),
            "worker": "worker:1",
            "reasoning": "",
            "reasoning_truncated": False,
            **{
                f"{rules}_{part}": "{}" if part == "metrics" else ""
                for rules in RULE_SETS
                for part in ("error_type", "error", "metrics")
            },
        }
        numbers = (pa.types.is_integer, pa.types.is_floating)
        for column in ROWS:
            if column.name not in columns:
                other = 1 if any(is_one(column.type) for is_one in numbers) else None
                value = pa.scalar(alike.get(column.name, other), column.type)
                columns[column.name] = pa.repeat(value, count)
        return pa.table({name: columns[name] for name in ROWS.names}).cast(ROWS)


def measure(uri: str, rows: int) -> dict[str, float]:
    """What the driver does first when a run is resumed; seconds and peak bytes of this process."""
    clock = [time.perf_counter()]
    plan = planned(rows)
    clock.append(time.perf_counter())
    ledger = read_ledger(open_store(uri), print)
    clock.append(time.perf_counter())
    at = ledger.find(plan.rows.ids)
    pending = plan.rows.where(~((at >= 0) & ledger.settled[at]))
    clock.append(time.perf_counter())
    settings = {"max_unscored": 1.0, "backend": "fake", "limit": None}
    manifest = {"declared": rows, "run_id": "soak", "model": {}, "config": settings}
    summary = summarize(manifest, plan.benchmarks, ledger.rows, {})
    clock.append(time.perf_counter())
    plan_s, ledger_s, pending_s, summary_s = np.diff(clock).tolist()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    stored = len(ledger.ids)
    return {
        "plan_s": plan_s,
        "ledger_s": ledger_s,
        "pending_s": pending_s,
        "summary_s": summary_s,
        "scored": summary["scored"],
        "peak_bytes": peak,
        "stored": stored,
        "pending": len(pending),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--store", choices=("local", "s3"), default="local")
    parser.add_argument("--limit-s", type=float, default=60.0)
    parser.add_argument("--limit-gib", type=float, default=2.0)
    parser.add_argument("--measure", metavar="URI", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.rows)))
        return 0
    scratch = Path(tempfile.mkdtemp(prefix="ace-ray-resume-"))
    local: AbstractContextManager[Any] = nullcontext(SimpleNamespace(uri=str(scratch / "runs")))
    try:
        with S3Server() if options.store == "s3" else local as server:
            return resumed(options, f"{server.uri}/soak")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def resumed(options: argparse.Namespace, uri: str) -> int:
    store, began = open_store(uri), time.monotonic()
    pending = write(store, planned(options.rows))
    sizes = [part.size for part in store.list(FOLDER)]
    print(
        f"{len(sizes)} parts of {sum(sizes) >> 20} MiB in all, largest {max(sizes) / 2**20:.1f} "
        f"MiB, written in {time.monotonic() - began:.0f} s",
        flush=True,
    )
    done = subprocess.run(
        [sys.executable, __file__, "--rows", str(options.rows), "--measure", uri],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    seconds, gib = found["ledger_s"] + found["pending_s"], found["peak_bytes"] / 2**30
    print(
        f"{found['stored']} stored rows: ledger {found['ledger_s']:.1f} s, pending rows "
        f"{found['pending_s']:.2f} s (limit of both {options.limit_s:g}); plan "
        f"{found['plan_s']:.1f} s; summary of {found['scored']} scored rows "
        f"{found['summary_s']:.1f} s (limit {options.limit_s:g}); peak {gib:.2f} GiB "
        f"(limit {options.limit_gib:g}); "
        f"{found['pending']} rows are pending"
    )
    if found["pending"] != pending:
        raise SystemExit(f"{pending} rows should be pending")
    slowest = max(seconds, found["summary_s"])
    return 0 if slowest <= options.limit_s and gib <= options.limit_gib else 1


if __name__ == "__main__":
    sys.exit(main())
