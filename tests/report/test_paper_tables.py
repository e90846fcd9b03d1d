"""The paper's tables from rows made up so that every number is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.acebench.benchmark import ACEBench
from ace_ray.benchmarks.acebench.categories import AGENT
from ace_ray.benchmarks.results import Estimate, Paper, Table
from ace_ray.reports.runs import load_runs
from ace_ray.util.stats import wilson
from tests.report.builders import block, everything, row, write_run

SHARES = {
    "normal_atom_bool": 4,
    "normal_similar_api": 5,
    "special_incomplete": 3,
    "special_error_param": 1,
    "special_irrelevant": 8,
    "agent_multi_turn": 6,
    "agent_multi_step": 2,
}


def paper(*folders: Path, rules: str = "official") -> Paper:
    runs = load_runs([str(folder) for folder in folders])
    return ACEBench.paper([run.reported("acebench", ACEBench.statistics) for run in runs], rules)


def table(number: int, *folders: Path, rules: str = "official") -> Table:
    (found,) = [t for t in paper(*folders, rules=rules).tables if t.name == f"table{number}"]
    return found


def shares(line: Any) -> list[float | None]:
    """Return the shares of a line in percent, with one decimal as in the paper."""
    return [None if v is None else round(100 * v.value, 1) for v in line[1:]]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "whole", everything(SHARES))


def test_tables_have_groups_categories_and_their_overall(whole: Path) -> None:
    found = paper(whole)
    assert [t.title.partition(":")[0] for t in found.tables] == [f"Table {i}" for i in range(2, 9)]
    assert all(t.title.endswith("official rules") for t in found.tables)
    names = "Atom Single-Turn Multi-Turn Similar-API Preference Summary Special Agent Overall"
    # Square-root weights over 120, 30 and 20 judged entries.
    normal, special, agent = (12 - 0.6 - 0.5) / 12, 0.4, 0.4
    roots = [120**0.5, 30**0.5, 20**0.5]
    overall = sum(w * v for w, v in zip(roots, (normal, special, agent), strict=True)) / sum(roots)
    whole_n = [60, 20, 20, 10, 10, 120, 30, 20, 170]
    expected = [90.0, 100.0, 100.0, 50.0, 100.0, 90.8, 40.0, 40.0, round(100 * overall, 1)]
    for number, languages in ((2, 2), (7, 1), (8, 1)):
        shown = table(number, whole)
        assert [h.replace(" ", "-") for h in shown.header] == ["Model", *names.split()]
        ((label, *cells),) = shown.lines
        assert (label, shares([label, *cells])) == ("Toy-7B-Instruct", expected)
        assert [v.n for v in cells if isinstance(v, Estimate)] == [languages * n for n in whole_n]
    assert shares(table(3, whole).lines[0]) == [30.0, 10.0, 80.0]
    assert shares(table(4, whole).lines[0]) == [60.0, 75.0, 20.0, 75.0]
    (similar,) = [cell for cell in table(7, whole).lines[0][4:5] if isinstance(cell, Estimate)]
    assert similar.interval == pytest.approx(wilson(5, 10))


def test_table_5_leaves_irrelevant_out(tmp_path: Path) -> None:
    def one(category: str, number: int, official: str, strict: str) -> dict[str, object]:
        errors = {"official": official, "strict": strict}
        return row("en", category, number, official=False, errors=errors)

    rows = [
        one("special_incomplete", 0, "error_detection", "detection_failed"),
        one("special_incomplete", 1, "error_correction", "detection_failed"),
        one("special_error_param", 0, "official_crash", "correction_failed"),
        row("en", "special_error_param", 1, official=True, strict=False),
        *block("en", "special_irrelevant", 0, 5),
    ]
    folder = write_run(tmp_path / "run", rows)
    official, strict = table(5, folder), table(5, folder, rules="strict")
    assert official.lines == [["Toy-7B-Instruct", 1, 1]]
    assert strict.lines == [["Toy-7B-Instruct", 3, 1]]
    assert "judged rows: 4 of Toy-7B-Instruct" in official.notes
    assert any("neither column: 1 of Toy" in note for note in official.notes)
    assert not any("neither column" in note for note in strict.notes)
    assert shares(table(3, folder).lines[0]) == [0.0, 50.0, 0.0]


def test_incomplete_runs_are_marked_and_have_no_overall(tmp_path: Path) -> None:
    rows = [r for r in everything({"special_error_param": 0}) if r["category"] not in AGENT]
    rows[0] = row("en", "normal_atom_bool", 0, status="infra_error")
    lost = next(i for i, item in enumerate(rows) if item["category"] == "special_incomplete")
    rows[lost] = row("en", "special_incomplete", 0, status="quarantined")
    folder = write_run(tmp_path / "run", rows, missing=2, finished=False)
    found = table(2, folder)
    (line,) = found.lines
    assert line[0] == "Toy-7B-Instruct*"
    assert shares(line) == [None, 100.0, 100.0, 100.0, 100.0, None, None, None, None]
    (note,) = [note for note in found.notes if note.startswith("* incomplete")]
    assert note.endswith("Toy-7B-Instruct: of 302 rows 1 infra_error, 1 quarantined, 2 missing")
    assert shares(table(3, folder).lines[0]) == [None, 0.0, 100.0]
    assert table(5, folder).lines == [["Toy-7B-Instruct*", None, None]]
    allowed = write_run(tmp_path / "allowed", rows, max_unscored=0.1)
    assert shares(table(3, allowed).lines[0]) == [100.0, 0.0, 100.0]
    assert table(5, allowed).lines == [["Toy-7B-Instruct*", 20, 0]]


def test_table_6_composes_variants_that_differ_in_nothing_else(tmp_path: Path) -> None:
    def run(name: str, variant: str, valid: int, **more: Any) -> Path:
        rows = everything({"normal_preference": valid})
        return write_run(tmp_path / name, rows, variant=variant, **more)

    variants = {"standard": 10, "condensed": 4, "minimal": 1}
    folders = [run(variant, variant, valid) for variant, valid in variants.items()]
    folders.append(run("other", "condensed", 0, sampling={"temperature": 1.0}))
    found = table(6, *folders)
    assert list(found.header) == ["Model", "Standard", "Condensed", "Minimal"]
    assert [shares(line) for line in found.lines] == [[100.0, 95.0, 92.5]]
    notes = "\n".join(found.notes)
    assert "condensed from Toy-7B-Instruct (condensed) (own prompts)" in notes
    assert (
        "missing: runs of the variants standard, minimal that differ in nothing else, model and "
        "engine arguments included, from Toy-7B-Instruct (other)" in notes
    )
    assert shares(table(6, folders[0], folders[2]).lines[0]) == [100.0, None, 92.5]
    assert table(6, folders[0]).lines == []
    # All other tables show the standard prompts.
    assert [line[0] for line in table(2, *folders).lines] == ["Toy-7B-Instruct (standard)"]
    assert any("not standard" in note for note in table(2, *folders).notes)


def test_incomparable_runs_are_numbered(whole: Path, tmp_path: Path) -> None:
    warm = write_run(tmp_path / "warm", everything({}), model="o/W", sampling={"temperature": 1.0})
    found = table(2, whole, warm)
    assert [line[0] for line in found.lines] == ["Toy-7B-Instruct [1]", "W [2]"]
    assert any("same number compare" in note for note in found.notes)
    alike = write_run(tmp_path / "alike", everything({}), model="o/W")
    assert [line[0] for line in table(2, whole, alike).lines] == ["Toy-7B-Instruct", "W"]
