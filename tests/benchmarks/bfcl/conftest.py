"""A real copy of bfcl-eval where there is one, and copies of it that may be changed."""

import importlib.util
import os
from pathlib import Path

import pytest

from ace_ray.benchmarks.bfcl.data.upstream_package import VERSION, UpstreamPackage
from tests.benchmarks.bfcl.synthetic_bfcl import write_copy


@pytest.fixture(scope="session")
def bfcl_copy() -> UpstreamPackage:
    """Return a real copy: the one that ``BFCL_DATA`` names, or the installed one."""
    if location := os.environ.get("BFCL_DATA"):
        return UpstreamPackage.locate(str(UpstreamPackage.locate(location).root))
    spec = importlib.util.find_spec("bfcl_eval")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"no bfcl-eval=={VERSION} is installed, and BFCL_DATA names no copy of it")
    return UpstreamPackage.locate(spec.submodule_search_locations[0])


@pytest.fixture
def made_up(bfcl_copy: UpstreamPackage, tmp_path: Path) -> Path:
    """A folder that holds a ``bfcl_eval`` with few rows, and its metadata."""
    return write_copy(tmp_path / "unpacked", bfcl_copy)
