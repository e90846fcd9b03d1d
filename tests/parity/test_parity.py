"""A sample of ACEBench's verdicts against a clone of the official repository.

Skipped without one; docs/parity.md has the commands for more.
"""

from pathlib import Path

import compare
import pytest
from official import clone

from ace_ray.benchmarks.acebench.benchmark import check
from ace_ray.benchmarks.acebench.data.loader import load
from ace_ray.errors import UserError


@pytest.fixture(scope="module", autouse=True)
def official() -> Path:
    try:
        return clone()
    except UserError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("group", ["normal_", "special_", "agent_"])
def test_verdicts_are_those_of_the_official_evaluator(shared_data: Path, group: str) -> None:
    entries = [entry for entry in load(shared_data) if entry.category.startswith(group)]
    report = compare.compare(entries, 6)
    assert report.differences == []
    assert report.total("judged") > 0.7 * 6 * len(entries)


def test_a_difference_is_seen(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def strict(entry: object, output: object) -> object:
        return {"official": check(entry, output)["strict"]}  # type: ignore[arg-type]

    monkeypatch.setattr(compare, "check", strict)
    entries = load(shared_data, languages=["en"], categories=["normal_atom_number"])
    assert compare.compare(entries, 6).differences
