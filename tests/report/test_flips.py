"""Flips between two runs, with outputs that try to get out of the page."""

from __future__ import annotations

import csv
from io import StringIO
from pathlib import Path

import pytest

from ace_ray.reports.flips import (
    LONGEST,
    Flips,
    flip_csv,
    flip_lines,
    flip_tables,
    flips_of,
)
from tests.report.builders import Row, block, load_run, row, write_run

HOSTILE = "=cmd|' /C calc'!A0 \x1b[2J\x1b]0;title\x07 ```` </script> \u202egnp.exe \x00 | a_b*"


def between(tmp_path: Path, base: list[Row], other: list[Row], rules: str = "strict") -> Flips:
    runs = [
        (load_run(str(write_run(tmp_path / name, rows, model=f"o/{name}"))), name)
        for name, rows in (("A", base), ("B", other))
    ]
    return flips_of(runs[0], runs[1], "acebench", rules)


def with_output(item: Row, output: str) -> Row:
    return {**item, "output": output}


def test_flips_have_both_answers_and_directions(tmp_path: Path) -> None:
    base = [
        with_output(row("en", "normal_preference", i, official=i != 1), f"base {i}")
        for i in range(4)
    ]
    other = [
        with_output(row("en", "normal_preference", i, official=i != 2), f"other {i}")
        for i in range(4)
    ]
    # Row ids of two models differ.
    other = [{**item, "row_id": item["row_id"][::-1]} for item in other]
    found = between(tmp_path, base, other)
    assert found.paired == 4
    assert [(flip.change, flip.id) for flip in found.flips] == [
        ("gained", "normal_preference_1"),
        ("lost", "normal_preference_2"),
    ]
    gained, lost = found.flips
    assert (gained.base.output, gained.other.output) == ("base 1", "other 1")
    assert (gained.base.valid, gained.other.valid) == (False, True)
    assert (lost.error_type, lost.other.error_type, lost.base.error_type) == (
        "param_value",
        "param_value",
        "",
    )
    assert found.counts("category") == {"normal_preference": (1, 1)}
    assert found.counts("error_type") == {"param_value": (1, 1)}
    tables = flip_tables(found)
    assert tables[0].lines == [["normal_preference", 1, 1]]
    assert (
        "1 of 4 rows judged in both runs turned from right to wrong, 1 from " in tables[0].notes[0]
    )


def test_rows_without_a_verdict_in_either_run_do_not_flip(tmp_path: Path) -> None:
    base = [*block("en", "normal_preference", 2, 2), row("zh", "normal_preference", 0)]
    other = [row("en", "normal_preference", 0, official=False, status="infra_error")]
    other += [row("en", "normal_preference", 1, official=False)]
    found = between(tmp_path, base, other)
    assert (found.paired, [flip.id for flip in found.flips]) == (1, ["normal_preference_1"])


def test_samples_flip_one_by_one_and_repeats_never(tmp_path: Path) -> None:
    base = [row("en", "normal_preference", 0, sample=s) for s in (0, 1)]
    other = [row("en", "normal_preference", 0, sample=s, official=s == 0) for s in (0, 1)]
    again = {**row("en", "normal_preference", 0, official=False), "repeat": 1, "row_id": "f" * 32}
    found = between(tmp_path, base, [*other, again])
    assert [(flip.sample, flip.change) for flip in found.flips] == [(1, "lost")]


def test_no_flips_are_said(tmp_path: Path) -> None:
    rows = block("en", "normal_preference", 2, 3)
    (line,) = flip_lines(between(tmp_path, rows, rows))
    assert (
        line == "acebench, strict rules: no flips between A and B among 3 rows judged in both runs"
    )


def test_rule_sets_flip_on_their_own(tmp_path: Path) -> None:
    base = [row("en", "normal_preference", 0, official=True, strict=False)]
    other = [row("en", "normal_preference", 0, official=True, strict=True)]
    assert len(between(tmp_path / "s", base, other, "strict").flips) == 1
    assert between(tmp_path / "o", base, other, "official").flips == []


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Flips:
    outputs = [HOSTILE, "x" * (LONGEST + 7), "`" * 50, "\n# heading\n<img src=x onerror=alert(1)>"]
    base = [with_output(row("en", "normal_preference", i), o) for i, o in enumerate(outputs)]
    other = [
        {**with_output(row("en", "normal_preference", i, official=False), o), "strict_error": o}
        for i, o in enumerate(outputs)
    ]
    return between(tmp_path_factory.mktemp("hostile"), base, other)


def controls(text: str) -> set[str]:
    return {sign for sign in text if (ord(sign) < 32 and sign not in "\n\t") or sign == "\u202e"}


def test_nothing_hostile_reaches_a_terminal_or_a_file(hostile: Flips) -> None:
    printed = "\n".join(flip_lines(hostile))
    for text in (printed, flip_csv(hostile)):
        assert not controls(text)
        assert "[2J" not in text
        assert "title" not in text
        assert "\\u202egnp.exe" in text
    assert len(printed) < 4_000


def test_outputs_are_bounded_and_say_so(hostile: Flips) -> None:
    (long,) = [flip for flip in hostile.flips if flip.id.endswith("_1")]
    assert long.base.output == "x" * LONGEST + " [7 more characters]"


def test_csv_cells_are_no_formulas(hostile: Flips) -> None:
    rows = list(csv.DictReader(StringIO(flip_csv(hostile))))
    assert len(rows) == 4
    assert rows[0]["base_output"].startswith("'=cmd|")
    assert not any(
        value.startswith(("=", "+", "-", "@")) for found in rows for value in found.values()
    )


def test_many_flips_are_cut_on_the_terminal_and_whole_in_the_csv(tmp_path: Path) -> None:
    found = between(
        tmp_path, block("en", "normal_preference", 9, 9), block("en", "normal_preference", 0, 9)
    )
    assert len(flip_csv(found).splitlines()) == 1 + 9
    assert "right to wrong: 4 more" in list(flip_lines(found))
