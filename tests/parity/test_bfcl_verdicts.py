"""A sample of BFCL's verdicts against upstream's code.

Skipped without a copy of bfcl-eval (``BFCL_DATA``, or the installed one); single answers also
without ``BFCL_PYTHON``, a Python that has what upstream's decoders import (docs/parity.md).
"""

import os
from pathlib import Path

import bfcl_checks
import bfcl_multi_turn
import pytest

from ace_ray.benchmarks.bfcl.data.upstream_package import UpstreamPackage


@pytest.fixture(scope="module")
def python() -> Path:
    location = os.environ.get("BFCL_PYTHON")
    if not location:
        pytest.skip("BFCL_PYTHON names no Python with upstream's tree-sitter (docs/parity.md)")
    return Path(location)


@pytest.mark.nightly
def test_conversations_get_upstreams_verdict(bfcl_copy: UpstreamPackage) -> None:
    report = bfcl_multi_turn.compare(bfcl_copy, 1, 5)
    assert report.differences == []
    assert report.total("cases") == 800


def test_single_answers_get_upstreams_verdict(bfcl_copy: UpstreamPackage, python: Path) -> None:
    root = bfcl_copy.root
    cases = [*bfcl_checks.cases(root, 4_000, 5), *bfcl_checks.noise(root, 6_000, 5)]
    report = bfcl_checks.compare(root, python, cases)
    assert report.differences == []
    for language in ("simple_java", "simple_javascript", "executable"):
        assert report.of[f"{language}, noise"]["outputs"] > 400
