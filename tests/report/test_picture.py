"""What a report opens with, and what is left out of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ace_ray.benchmarks.results import (
    Curves,
    Estimate,
    Figure,
    Intervals,
    Paper,
    StackedBars,
    Table,
)
from ace_ray.reports.content import content_of
from ace_ray.reports.figures import FORMATS, draw
from ace_ray.reports.present import present, present_table
from ace_ray.reports.runs import load_runs
from tests.report.builders import block, write_run

SHARE = Estimate(0.5, (0.4, 0.6), 10)


def picture(tmp_path: Path, *models: str) -> Figure:
    """Of runs of two categories, without those of agents."""
    folders = []
    for number, model in enumerate(models):
        rows = block("en", "normal_atom_bool", number, 4) + block("en", "special_incomplete", 1, 4)
        folders.append(str(write_run(tmp_path / f"run{number}", rows, model=model)))
    content = content_of(load_runs(folders), None, "strict")
    found = content.benchmarks[0].pictures["strict"]
    assert found is not None
    assert content.figures()[0] is found
    for form in FORMATS:
        assert draw(found, form)
    return found


def test_one_run_has_its_groups_side_by_side(tmp_path: Path) -> None:
    found = picture(tmp_path, "o/Toy-3B")
    assert isinstance(found, Intervals)
    titles = ["Overall (workbook)", "Normal", "Special", "Overall (paper)", "Accuracy (pooled)"]
    assert list(found.labels) == titles
    ((name, shares),) = found.lines.items()
    assert name == "Toy-3B"
    assert [share.partial for share in shares if share] == [True, True, True, True, False]


@pytest.mark.nightly
def test_sizes_are_curves(tmp_path: Path) -> None:
    found = picture(tmp_path, "o/Toy-3B", "o/Toy-7B", "o/Other-1B", "o/unsized")
    assert isinstance(found, Curves)
    assert found.axis == "parameters"
    normal = found.panels["Normal"]
    assert {name: [x for x, _ in points] for name, points in normal.items()} == {
        "Toy": [3.0, 7.0],
        "Other": [1.0],
    }


def test_runs_of_one_size_are_side_by_side(tmp_path: Path) -> None:
    found = picture(tmp_path, "o/Toy-3B", "o/Other-3B")
    assert isinstance(found, Intervals)
    assert list(found.lines) == ["Toy-3B", "Other-3B"]


def table(*lines: list[object]) -> Table:
    return Table("t", "Table", ["Model", "A", "B", "C"], lines, ["a note"])  # type: ignore[arg-type]


def test_columns_and_lines_without_a_number_are_named() -> None:
    found = present_table(table(["x", SHARE, None, "text"], ["y", None, None, "text"]))
    assert found is not None
    assert list(found.header) == ["Model", "A", "C"]
    assert found.lines == [["x", SHARE, "text"]]
    assert found.notes == ["left out, no run has a number of it: B, y", "a note"]


def test_a_whole_table_is_as_it_is() -> None:
    whole = table(["x", SHARE, 3, "text"], ["y", None, 4, "text"])
    assert present_table(whole) is whole
    texts = table(["x", "a", "b", "c"])
    assert present_table(texts) is texts


@pytest.mark.parametrize("value", [None, SHARE])
def test_empty_tables_and_figures_are_named_in_one_line(value: Estimate | None) -> None:
    points = [] if value is None else [(1.0, value)]
    paper = Paper(
        [table(["x", value, value, None])],
        [
            Curves("c", "Curve", {"Normal": {"x": points}}),
            StackedBars("s", "Bars", ["k"], [("x", [0 if value is None else 1])]),
            Intervals("i", "Intervals", ["Normal"], {"x": [value]}),
        ],
        ["a note"],
    )
    found = present(paper)
    if value is None:
        assert (list(found.tables), list(found.figures)) == ([], [])
        assert found.notes == [
            "left out, no run has a number of it: Table, Curve, Bars, Intervals",
            "a note",
        ]
    else:
        assert (len(found.tables), len(found.figures)) == (1, 3)
        assert found.notes == ["a note"]
