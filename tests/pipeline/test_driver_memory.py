"""Memory of the driver of a resumed run for each row, and the rows that it finds pending.

Each size is measured in a process of its own, which does what a driver does with rows: it plans
them, makes their blocks, reads which are stored, and finds the pending ones.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import deque
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pytest

from ace_ray.models.sources import ModelRef
from ace_ray.pipeline.graph import PlannedBlocks, Work
from ace_ray.pipeline.health.processes import give_back_memory
from ace_ray.pipeline.planning.plan import Plan
from ace_ray.storage.object_store import LocalStore
from ace_ray.storage.parts import new_session, read_ledger, write_parts
from ace_ray.storage.rows import ROWS
from ace_ray.types import Episode
from tests.pipeline.made_run import made_row, planned_run

SMALL, LARGE = 16_000, 80_000
PART_ROWS, BLOCK_ROWS = 8_192, 256
MISSING, FAILED_EVERY = 100, 1_000
BYTES_A_ROW = 250
"""186 were measured between 20,000 and 200,000 rows."""


@pytest.mark.nightly
def test_a_resumed_run_holds_less_than_250_bytes_a_row(tmp_path: Path) -> None:
    held = {}
    for rows in (SMALL, LARGE):
        folder = tmp_path / str(rows)
        store_all_but_the_last(folder, rows)
        code = f"from {__name__} import measure; measure({str(folder)!r}, {rows})"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout.splitlines()[-1])
        assert found["pending"] == MISSING + -(-(rows - MISSING) // FAILED_EVERY)
        held[rows] = found["bytes"]
    assert (held[LARGE] - held[SMALL]) / (LARGE - SMALL) < BYTES_A_ROW


def planned(folder: Path, rows: int) -> Plan:
    """A run of eight entries with as many samples as it takes."""
    return planned_run(folder, ModelRef("fake", "fake", "fake", "fake"), samples=rows // 8)


def store_all_but_the_last(folder: Path, rows: int) -> None:
    """Store one row under the ids of all planned ones, one in a thousand failed."""
    ids, store = planned(folder, rows).rows.ids[: rows - MISSING], LocalStore(str(folder))
    one = pa.Table.from_pylist([made_row("", Episode(output="said"))], schema=ROWS)
    session = new_session([], "000001")
    for start in range(0, len(ids), PART_ROWS):
        at = np.arange(start, min(start + PART_ROWS, len(ids)))
        failed = np.where(at % FAILED_EVERY == 0, "infra_error", "scored")
        part = one.take(pa.array(np.zeros(len(at), np.int64)))
        for name, values in (("row_id", ids[at].astype(str)), ("status", failed)):
            place = part.schema.get_field_index(name)
            part = part.set_column(place, part.schema.field(name), pa.array(values))
        write_parts(store, session, part)


def measure(folder: str, rows: int) -> None:
    """Print the private bytes of this process when it holds all of a run's rows."""
    plan, store = planned(Path(folder), rows), LocalStore(folder)
    work = Work(0, plan.rows, np.ones(len(plan.rows), np.int32))
    deque(PlannedBlocks([work], BLOCK_ROWS), maxlen=0)
    ledger = read_ledger(store)
    give_back_memory()
    at = ledger.find(plan.rows.ids)
    pending = plan.rows.where(~((at >= 0) & ledger.settled[at]))
    held = psutil.Process().memory_full_info().uss
    print(json.dumps({"bytes": held, "pending": len(pending)}))
