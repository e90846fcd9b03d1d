"""The published queries."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def shared_queries() -> Path:
    """All of StableToolBench's queries in the official layout."""
    shared = Path(os.environ.get("ACE_RAY_SHARED") or ROOT.parent / "shared")
    folder = shared / "data" / "stabletoolbench"
    if not (folder / "solvable_queries").is_dir():
        pytest.skip("the published queries are not here; name their parent with ACE_RAY_SHARED")
    return folder
