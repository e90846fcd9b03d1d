"""What whole runs share: a config."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Four entries and an engine that answers from a script."""
    path = tmp_path / "config.yaml"
    benchmark = {"name": "acebench", "languages": ["en"], "categories": ["normal_atom_bool"]}
    path.write_text(
        yaml.safe_dump(
            {
                "model": {"source": "fake"},
                "backend": "fake",
                "benchmarks": [benchmark],
                "output": str(tmp_path / "runs"),
            }
        )
    )
    return path
