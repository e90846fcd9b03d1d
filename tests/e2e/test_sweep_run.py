"""Whole sweeps on a local Ray with the fake engine.

Each checkpoint answers in its own words, so that a row shows whose weights wrote it.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ace_ray.storage.object_store import open_store
from ace_ray.storage.parts import read_ledger
from ace_ray.storage.rows import ROWS
from tests.e2e.ray_clusters import wait_for
from tests.faults.fault_runs import descendants, title_of

pytestmark = [pytest.mark.ray, pytest.mark.nightly]

ROWS_OF_A_RUN = 3


class Sweeps:
    """A folder of checkpoints, and a sweep over them."""

    def __init__(self, folder: Path, make_checkpoint: Callable[..., Path]) -> None:
        self.folder, self._make = folder, make_checkpoint
        self.config = folder / "sweep.yaml"
        categories = ["normal_atom_bool"]
        tree = {
            "checkpoints": str(folder / "run"),
            "backend": "fake",
            "benchmarks": [{"name": "acebench", "languages": ["en"], "categories": categories}],
            "limit": ROWS_OF_A_RUN,
            "sweep_id": "sweep",
            "output": str(folder / "out"),
            "rows_per_part": 1,
            "drain_timeout_s": 3.0,
            "price_per_hour": 3600.0,
        }
        self.config.write_text(yaml.safe_dump(tree))
        self._log = folder / "sweep.log"

    def save(self, step: int, **script: Any) -> Path:
        script = {"default": f"[from_step_{step}()]", **script}
        return self._make(self.folder / "run" / f"step_{step}", float(step), 1.0, **script)

    def start(self, *args: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "ace_ray.cli.main", "sweep", str(self.config), *args]
        with self._log.open("w") as log:
            return subprocess.Popen(command, stdout=log, stderr=log)

    def run(self) -> int:
        return self.start().wait()

    @property
    def output(self) -> str:
        return self._log.read_text()

    def column(self, name: str) -> dict[int, Any]:
        tree = json.loads((self.folder / "out/sweep/ledger.json").read_text())
        return {line["step"]: line[name] for line in tree["runs"]}

    def rows(self, step: int) -> list[dict[str, Any]]:
        for path in (self.folder / "out/sweep").glob("*/run.json"):
            if json.loads(path.read_text())["model"]["source"].endswith(f"_{step}"):
                tables = read_ledger(open_store(str(path.parent))).tables(ROWS.names)
                return [row for table in tables for row in table.to_pylist()]
        return []

    def check_outputs(self, *steps: int) -> None:
        for step in steps:
            outputs = [row["output"] for row in self.rows(step)]
            assert outputs == [f"[from_step_{step}()]"] * ROWS_OF_A_RUN


def test_weights_that_cannot_be_swapped_cost_one_run(tmp_path, make_checkpoint) -> None:
    sweeps = Sweeps(tmp_path, make_checkpoint)
    for step in (1, 3, 10):
        sweeps.save(step)
    sweeps.save(2, swap="nan")
    sweeps.save(4, swap="stale")
    torn = sweeps.save(5) / "model.safetensors"
    torn.write_bytes(torn.read_bytes()[:-1])

    assert sweeps.run() == 1, sweeps.output
    assert "Traceback" not in sweeps.output
    steps = (1, 3, 4, 10)
    states = {**dict.fromkeys(steps, "complete"), 2: "failed", 5: "refused"}
    assert sweeps.column("state") == states
    assert list(sweeps.column("state")) == [1, 2, 3, 4, 5, 10]
    notes = sweeps.column("note")
    assert "logprobs are not finite" in notes[2]
    assert "the weights changed, but the engine's logprobs did not" in notes[4]
    assert "cannot be read as weights" in notes[5]
    assert notes[1] == ""
    engines = sweeps.column("engine")
    assert (engines[1], engines[2], engines[4]) == ("fresh", "", "restarted")
    assert engines[10] == "restarted", "no swap is trusted after one that failed"
    sweeps.check_outputs(*steps)
    assert sweeps.rows(2) == sweeps.rows(5) == []
    ids = [row["row_id"] for step in steps for row in sweeps.rows(step)]
    assert len(set(ids)) == len(steps) * ROWS_OF_A_RUN

    seconds, costs = sweeps.column("seconds"), sweeps.column("cost")
    for step in steps:
        assert set(seconds[step]) == {"load", "warm_up", "generation", "tool", "idle"}
        assert costs[step] == pytest.approx(sum(seconds[step].values()), abs=1e-3)
    for state in ("fresh", "restarted", "complete", "failed", "refused"):
        assert state in sweeps.output

    # The same command evaluates the repaired checkpoints only.
    before = {step: [row["started_at"] for row in sweeps.rows(step)] for step in steps}
    sweeps.save(2)
    sweeps.save(5)
    assert sweeps.run() == 0, sweeps.output
    ran = [line for line in sweeps.output.splitlines() if line.startswith("evaluating")]
    assert ran == ["evaluating step 2, step 5 on CPU"]
    assert set(sweeps.column("state").values()) == {"complete"}
    sweeps.check_outputs(2, 5)
    assert before == {step: [row["started_at"] for row in sweeps.rows(step)] for step in steps}


def test_a_killed_lane_is_started_again(tmp_path, make_checkpoint) -> None:
    sweeps = Sweeps(tmp_path, make_checkpoint)
    for step in (1, 2, 3):
        sweeps.save(step, delay_s=1.0 if step > 1 else 0.0)
    with sweeps.start("--set", "concurrency=1") as sweep:
        wait_for(lambda: sweep.poll() is not None or bool(sweeps.rows(2)), "no row of step 2")
        before = [row["started_at"] for row in sweeps.rows(1)]
        lanes = [p for p in descendants(sweep.pid) if "ace_ray.sweep.lane" in title_of(p)]
        lanes[0].kill()
    assert sweep.returncode == 0, sweeps.output
    assert sweeps.output.count("evaluating") > 1
    assert [row["started_at"] for row in sweeps.rows(1)] == before
    sweeps.check_outputs(1, 2, 3)


def test_no_checkpoint_uses_up_the_time_of_the_others(tmp_path, make_checkpoint) -> None:
    sweeps = Sweeps(tmp_path, make_checkpoint)
    for step in (1, 2, 3):
        sweeps.save(step, delay_s=15.0)
    began = time.time()
    with sweeps.start("--set", "concurrency=1", "--set", "time_limit=170s") as sweep:
        pass
    assert sweep.returncode == 75, sweeps.output
    assert (tmp_path / "out/sweep/ledger.json").stat().st_mtime < began + 170
    assert all(len(sweeps.rows(step)) for step in (1, 2, 3))
    assert sweeps.column("state")[1] == "incomplete"
    assert "not scored (about" in sweeps.output
    assert sweeps.run() == 0, sweeps.output
