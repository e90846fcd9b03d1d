"""Runs that stop when their comparison is decided, with the engine that reads a script."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = [pytest.mark.ray, pytest.mark.nightly]

ITEMS = 900
BENCHMARK = f"{Path(__file__).parent / 'items.py'}:Items"
PATIENCE_S = 1800.0


def script(right: float, seed: int, delay_s: float = 0.0) -> dict[str, Any]:
    """Of an engine that answers this share rightly. Those of one seed are right together, as
    those of checkpoints that lie side by side are."""
    drawn = random.Random(seed)
    wrong = [number for number in range(ITEMS) if drawn.random() >= right]
    return {
        "default": "yes",
        "replies": {f"<{number:04}>": "no" for number in wrong},
        "delay_s": delay_s,
        "exponential": delay_s > 0,
    }


def write_config(folder: Path, name: str, engine: dict[str, Any], **more: Any) -> Path:
    tree = {
        "model": {"source": "fake"},
        "benchmarks": [{"name": BENCHMARK}],
        "backend": "fake",
        "engine": engine,
        "concurrency": 16,
        "rows_per_part": 16,
        "output": str(folder / "runs"),
        "run_id": name,
        **more,
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(tree))
    return path


def read(path: Path) -> Any:
    return json.loads(path.read_text())


@pytest.fixture
def reference(here: Any, tmp_path: Path) -> Path:
    ended = here("evaluate", write_config(tmp_path, "reference", script(0.5, 1)))
    assert ended.code == 0, ended.stdout
    return tmp_path / "runs" / "reference"


def early(reference: Path, **more: Any) -> dict[str, Any]:
    return {"early": {"against": str(reference), "min_rows": 60, **more}}


def test_a_run_stops_and_can_be_completed(here: Any, tmp_path: Path, reference: Path) -> None:
    engine = script(0.8, 1, delay_s=0.4)
    config = write_config(tmp_path, "better", engine, **early(reference))
    ended = here("evaluate", config)
    assert ended.code == 0, ended.stdout + ended.stderr
    assert "items/correct against" in ended.stdout
    assert "better" in ended.stdout
    run = tmp_path / "runs" / "better"
    assert not (run / "_SUCCESS").exists()
    summary = read(run / "summary.json")
    stopped = summary["early"]["headlines"]["items/correct"]
    assert summary["early"]["stopped"]
    assert not summary["headline"]
    assert summary["missing"] > 0
    assert stopped["outcome"] == "better"
    assert stopped["low"] > 0
    assert stopped["low"] < 0.3 < stopped["high"]
    manifest = read(run / "run.json")
    assert manifest["early"]["orders"]["items"]["units"] < ITEMS, "those of a group come together"
    assert manifest["early"]["looked"]

    # Where it is, nothing more is evaluated by the same command.
    again = here("evaluate", config)
    assert again.code == 0, again.stdout
    assert read(run / "summary.json")["missing"] == summary["missing"]

    refused = here("compare", reference, run, "--allow-different")
    assert refused.code == 2
    assert "was stopped when its comparison was decided" in refused.stderr
    reported = here("report", reference, run, "--out", tmp_path / "report")
    assert reported.code == 0, reported.stderr

    refuse_what_cannot_be_compared(here, tmp_path, reference)
    config = write_config(tmp_path, "better", engine, **early(reference))
    ended = here("evaluate", config, "--complete")
    assert ended.code == 0, ended.stdout
    assert (run / "_SUCCESS").exists()
    whole = read(run / "summary.json")
    assert whole["missing"] == 0
    assert whole["headline"]
    assert not whole["early"]["stopped"]
    found = whole["early"]["headlines"]["items/correct"]
    assert found["decided_at_units"] == stopped["decided_at_units"]
    assert found["high"] - found["low"] < 1e-3, "all rows are in"
    assert here("compare", reference, run, "--allow-different").code == 0


def refuse_what_cannot_be_compared(here: Any, folder: Path, reference: Path) -> None:
    for name, more, what in (
        ("d", early(reference, alpha=2), "early.alpha"),
        ("better", early(reference, alpha=0.2), "looked at with early.alpha = 0.05"),
    ):
        ended = here("evaluate", write_config(folder, name, script(0.8, 1, 0.4), **more))
        assert ended.code == 2, ended.stdout
        assert what in " ".join(ended.stderr.split())
        assert "Traceback" not in ended.stderr


def test_a_run_that_is_killed_three_times_decides_as_an_undisturbed_one(
    tmp_path: Path, here: Any, reference: Path
) -> None:
    engine = script(0.58, 2, delay_s=0.6)  # other entries than the reference's are right
    whole = write_config(tmp_path, "whole", {**engine, "delay_s": 0.0}, **early(reference))
    assert here("evaluate", whole, "--complete").code == 0
    expected = read(tmp_path / "runs/whole/summary.json")["early"]["headlines"]["items/correct"]
    assert expected["outcome"] == "better"
    assert 300 < expected["decided_at_units"] < 850, "what can be killed at several parts"

    config = write_config(tmp_path, "killed", engine, **early(reference))
    run, kills = tmp_path / "runs" / "killed", 0
    log = (tmp_path / "killed.log").open("w")

    def parts() -> int:
        return len(list(run.glob("rows/part-*")))

    ends = time.monotonic() + PATIENCE_S
    while True:
        before = parts()
        process = subprocess.Popen(
            [sys.executable, "-m", "ace_ray.cli.main", "evaluate", str(config)],
            stdout=log, stderr=log, start_new_session=True, env={**os.environ},
        )  # fmt: skip
        while process.poll() is None and (kills == 3 or parts() == before):
            assert time.monotonic() < ends, (tmp_path / "killed.log").read_text()
            time.sleep(0.05)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            kills += 1
            continue
        assert process.wait(PATIENCE_S) == 0, (tmp_path / "killed.log").read_text()
        break
    assert kills >= 2
    found = read(run / "summary.json")["early"]
    assert found["stopped"]
    assert found["headlines"]["items/correct"]["outcome"] == expected["outcome"]
    assert found["headlines"]["items/correct"]["decided_at_units"] == expected["decided_at_units"]


def test_a_sweep_decides_each_checkpoint(
    here: Any, tmp_path: Path, make_checkpoint: Callable[..., Path]
) -> None:
    shares = {1: 0.5, 2: 0.75, 3: 0.5, 4: 0.3}
    for step, right in shares.items():
        answers = script(right, 1, delay_s=0.3)
        make_checkpoint(tmp_path / "run" / f"step_{step}", float(step), 1.0, **answers)
    config = tmp_path / "sweep.yaml"
    tree = {
        "checkpoints": str(tmp_path / "run"),
        "backend": "fake",
        "benchmarks": [{"name": BENCHMARK}],
        "concurrency": 16,
        "rows_per_part": 16,
        "sweep_id": "sweep",
        "output": str(tmp_path / "out"),
        "early": {"against": "baseline", "min_rows": 60, "margin": 2.0},
    }
    config.write_text(yaml.safe_dump(tree))
    ended = here("sweep", config)
    assert ended.code == 0, ended.stdout + ended.stderr
    out = tmp_path / "out" / "sweep"
    lines = {line["step"]: line for line in read(out / "ledger.json")["runs"]}
    summaries = {step: read(out / line["run_id"] / "summary.json") for step, line in lines.items()}
    outcomes = {
        step: one["early"]["headlines"]["items/correct"]["outcome"]
        for step, one in summaries.items()
        if "early" in one
    }
    assert outcomes == {2: "better", 3: "within", 4: "worse"}
    assert lines[1]["state"] == "complete"
    assert lines[2]["state"] == lines[4]["state"] == "decided"
    for step, one in summaries.items():
        if "early" in one:
            assert one["early"]["alpha"] == pytest.approx(0.9 * 0.05 / 3), step
    page = (out / "report" / "report.html").read_text()
    assert "Early decisions" in page

    # Nothing is left to do, and asked for it completes the rest.
    assert here("sweep", config).code == 0
    assert read(out / "ledger.json")["runs"] == sorted(lines.values(), key=lambda one: one["step"])
    assert here("sweep", config, "--complete", "nothing").code == 2
    assert here("sweep", config, "--complete", "all").code == 0
    lines = {line["step"]: line for line in read(out / "ledger.json")["runs"]}
    assert {line["state"] for line in lines.values()} == {"complete"}
    whole = {step: read(out / line["run_id"] / "summary.json") for step, line in lines.items()}
    for step, outcome in outcomes.items():
        found = whole[step]["early"]["headlines"]["items/correct"]
        assert (found["outcome"], found["high"] - found["low"] < 1e-3) == (outcome, True)
