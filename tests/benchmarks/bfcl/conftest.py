"""Copies of bfcl-eval that may be changed."""

from pathlib import Path

import pytest

from ace_ray.benchmarks.bfcl.data.upstream_package import UpstreamPackage
from tests.benchmarks.bfcl.synthetic_bfcl import write_copy


@pytest.fixture
def made_up(bfcl_copy: UpstreamPackage, tmp_path: Path) -> Path:
    """A folder that holds a ``bfcl_eval`` with few rows, and its metadata."""
    return write_copy(tmp_path / "unpacked", bfcl_copy)
