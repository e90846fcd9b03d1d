"""The plan and the ledger of a sweep, as ``ace-ray sweep`` prints them."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from rich.console import Console

from ace_ray.sweep.ledger import CostRecord
from ace_ray.sweep.show import print_ledger


def test_a_plan_names_sizes_refusals_and_costs_and_writes_nothing(
    here: Any,
    tmp_path: Path,
    make_checkpoint: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ace_ray.sweep.runs.size_of", lambda model: None)
    for step in range(1, 7):
        make_checkpoint(tmp_path / "run" / f"step_{step}", float(step))
    (tmp_path / "run/step_2/tokenizer.json").unlink()
    tree = {
        "checkpoints": str(tmp_path / "run"),
        "benchmarks": [{"name": "acebench", "languages": ["en"]}],
        "backend": "fake",
        "limit": 2,
        "price_per_hour": 3600,
        "sweep_id": "sweep",
        "output": str(tmp_path / "out"),
    }
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(tree))
    plan = here("sweep", tmp_path / "sweep.yaml", "--plan")
    assert plan.code == 0, plan.stderr
    for words in (
        "step 1 .. step 6 (5)",
        "5 models, 0 of them finished",
        "step 2: refused: the checkpoint is incomplete: the tokenizer is missing",
        "step 1: its size is unknown; the estimate assumes 1 billion parameters",
        "CPU engine hours",
        " at 3600 per hour",
        f"results: {tmp_path}/out/sweep/",
    ):
        assert words in plan.stdout
    assert not (tmp_path / "out").exists()


def test_the_ledger_is_a_line_per_run() -> None:
    record = CostRecord("step 1", 1, "/c", "r1", "complete", engine="fresh", entries=5, cost=1.5)
    record.seconds, record.tokens = {"load": 2.0, "idle": 0.25}, {"prompt": 40, "completion": 2}
    failed = CostRecord("step 2", 2, "/c", "", "failed", "the weights are NaN")
    sweep: Any = SimpleNamespace(sweep_id="s", uri="/out/s", cost_records=[record, failed])
    printed = StringIO()
    print_ledger(sweep, Console(file=printed))
    text = printed.getvalue()
    first = next(line for line in text.splitlines() if "step 1" in line)
    assert [word for word in first.split() if word not in "│┃"] == [
        *("step", "1", "complete", "fresh", "5", "2.0", "0.2", "42", "1.50"),
    ]
    assert "step 2: the weights are NaN" in text
    assert "results: /out/s/" in text
