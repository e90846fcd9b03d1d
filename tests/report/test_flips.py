"""Flips between two runs: counts, both answers, and outputs that are not trusted."""

from __future__ import annotations

import csv
from io import StringIO
from pathlib import Path

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


def test_flips_have_both_answers_and_directions(tmp_path: Path) -> None:
    rows = [
        [
            {**row("en", "normal_preference", i, official=i != wrong), "output": f"{name} {i}"}
            for i in range(4)
        ]
        for name, wrong in (("base", 1), ("other", 2))
    ]
    # Row ids of two models differ.
    rows[1] = [{**item, "row_id": item["row_id"][::-1]} for item in rows[1]]
    found = between(tmp_path, *rows)
    assert found.paired == 4
    assert [(flip.change, flip.id) for flip in found.flips] == [
        ("gained", "normal_preference_1"),
        ("lost", "normal_preference_2"),
    ]
    gained, lost = found.flips
    assert (gained.base.output, gained.other.output) == ("base 1", "other 1")
    assert (lost.base.valid, lost.other.valid, lost.base.error_type) == (True, False, "")
    assert gained.error_type == lost.error_type == "param_value"
    assert found.counts("error_type") == {"param_value": (1, 1)}
    tables = flip_tables(found)
    assert tables[0].lines == [["normal_preference", 1, 1]]
    note = "1 of 4 rows judged in both runs turned from right to wrong, 1 from "
    assert note in tables[0].notes[0]


def test_only_rows_with_a_verdict_in_both_runs_flip(tmp_path: Path) -> None:
    base = [*block("en", "normal_preference", 2, 2), row("zh", "normal_preference", 0)]
    base += [row("en", "normal_similar_api", 0, sample=s) for s in (0, 1)]
    other = [row("en", "normal_preference", 0, official=False, status="infra_error")]
    other += [row("en", "normal_preference", 1, official=False)]
    other += [row("en", "normal_similar_api", 0, sample=s, official=s == 0) for s in (0, 1)]
    again = {**row("en", "normal_similar_api", 0, official=False), "repeat": 1, "row_id": "f" * 32}
    found = between(tmp_path, base, [*other, again])
    assert found.paired == 3
    assert [(flip.id, flip.sample, flip.change) for flip in found.flips] == [
        ("normal_preference_1", 0, "lost"),
        ("normal_similar_api_0", 1, "lost"),
    ]


def test_outputs_of_flips_are_cut_and_harmless(tmp_path: Path) -> None:
    outputs = [HOSTILE, "x" * (LONGEST + 7), "`" * 50, "\n# heading\n<img src=x onerror=alert(1)>"]
    base = [{**row("en", "normal_preference", i), "output": o} for i, o in enumerate(outputs)]
    wrong = (row("en", "normal_preference", i, official=False) for i in range(4))
    other = [
        {**item, "output": o, "strict_error": o} for item, o in zip(wrong, outputs, strict=True)
    ]
    found = between(tmp_path, base, other)
    printed = "\n".join(flip_lines(found))
    for text in (printed, flip_csv(found)):
        assert not {sign for sign in text if ord(sign) < 32 and sign not in "\n\t"}
        assert not [word for word in ("\u202e", "[2J", "title") if word in text]
        assert "\\u202egnp.exe" in text
    assert len(printed) < 4_000
    (long,) = [flip for flip in found.flips if flip.id.endswith("_1")]
    assert long.base.output == "x" * LONGEST + " [7 more characters]"
    rows = list(csv.DictReader(StringIO(flip_csv(found))))
    assert len(rows) == 4
    assert rows[0]["base_output"].startswith("'=cmd|")
    assert not any(
        value.startswith(("=", "+", "-", "@")) for cells in rows for value in cells.values()
    )


def test_the_terminal_shows_the_first_flips_and_the_csv_all(tmp_path: Path) -> None:
    runs = [block("en", "normal_preference", valid, 9) for valid in (9, 0)]
    found = between(tmp_path, *runs)
    assert len(flip_csv(found).splitlines()) == 1 + 9
    assert "right to wrong: 4 more" in list(flip_lines(found))
    assert list(flip_lines(between(tmp_path / "same", runs[0], runs[0], "official"))) == [
        "acebench, official rules: no flips between A and B among 9 rows judged in both runs"
    ]
