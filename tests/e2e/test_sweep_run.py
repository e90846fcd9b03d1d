"""Whole sweeps through the command line on a real local Ray, with the engine that reads a script.

Every checkpoint answers in words of its own, so that a row tells whose weights wrote it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from ace_ray.storage.object_store import open_store
from ace_ray.storage.parts import read_ledger
from ace_ray.storage.rows import ROWS

pytestmark = [pytest.mark.ray, pytest.mark.nightly]

ROWS_OF_A_RUN = 3
PATIENCE_S = 1800.0
"""Until what does not come is called a hang: no machine is too slow for it."""


class Sweeps:
    """A folder of checkpoints and a sweep over them, as often as a test likes."""

    def __init__(self, folder: Path, make_checkpoint: Callable[..., Path], **changes: Any) -> None:
        self.folder, self._make = folder, make_checkpoint
        self.checkpoints = folder / "run"
        self.config = folder / "sweep.yaml"
        tree = {
            "checkpoints": str(self.checkpoints),
            "backend": "fake",
            "benchmarks": [
                {"name": "acebench", "languages": ["en"], "categories": ["normal_atom_bool"]}
            ],
            "limit": ROWS_OF_A_RUN,
            "sweep_id": "sweep",
            "output": str(folder / "out"),
            "rows_per_part": 1,
            "grace_s": 3.0,
            "price_per_hour": 3600.0,
        }
        self.config.write_text(yaml.safe_dump({**tree, **changes}))
        self._started: list[subprocess.Popen[str]] = []

    def save(self, step: int, *values: float, **script: Any) -> Path:
        script = {"default": f"[from_step_{step}()]", **script}
        folder = self.checkpoints / f"step_{step}"
        return self._make(folder, *(values or (float(step), 1.0)), **script)

    def start(self, *args: str) -> subprocess.Popen[str]:
        self._log = self.folder / f"sweep-{len(self._started)}.log"
        process = subprocess.Popen(
            [sys.executable, "-m", "ace_ray.cli.main", "sweep", str(self.config), *args],
            stdout=self._log.open("w"),
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={**os.environ},
        )
        self._started.append(process)
        return process

    def run(self, *args: str) -> int:
        return self.start(*args).wait(PATIENCE_S)

    @property
    def said(self) -> str:
        return self._log.read_text()

    def until(self, what: Callable[[], Any], timeout_s: float = PATIENCE_S) -> Any:
        """Wait until ``what`` is true; fails when the command ends first."""
        end = time.monotonic() + timeout_s
        while not (found := what()):
            assert self._started[-1].poll() is None, self.said
            assert time.monotonic() < end, self.said
            time.sleep(0.05)
        return found

    def below(self) -> list[psutil.Process]:
        """The processes of the command that was started last, itself first."""
        top = psutil.Process(self._started[-1].pid)
        return [top, *top.children(recursive=True)]

    def ledger(self) -> dict[str, dict[str, Any]]:
        tree = json.loads((self.folder / "out/sweep/ledger.json").read_text())
        return {line["label"]: line for line in tree["runs"]}

    def column(self, name: str) -> dict[int, Any]:
        return {line["step"]: line[name] for line in self.ledger().values()}

    def runs(self) -> dict[int, Path]:
        """Step -> the folder of its run."""
        found = {}
        for path in (self.folder / "out/sweep").glob("*/run.json"):
            source = json.loads(path.read_text())["model"]["source"]
            found[int(source.rpartition("_")[2])] = path.parent
        return found

    def rows(self, step: int) -> list[dict[str, Any]]:
        run = self.runs().get(step)
        if run is None:
            return []
        tables = read_ledger(open_store(str(run))).tables(ROWS.names)
        return [row for table in tables for row in table.to_pylist()]

    def outputs(self, step: int) -> list[str]:
        return [row["output"] for row in self.rows(step)]

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                for child in reversed(psutil.Process(process.pid).children(recursive=True)):
                    child.kill()
                process.kill()
                process.wait()


@pytest.fixture
def make_sweeps(tmp_path: Path, make_checkpoint: Callable[..., Path]) -> Iterator[Any]:
    made: list[Sweeps] = []

    def make(**changes: Any) -> Sweeps:
        made.append(Sweeps(tmp_path, make_checkpoint, **changes))
        return made[-1]

    yield make
    for sweeps in made:
        sweeps.close()


def all_gone(processes: list[psutil.Process]) -> None:
    """Fails unless they end soon; Ray's own agents, which hold nothing of a run, take longer."""
    _, alive = psutil.wait_procs(processes, timeout=PATIENCE_S)
    left = []
    for process in alive:
        try:
            if process.status() != "zombie" and "agent" not in " ".join(process.cmdline()).lower():
                left.append(process)
        except psutil.NoSuchProcess:
            continue
    assert not left, [" ".join(process.cmdline())[:80] for process in left]


