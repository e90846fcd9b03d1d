"""The figure that a report begins with, and what a paper's tables leave out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ace_ray.benchmarks.results import Curves, Estimate, Table
from ace_ray.reports.content import _present_table, content_of
from ace_ray.reports.runs import load_runs
from tests.report.builders import block, write_run

SHARE = Estimate(0.5, (0.4, 0.6), 10)


def picture(tmp_path: Path, *models: str) -> Curves | None:
    """Of runs of two categories, without those of agents."""
    folders = []
    for number, model in enumerate(models):
        rows = block("en", "normal_atom_bool", number, 4) + block("en", "special_incomplete", 1, 4)
        folders.append(str(write_run(tmp_path / f"run{number}", rows, model=model)))
    content = content_of(load_runs(folders), None, "strict")
    return content.benchmarks[0].picture


def test_sizes_are_curves(tmp_path: Path) -> None:
    found = picture(tmp_path, "o/Toy-3B", "o/Toy-7B", "o/Other-1B", "o/unsized")
    assert found is not None
    assert found.axis == "parameters"
    normal = found.panels["Normal"]
    assert {name: [x for x, _ in points] for name, points in normal.items()} == {
        "Toy": [3.0, 7.0],
        "Other": [1.0],
    }


def test_steps_are_curves(tmp_path: Path) -> None:
    found = picture(tmp_path, "train-a/step_200", "train-a/step_100", "o/Toy-3B")
    assert found is not None
    assert (found.axis, list(found.panels["Normal"])) == ("step", ["train-a"])
    assert [x for x, _ in found.panels["Normal"]["train-a"]] == [100, 200]
    assert all(share.partial for _, share in found.panels["Normal"]["train-a"])


def test_runs_of_one_size_have_no_curve(tmp_path: Path) -> None:
    assert picture(tmp_path, "o/Toy-3B", "o/Other-3B") is None


def test_columns_and_lines_without_a_number_are_left_out() -> None:
    lines: list[list[Any]] = [["x", SHARE, None, "text"], ["y", None, None, "text"]]
    found = _present_table(Table("t", "Table", ["Model", "A", "B", "C"], lines, ["a note"]))
    assert list(found.header) == ["Model", "A", "C"]
    assert found.lines == [["x", SHARE, "text"]]
    assert found.notes == ["a note"]
