"""``ace-ray doctor`` of a sweep's config."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml


@pytest.fixture
def config(tmp_path: Path) -> Any:
    def write(**changes: Any) -> Path:
        tree = {
            "models": [{"source": "fake", "label": "one"}],
            "backend": "fake",
            "benchmarks": [{"name": "acebench", "languages": ["en"]}],
            "limit": 2,
            "output": str(tmp_path / "out"),
        }
        path = tmp_path / "sweep.yaml"
        path.write_text(yaml.safe_dump({**tree, **changes}))
        return path

    return write


def test_each_model_is_checked_and_nothing_stays(here: Any, config: Any, tmp_path: Path) -> None:
    ended = here("doctor", config())
    assert ended.code == 0, ended.stdout + ended.stderr
    assert "ok    model      one: " in ended.stdout
    assert ", 2 rows" in ended.stdout
    assert "ok    lanes      1, as sweep --plan shows them" in ended.stdout
    assert "can be written" in ended.stdout
    assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"pric_per_hour": 1}, "did you mean 'price_per_hour'?"),
        ({"models": [{"source": "/nowhere/x.gguf"}], "backend": "vllm"}, "does not exist"),
        ({"models": []}, "names no model"),
        (
            {"models": [{"source": "fake", "label": "one"}, {"source": "fake", "label": "two"}]},
            "is the same model as one",
        ),
        ({"run_id": "x"}, "'run_id' is for one run"),
    ],
)
def test_a_mistake_is_one_line(here: Any, config: Any, changes: Any, words: str) -> None:
    ended = here("doctor", config(**changes))
    assert ended.code == 2
    (failed,) = [line for line in ended.stdout.splitlines() if line.startswith("FAIL")]
    assert words in failed
