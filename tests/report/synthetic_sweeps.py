"""Sweep folders as `ace-ray sweep` leaves them, around runs made up by the test."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from synthetic_runs import Row, write_run

Line = dict[str, Any]


def ledger_line(label: str, state: str = "complete", **changes: Any) -> Line:
    """A line of ``ledger.json``; a run that took 100 device seconds for 340 entries."""
    return {
        "run_id": f"run-{label}",
        "label": label,
        "step": None,
        "source": f"/models/train/{label}",
        "state": state,
        "note": "",
        "engine": "fresh",
        "devices": 1,
        "device": "gpu",
        "seconds": {"load": 20.0, "warm_up": 5.0, "generation": 60.0, "tool": 10.0, "idle": 5.0},
        "entries": 340,
        "tokens": {"prompt": 1000, "completion": 200},
        "cost": 0.1,
        "per_1000": {"device_s": 294.1, "cost": 0.2941},
        **changes,
    }


def refused(label: str, note: str) -> Line:
    """A model that never started."""
    return {
        "run_id": f"run-{label}",
        "label": label,
        "source": f"/models/{label}",
        "state": "refused",
        "note": note,
    }


def write_sweep(folder: Path, lines: Sequence[Line], runs: dict[str, list[Row]]) -> Path:
    """``folder`` with a manifest, a ledger of ``lines``, and a run per label in ``runs``."""
    for label, rows in runs.items():
        write_run(folder / f"run-{label}", rows, model=f"/models/train/{label}")
    manifest = {
        "schema_version": 1,
        "sweep_id": "train-1a2b",
        "created_at": "2026-01-01T00:00:00+00:00",
        "config": {"checkpoints": {"path": "/models/train"}},
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sweep.json").write_text(json.dumps(manifest))
    (folder / "ledger.json").write_text(json.dumps({"schema_version": 1, "runs": list(lines)}))
    return folder
