"""Whole sweeps on a local Ray with the fake engine.

Each checkpoint answers in its own words, so that a row shows whose weights wrote it.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ace_ray.storage.object_store import open_store
from ace_ray.storage.parts import read_ledger
from ace_ray.storage.rows import ROWS

pytestmark = [pytest.mark.ray, pytest.mark.nightly]

ROWS_OF_A_RUN = 3


class Sweeps:
    """A folder of checkpoints, and a sweep over them."""

    def __init__(self, folder: Path, make_checkpoint: Callable[..., Path], write: Any) -> None:
        self.folder, self._make = folder, make_checkpoint
        settings = {"checkpoints": str(folder / "run"), "sweep_id": "sweep"}
        numbers = {"limit": ROWS_OF_A_RUN, "rows_per_part": 1, "price_per_hour": 3600.0}
        benchmark = {"name": "acebench", "languages": ["en"], "categories": ["normal_atom_bool"]}
        self.config = write(model={}, benchmarks=[benchmark], **settings, **numbers)

    def save(self, step: int, **script: Any) -> Path:
        script = {"default": f"[from_step_{step}()]", **script}
        return self._make(self.folder / "run" / f"step_{step}", float(step), 1.0, **script)

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


def test_weights_that_cannot_be_swapped_cost_one_run(
    tmp_path, make_checkpoint, config_file, cli
) -> None:
    sweeps = Sweeps(tmp_path, make_checkpoint, config_file)
    for step in (1, 3, 10):
        sweeps.save(step)
    sweeps.save(2, swap="nan")
    sweeps.save(4, swap="stale")
    torn = sweeps.save(5) / "model.safetensors"
    torn.write_bytes(torn.read_bytes()[:-1])

    result = cli("sweep", sweeps.config, timeout_s=1800)
    assert (result.code, "Traceback" in result.stderr) == (1, False), result.stderr
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
    seconds, costs = sweeps.column("seconds"), sweeps.column("cost")
    for step in steps:
        assert costs[step] == pytest.approx(sum(seconds[step].values()), abs=1e-3)
    for state in ("fresh", "restarted", "complete", "failed", "refused"):
        assert state in result.stdout

    # The same command evaluates the repaired checkpoints only.
    before = {step: [row["started_at"] for row in sweeps.rows(step)] for step in steps}
    sweeps.save(2)
    sweeps.save(5)
    result = cli("sweep", sweeps.config, timeout_s=1800).ok()
    ran = [line for line in result.stdout.splitlines() if line.startswith("evaluating")]
    assert ran == ["evaluating step 2, step 5 on CPU"]
    assert set(sweeps.column("state").values()) == {"complete"}
    sweeps.check_outputs(2, 5)
    assert before == {step: [row["started_at"] for row in sweeps.rows(step)] for step in steps}
