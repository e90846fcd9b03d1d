"""Mistakes at `ace-ray reread` are one line each, and nothing is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.report.builders import block, write_run

MISTAKES = [
    ("fake", (), "does not contain the text of the model"),
    ("endpoint", (), "an endpoint returns calls that its server has"),
    ("vllm", (), "the run's tokenizer is not available"),
    ("vllm", ("--tokenizer", "/nowhere", "--python", "/no/python"), "/no/python: cannot be run"),
]


@pytest.mark.parametrize(("backend", "options", "said"), MISTAKES)
def test_a_run_that_cannot_be_read_again_is_named(
    backend: str, options: tuple[str, ...], said: str, tmp_path: Path, here: Any
) -> None:
    rows = block("en", "normal_atom_bool", 1, 2)
    run = write_run(tmp_path / "run", rows, backend=backend, model="/no/model")
    ended = here("reread", run, *options, "--output", tmp_path / "out")
    assert ended.code == 2
    assert said in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()
