"""BFCL's prompts and tools are byte for byte those that upstream's own functions make.

Skipped without a copy of bfcl-eval (``BFCL_DATA``, or the installed one).
"""

from __future__ import annotations

import os

import pytest
from bfcl_prompts import compare

from ace_ray.benchmarks.bfcl.data.upstream_package import UpstreamPackage
from ace_ray.errors import UserError


@pytest.mark.nightly
def test_prompts_and_tools_are_upstreams() -> None:
    try:
        copy = UpstreamPackage.locate(os.environ.get("BFCL_DATA", "installed"))
    except UserError as error:
        pytest.skip(str(error))
    found = compare(copy)
    assert found.differences == []
    messages = {c: n for (c, what), n in found.equal.items() if what == "messages"}
    assert len(messages) == 23
    # with the 37 conversations before the questions about them, for each of three memories
    assert sum(messages.values()) == 10_306 + 3 * 37
