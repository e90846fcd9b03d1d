"""The table of several samples, and where the default benchmark has it."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from ace_ray.benchmarks.acebench.options import CATEGORIES
from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.statistics import sample_tables
from ace_ray.benchmarks.tally import Tally, accuracies
from ace_ray.reports.printed_summary import print_benchmark
from ace_ray.storage.rows import ResultRow
from ace_ray.types import Entry, Episode, Verdict


class Mine(Benchmark):
    name = "mine"

    def entries(self) -> list[Entry]:
        return []

    def check(self, entry: Entry, episode: Episode) -> Verdict:
        return Verdict(True)


def rows(category: str, *entries: list[float]) -> list[ResultRow]:
    made = []
    for number, scores in enumerate(entries):
        for sample, score in enumerate(scores):
            row = ResultRow("r", "mine", category, "", str(number), str(number), sample, "scored")
            row.verdicts = {"correct": Verdict.graded(score)}
            made.append(row)
    return made


def stats(*entries: list[float], category: str = "a") -> dict[str, Any]:
    tally = Tally(category, ("correct",))
    for row in rows(category, *entries):
        tally.add(row)
    return {"correct": accuracies([tally], "correct")}


def test_the_table_of_samples() -> None:
    categories = {"a": stats([1, 1, 0, 1], [0, 0, 0, 0]), "one": stats([1]), "b": stats([1, 0])}
    (table,) = sample_tables(categories, ("correct",))
    assert table["header"] == ["category", "rules", "n", "k", "pass@k", "pass^k"]
    assert table["lines"] == [
        ["a", "correct", "2", "1", "37.5 % [5.6, 85.8]", "37.5 % [5.6, 85.8]"],
        ["a", "correct", "2", "2", "50.0 % [9.5, 90.5]", "25.0 % [2.7, 80.2]"],
        ["a", "correct", "2", "4", "50.0 % [9.5, 90.5]", "0.0 % [0.0, 65.8]"],
        ["b", "correct", "1", "1", "50.0 % [5.5, 94.5]", "50.0 % [5.5, 94.5]"],
        ["b", "correct", "1", "2", "100.0 % [20.7, 100.0]", "0.0 % [0.0, 79.3]"],
    ]


@pytest.mark.parametrize(("samples", "ks"), [(3, "1 2 3"), (8, "1 2 4 8"), (20, "1 2 4 20")])
def test_few_k_are_printed(samples: int, ks: str) -> None:
    (table,) = sample_tables({"a": stats([1] * samples)}, ("correct",))
    assert [line[3] for line in table["lines"]] == ks.split()


@pytest.mark.parametrize("entries", [([1], [0]), ([0.5, 0.5], [1, 0])])
def test_one_sample_and_graded_scores_have_no_table(entries: tuple[list[float], ...]) -> None:
    assert sample_tables({"a": stats(*entries)}, ("correct",)) == []


def test_the_default_benchmark_has_it_with_several_samples_only() -> None:
    one = [*rows("a", [1], [0]), *rows("b", [1])]
    assert "further_tables" not in Mine().summarize(one, 0.0)
    several = [*rows("a", [1, 1], [0, 1]), *rows("b", [1])]
    (table,) = Mine().summarize(several, 0.0)["further_tables"]
    assert [line[:4] for line in table["lines"]] == [["a", "correct", "2", k] for k in "12"]


def test_every_line_is_printed_whole() -> None:
    """In a log, the widest cells beside the longest name of a category."""
    name = max(CATEGORIES, key=len)
    categories = {name: {"official": stats(*[[1.0] * 4] * 300)["correct"]}}
    tables = sample_tables(categories, ("official",))
    out = io.StringIO()
    summary = {"scores": {}, "further_tables": tables}
    print_benchmark("acebench", summary, Console(file=out), full=True)
    printed = [line for line in out.getvalue().splitlines() if name in line]
    assert len(printed) == 3
    for line, cells in zip(printed, tables[0]["lines"], strict=True):
        assert [cell.strip() for cell in line.strip("│").split("│")] == cells
