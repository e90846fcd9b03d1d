"""The official rule set and protocol, held against a clone of the official repository.

Skipped without one; the full size of these runs is in docs/parity.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import compare
import episodes
import pytest
from official import clone
from variations import kinds, variations

from ace_ray.benchmarks.acebench.benchmark import check
from ace_ray.benchmarks.acebench.data.loader import load
from ace_ray.benchmarks.acebench.options import CATEGORIES
from ace_ray.errors import UserError

PER_ROW = 6


@pytest.fixture(scope="module")
def official() -> Iterator[Path]:
    try:
        yield clone()
    except UserError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("category", CATEGORIES)
def test_verdicts_are_those_of_the_official_evaluator(
    official: Path, shared_data: Path, category: str
) -> None:
    entries = load(shared_data, categories=[category])
    found = list(compare.compare(entries, PER_ROW))
    assert [counts.language for counts in found] == ["en", "zh"]
    assert sum(counts.of["outputs"] for counts in found) == PER_ROW * len(entries)
    judged = sum(counts.of["judged"] for counts in found)
    assert judged > 0.7 * PER_ROW * len(entries)
    differences = [str(one) for counts in found for one in counts.differences]
    assert differences == []


@pytest.mark.parametrize("language", ["en", "zh"])
def test_episodes_are_those_of_the_official_loops(
    official: Path, shared_data: Path, language: str
) -> None:
    found = episodes.play(str(shared_data), language, episodes=60)
    assert found.counts["compared"] > 40
    assert found.differences == []


def test_a_difference_is_seen(
    official: Path, shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def strict(entry: object, output: object) -> object:
        return {"official": check(entry, output)["strict"]}  # type: ignore[arg-type]

    monkeypatch.setattr(compare, "check", strict)
    entries = load(shared_data, languages=["en"], categories=["normal_atom_number"])
    (counts,) = compare.compare(entries, PER_ROW)
    assert counts.differences
    assert counts.of["verdict"] < counts.of["judged"]


@pytest.mark.parametrize("category", CATEGORIES)
def test_variations_are_many_and_the_same_again(shared_data: Path, category: str) -> None:
    entry = load(shared_data, languages=["zh"], categories=[category])[0]
    made = list(variations(entry, 300, seed=1))
    assert len(made) == 300
    assert repr(made) == repr(list(variations(entry, 300, seed=1)))
    assert repr(made) != repr(list(variations(entry, 300, seed=2)))
    assert {one.kind for one in made} <= set(kinds(category))
    assert len({repr(one.output) for one in made}) > 100
