"""A sample of the comparisons of BFCL's verdicts with upstream's evaluator.

Skipped without a copy of bfcl-eval (``BFCL_DATA``, or the installed one); the others also
without ``BFCL_PYTHON``, a Python that has what upstream's decoders import (docs/parity.md).
"""

from __future__ import annotations

import builtins
import os
from collections import Counter
from pathlib import Path

import bfcl_checks
import bfcl_multi_turn
import pytest

from ace_ray.benchmarks.bfcl.data.upstream_package import UpstreamPackage
from ace_ray.benchmarks.bfcl.decode import KNOWN
from ace_ray.errors import UserError


@pytest.fixture(scope="module")
def copy() -> UpstreamPackage:
    try:
        return UpstreamPackage.locate(os.environ.get("BFCL_DATA", "installed"))
    except UserError as error:
        pytest.skip(str(error))


@pytest.mark.nightly
def test_conversations(copy: UpstreamPackage) -> None:
    found = list(bfcl_multi_turn.compare(copy, copy.root, 1, 5))
    assert [line for counts in found for line in counts.verdicts] == []
    assert sum(counts.of["cases"] for counts in found) == 800


@pytest.fixture(scope="module")
def upstreams_python() -> Path:
    python = os.environ.get("BFCL_PYTHON")
    if not python:
        pytest.skip("BFCL_PYTHON names no Python with upstream's tree-sitter (docs/parity.md)")
    return Path(python)


def _different(copy: UpstreamPackage, python: Path, made: list[bfcl_checks.Case]) -> Counter[str]:
    answers = bfcl_checks.upstream(copy.root, python, made)
    return Counter(
        case.kind
        for case, answer in zip(made, answers, strict=True)
        if not bfcl_checks.same(case, answer, bfcl_checks.ours(case))
    )


def test_single_answers(copy: UpstreamPackage, upstreams_python: Path) -> None:
    made = list(bfcl_checks.cases(copy.root, 4_000, 5))
    assert len(made) > 3_000
    assert not _different(copy, upstreams_python, made)


def test_noise_in_all_languages(copy: UpstreamPackage, upstreams_python: Path) -> None:
    made = list(bfcl_checks.noise(copy.root, 6_000, 5))
    kinds = Counter(case.kind for case in made)
    for kind in ("simple_java, noise", "simple_javascript, noise", "executable, noise"):
        assert kinds[kind] > 400
    assert not _different(copy, upstreams_python, made)


def test_the_names_that_upstreams_eval_knows(copy: UpstreamPackage, upstreams_python: Path) -> None:
    theirs = set(bfcl_checks.known_names(copy.root, upstreams_python))
    assert theirs - KNOWN == set()
    own = set(dir(builtins))  # of another version of Python, perhaps
    assert KNOWN - theirs - own == set()
