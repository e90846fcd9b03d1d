"""A sample of the comparisons of BFCL's verdicts with upstream's evaluator.

Skipped without a copy of bfcl-eval (``BFCL_DATA``, or the installed one); the single answers also
without ``BFCL_PYTHON``, a Python that has what upstream's decoders import (docs/parity.md).
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import bfcl_checks
import bfcl_multi_turn
import pytest

from ace_ray.benchmarks.bfcl.data.copy import Copy
from ace_ray.errors import UserError


@pytest.fixture(scope="module")
def copy() -> Copy:
    try:
        return Copy.locate(os.environ.get("BFCL_DATA", "installed"))
    except UserError as error:
        pytest.skip(str(error))


def test_conversations(copy: Copy) -> None:
    found = list(bfcl_multi_turn.compare(copy, copy.root, 1, 5))
    assert [line for counts in found for line in counts.verdicts] == []
    assert sum(counts.of["cases"] for counts in found) == 800


def test_single_answers(copy: Copy) -> None:
    python = os.environ.get("BFCL_PYTHON")
    if not python:
        pytest.skip("BFCL_PYTHON names no Python with upstream's tree-sitter (docs/parity.md)")
    made = list(bfcl_checks.cases(copy.root, 4_000, 5))
    answers = bfcl_checks.upstream(copy.root, Path(python), made)
    differ: Counter[str] = Counter()
    for case, answer in zip(made, answers, strict=True):
        if not bfcl_checks.same(case, answer, bfcl_checks.ours(case)):
            differ[case.kind] += 1
    assert not differ
    assert len(made) > 3_000
