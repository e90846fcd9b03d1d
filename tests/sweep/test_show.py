"""What ``ace-ray sweep CONFIG --plan`` prints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

Write = Callable[..., Path]


@pytest.fixture
def config(tmp_path: Path, make_checkpoint: Callable[..., Path]) -> Write:
    make_checkpoint(tmp_path / "run" / "step_1", 1.0)

    def write(**changes: Any) -> Path:
        tree = {
            "checkpoints": str(tmp_path / "run"),
            "benchmarks": [{"name": "acebench", "languages": ["en"]}],
            "backend": "fake",
            "limit": 2,
            "output": str(tmp_path / "out"),
        }
        path = tmp_path / "sweep.yaml"
        path.write_text(yaml.safe_dump({**tree, **changes}))
        return path

    return write


def test_sizes_that_nobody_knows_are_named(
    here: Any, config: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hub's model without a network."""
    monkeypatch.setattr("ace_ray.sweep.runs.size_of", lambda model: None)
    plan = here("sweep", config(), "--plan")
    assert plan.code == 0, plan.stderr
    assert "step 1: its size is unknown; the estimate assumes" in plan.stdout