def test_a_sweep_with_a_poisoned_and_a_stale_checkpoint(make_sweeps: Any) -> None:
    """Step 2 says NaN, the engine does not take step 4 though it says so, step 5 is cut off."""
    sweeps = make_sweeps()
    for step in (1, 3, 10):
        sweeps.save(step)
    sweeps.save(2, swap="nan")
    sweeps.save(4, swap="stale")
    torn = sweeps.save(5) / "model.safetensors"
    torn.write_bytes(torn.read_bytes()[:-1])

    assert sweeps.run() == 1, sweeps.said
    assert "Traceback" not in sweeps.said
    whole = (1, 3, 4, 10)
    states = {**dict.fromkeys(whole, "complete"), 2: "failed", 5: "refused"}
    assert sweeps.column("state") == states
    assert list(sweeps.column("state")) == [1, 2, 3, 4, 5, 10]
    notes = sweeps.column("note")
    assert "logprobs are not finite" in notes[2]
    assert "the weights changed, but the engine's logprobs did not" in notes[4]
    assert "cannot be read as weights" in notes[5]
    assert notes[1] == ""
    engines = sweeps.column("engine")
    assert (engines[1], engines[2], engines[4]) == ("fresh", "", "restarted")
    assert engines[10] == "restarted"  # no swap is trusted after one that failed

    # Every row is of its own weights, the poisoned one's none at all.
    for step in whole:
        assert sweeps.outputs(step) == [f"[from_step_{step}()]"] * ROWS_OF_A_RUN
    assert set(sweeps.runs()) == set(whole)
    ids = [row["row_id"] for step in whole for row in sweeps.rows(step)]
    assert len(set(ids)) == len(whole) * ROWS_OF_A_RUN
    for step, run in sweeps.runs().items():
        assert {row["run_id"] for row in sweeps.rows(step)} == {run.name}
        assert (run / "_SUCCESS").exists()
        assert not (run / "lease.json").exists()
        summary = json.loads((run / "summary.json").read_text())
        assert summary["scored"] == summary["declared"] == ROWS_OF_A_RUN

    lines = sweeps.ledger()
    for step in whole:
        line = lines[f"step {step}"]
        assert set(line["seconds"]) == {"load", "warm_up", "generation", "tool", "idle"}
        assert line["entries"] == ROWS_OF_A_RUN
        total = sum(line["seconds"].values())
        assert line["cost"] == pytest.approx(total, abs=1e-3)
        assert line["per_1000"]["device_s"] == pytest.approx(total * 1000 / 3, abs=0.1)
    for state in ("fresh", "restarted", "complete", "failed", "refused"):
        assert state in sweeps.said

    # The same command: what is whole stays, what is mended is evaluated.
    before = {step: [row["started_at"] for row in sweeps.rows(step)] for step in whole}
    sweeps.save(2)
    sweeps.save(5)
    assert sweeps.run() == 0, sweeps.said
    ran = [line for line in sweeps.said.splitlines() if line.startswith("evaluating")]
    assert ran == ["evaluating step 2, step 5 on CPU"]
    assert set(sweeps.column("state").values()) == {"complete"}
    for step in (2, 5):
        assert sweeps.outputs(step) == [f"[from_step_{step}()]"] * ROWS_OF_A_RUN
    assert before == {step: [row["started_at"] for row in sweeps.rows(step)] for step in whole}


