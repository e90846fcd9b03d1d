"""A sample of BFCL's verdicts on conversations against upstream's code.

Skipped without a copy of bfcl-eval (``BFCL_DATA``, or the installed one).
"""

import bfcl_multi_turn
import pytest

from ace_ray.benchmarks.bfcl.data.upstream_package import UpstreamPackage


@pytest.mark.nightly
def test_conversations_get_upstreams_verdict(bfcl_copy: UpstreamPackage) -> None:
    report = bfcl_multi_turn.compare(bfcl_copy, 1, 5)
    assert report.differences == []
    assert report.total("cases") == 800
