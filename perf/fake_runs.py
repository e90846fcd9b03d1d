"""Runs on the engine without weights: their config, one run that is watched, and its rows."""

from __future__ import annotations

import json
import math
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ace_ray.benchmarks.acebench.gold import render_gold
from ace_ray.benchmarks.registry import make_benchmark
from ace_ray.storage.object_store import open_store
from processes import Watch
from runs import COMMAND, stored_columns

RUN_ID = "fake"
EDGE = 0.05
"""Share of the rows, at each end of a run, in which figures of a row do not count."""

_BANK = "login_account(user_name='Yara', password='kiwi33'), deposit_money(amount=5)"
_TEXT = "send_message(sender_name='Timo', receiver_name='Yara', message='Dinner?')"
_PHONE = f"turn_on_wifi(), login_device(), {_TEXT}"


def fake_config(
    rows: int, delay_s: float, categories: Sequence[str] = ("all",), sizes: int = 0
) -> dict[str, Any]:
    """At least ``rows`` rows: ACEBench's mini set, as often as it takes.

    The engine knows the right answers of single calls; as an agent it makes calls that each change
    the state of their sandbox once more. With ``sizes`` it reasons before it answers, in texts of
    that many different lengths (40: from 100 to 4,000 characters).
    """
    section = mini_set(categories)
    entries = make_benchmark("acebench", section).dataset()
    replies = {}
    for number, entry in enumerate(entries):
        if not entry.category.startswith("agent_"):
            answer = render_gold(entry)
        elif "MessageApi" in entry.data["involved_classes"]:
            answer = f"[{_PHONE}]"
        else:
            answer = f"[{_BANK}]"
        thought = f"<think>{'0123456789' * 10 * (1 + number % sizes)}</think>" if sizes else ""
        replies[entry.data["question"]] = thought + answer
    return {
        "run_id": RUN_ID,
        "model": {"source": "fake"},
        "backend": "fake",
        "benchmarks": [{"name": "acebench", **section}],
        "engine": {"replies": replies, "default": f"[{_PHONE}]", "delay_s": delay_s},
        "samples": math.ceil(rows / len(entries)),
    }


def mini_set(categories: Sequence[str]) -> dict[str, Any]:
    return {"data": "mini", "categories": list(categories), "max_messages": 8}


def watched(
    config: Mapping[str, Any],
    output: str,
    scratch: Path,
    environment: Mapping[str, str],
    *,
    every_s: float,
    with_siblings: bool = False,
    each_sample: Callable[[Watch], object] = lambda watch: None,
) -> Watch:
    """Evaluate ``config`` and sample its processes, with ``with_siblings`` all of this command."""
    (scratch / "config.yaml").write_text(json.dumps(config))
    log = scratch / "driver.log"
    with log.open("wb") as out:
        driver = subprocess.Popen(
            [*COMMAND, "evaluate", str(scratch / "config.yaml"), "--output", output],
            stdout=out,
            stderr=out,
            cwd=scratch,
            env=dict(environment),
        )
        watch = Watch(os.getpid() if with_siblings else driver.pid, driver.pid)
        try:
            while driver.poll() is None:
                watch.sample()
                each_sample(watch)
                time.sleep(every_s)
        finally:
            driver.terminate()
            driver.wait()
    if driver.returncode:
        log_tail = log.read_text(errors="replace")[-3000:]
        raise SystemExit(f"the run ended with {driver.returncode}:\n{log_tail}")
    return watch


class Ran:
    """A run that has ended: its summary, and when its rows began and ended."""

    def __init__(self, uri: str) -> None:
        self.summary: dict[str, Any] = json.loads(open_store(uri).get("summary.json") or b"{}")
        columns = ["worker", "started_at", "generation_s", "duration_s"]
        rows = stored_columns(uri, columns)
        self.workers = rows.column("worker").to_pylist()
        self.started = rows.column("started_at").cast(pa.int64()).to_numpy() / 1e6
        self.generation, self.worker_s = (rows.column(name).to_numpy() for name in columns[2:])
        self.ended_at = np.sort(self.started + self.worker_s)
        edge = max(1, int(len(self.ended_at) * EDGE))
        self.first, self.last = float(self.ended_at[edge]), float(self.ended_at[-edge])
        """Times at which the first and all but the last `EDGE` of the rows had ended."""
        self.count = int(((self.ended_at > self.first) & (self.ended_at <= self.last)).sum())
        """Rows that ended between them."""

    def ms_a_row(self, watch: Watch, name: str) -> float:
        """CPU time of a kind of process."""
        return 1000 * watch.spent(name, self.first, self.last) / self.count