def test_stopped_and_gone_on_with(make_sweeps: Any) -> None:
    sweeps = make_sweeps()
    for step in (1, 2, 3):
        sweeps.save(step, delay_s=4.0 if step == 2 else 0.0)
    # Row by row, and slowly: an engine hears of the signal within two seconds or so.
    process = sweeps.start("--set", "concurrency=1")
    sweeps.until(lambda: sweeps.rows(2))
    below = sweeps.below()
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 75, sweeps.said
    all_gone(below)
    assert "Traceback" not in sweeps.said
    assert sweeps.column("state") == {1: "complete", 2: "incomplete", 3: "incomplete"}
    assert not list((sweeps.folder / "out/sweep").glob("*/lease.json"))
    before = {row["row_id"]: row["started_at"] for step in (1, 2, 3) for row in sweeps.rows(step)}
    assert ROWS_OF_A_RUN < len(before) < 3 * ROWS_OF_A_RUN

    assert sweeps.run() == 0, sweeps.said
    assert set(sweeps.column("state").values()) == {"complete"}
    after = {row["row_id"]: row["started_at"] for step in (1, 2, 3) for row in sweeps.rows(step)}
    assert len(after) == 3 * ROWS_OF_A_RUN
    assert before.items() <= after.items()
    for step in (1, 2, 3):
        assert sweeps.outputs(step) == [f"[from_step_{step}()]"] * ROWS_OF_A_RUN


def test_a_lane_that_is_killed_is_started_again(make_sweeps: Any) -> None:
    sweeps = make_sweeps()
    for step in (1, 2, 3):
        sweeps.save(step, delay_s=1.0 if step == 2 else 0.0)
    process = sweeps.start("--set", "concurrency=1")
    sweeps.until(lambda: sweeps.rows(2))
    before = [row["started_at"] for row in sweeps.rows(1)]
    lane = sweeps.until(
        lambda: [p for p in sweeps.below() if "ace_ray.sweep.lane" in " ".join(p.cmdline())]
    )
    lane[0].kill()
    assert process.wait(PATIENCE_S) == 0, sweeps.said
    assert sweeps.said.count("evaluating") > 1
    assert sweeps.column("state") == dict.fromkeys((1, 2, 3), "complete")
    assert [row["started_at"] for row in sweeps.rows(1)] == before
    for step in (1, 2, 3):
        assert sweeps.outputs(step) == [f"[from_step_{step}()]"] * ROWS_OF_A_RUN


def test_a_sweep_that_is_killed_leaves_no_process(make_sweeps: Any) -> None:
    sweeps = make_sweeps()
    for step in (1, 2):
        sweeps.save(step, delay_s=1.0)
    process = sweeps.start("--set", "concurrency=1")
    sweeps.until(lambda: sweeps.rows(1))
    below = sweeps.below()
    process.kill()
    process.wait()
    all_gone(below)
    assert sweeps.run() == 0, sweeps.said
    for step in (1, 2):
        assert sweeps.outputs(step) == [f"[from_step_{step}()]"] * ROWS_OF_A_RUN


def test_watching_a_training(make_sweeps: Any) -> None:
    """It begins before the first checkpoint, and the stop file comes with the last."""
    sweeps = make_sweeps(watch=True, settle_s=1.0, stop_file="stop", sweep_id="sweep")
    stop = sweeps.folder / "stop"
    process = sweeps.start("--set", f"stop_file={stop}")
    sweeps.until(lambda: "watching" in sweeps.said)
    sweeps.save(1)
    sweeps.until(lambda: len(sweeps.rows(1)) == ROWS_OF_A_RUN)
    half = sweeps.save(2)
    weights = (half / "model.safetensors").read_bytes()
    (half / "model.safetensors").write_bytes(weights[:-1])
    sweeps.until(lambda: "step 2: refused" in sweeps.said)
    (half / "model.safetensors").write_bytes(weights)
    sweeps.save(3)
    stop.touch()
    assert process.wait(PATIENCE_S) == 0, sweeps.said
    assert sweeps.column("state") == dict.fromkeys((1, 2, 3), "complete")
    assert sweeps.outputs(3) == ["[from_step_3()]"] * ROWS_OF_A_RUN


def test_the_plan_of_a_sweep_writes_nothing(make_sweeps: Any) -> None:
    sweeps = make_sweeps(models=[{"source": "x", "label": "the other", "engine": {}}])
    for step in (1, 2):
        sweeps.save(step)
    assert sweeps.run("--plan") == 0, sweeps.said
    assert "step 1, step 2" in sweeps.said
    assert "the other" in sweeps.said
    assert f"results: {sweeps.folder}/out/sweep/" in sweeps.said
    assert not (sweeps.folder / "out").exists()
