"""A run exported to Inspect and read by Inspect itself: times, sizes, and whether all arrives.

    python perf/exports.py RUN --inspect PYTHON [--rows 10000]

``PYTHON`` is an interpreter that has inspect-ai (0.3.285 was used). The rows of the stored RUN are
repeated under ids of their own until there are as many; each log is read whole, by sample and
as summaries, and its scores are held against the rows.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import tempfile
import time
from pathlib import Path

import pyarrow.compute as pc
from view import copy

from ace_ray.export.inspect_log import export_inspect
from ace_ray.store import open_store
from ace_ray.view.select import StoredRun

READER = """
import collections, glob, json, sys
from inspect_ai.log import read_eval_log, read_eval_log_samples, read_eval_log_sample_summaries
found = collections.Counter()
for path in sorted(glob.glob(sys.argv[1] + "/*.eval")):
    log = read_eval_log(path)
    assert log.status == "success", log.status
    found["logs"] += 1
    found["summaries"] += len(read_eval_log_sample_summaries(path))
    for sample in read_eval_log_samples(path, all_samples_required=True):
        found["samples"] += 1
        for rules, score in (sample.scores or {}).items():
            found[rules + " " + str(score.value)] += 1
        for event in sample.events:
            found[event.event] += 1
print(json.dumps(found))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run", help="a stored run")
    parser.add_argument("--inspect", required=True, help="a Python with inspect-ai")
    parser.add_argument("--rows", type=int, default=10_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store, out = open_store(f"{folder}/run"), Path(folder, "out")
        copy(open_store(asked.run), store, asked.rows)
        began = time.perf_counter()
        names = export_inspect(StoredRun(store), open_store(str(out)))
        took = time.perf_counter() - began
        size = sum((out / name).stat().st_size for name in names)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(
            f"{asked.rows:,} rows: {len(names)} logs, {size / 1e6:.1f} MB, {took:.1f} s, "
            f"{peak / 1e6:.0f} MB at most"
        )
        began = time.perf_counter()
        read = subprocess.run(
            [asked.inspect, "-c", READER, str(out)], capture_output=True, text=True, check=True
        )
        found = json.loads(read.stdout)
        print(f"Inspect read them in {time.perf_counter() - began:.1f} s: {read.stdout.strip()}")
        assert found["samples"] == found["summaries"] == asked.rows, found
        run = StoredRun(store)
        for rules in run.manifest.all_rule_sets:
            column = f"{rules}_valid"
            right = sum(pc.sum(t.column(column)).as_py() or 0 for t in run.ledger.tables([column]))
            assert found.get(f"{rules} C", 0) == right, (rules, right, found)
        print("all rows and verdicts are there")


if __name__ == "__main__":
    main()
