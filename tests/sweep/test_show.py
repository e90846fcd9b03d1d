"""What ``ace-ray sweep CONFIG --plan`` prints."""

from __future__ import annotations

import shlex
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


@pytest.mark.nightly
def test_the_line_submits_what_was_planned(here: Any, config: Write) -> None:
    path = config()
    options = ["--limit", "1", "--set", "sampling.seed=3", "--output", "s3://b/p"]
    submit = here("submit", path, "--job", "sweep", "--dry-run", *options)
    assert submit.code == 0, submit.stderr
    plan = here("sweep", path, "--plan", "--limit", "1", "--set", "sampling.seed=3")
    assert plan.code == 0, plan.stderr
    # The config travels as text, so the command has many lines.
    words = shlex.split(plan.stdout[plan.stdout.index("ray job submit") :])
    assert "--submission-id" in words
    assert {"--limit=1", "--set=sampling.seed=3"} <= {*words}


def test_why_it_cannot_be_submitted_as_it_is(here: Any, config: Write) -> None:
    plan = here("sweep", config(output="here"), "--plan")
    assert plan.code == 0, plan.stderr
    assert "not as a job as it is: output: 'here' is relative" in plan.stdout


@pytest.mark.nightly
def test_sizes_that_nobody_knows_are_named(
    here: Any, config: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hub's model without a network."""
    monkeypatch.setattr("ace_ray.sweeps.runs.size_of", lambda model: None)
    plan = here("sweep", config(), "--plan")
    assert plan.code == 0, plan.stderr
    assert "step 1: its size is not known before it is fetched" in plan.stdout
