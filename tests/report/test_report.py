"""`ace-ray report`: the page, the CSV files, the folder that they go to, and refusals."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ace_ray.benchmarks.results import Estimate, Table
from ace_ray.errors import UserError
from ace_ray.reports.folder import claim, claim_within, write
from ace_ray.reports.report import make_report
from ace_ray.reports.table import csv_text
from ace_ray.storage.object_store import LocalStore
from tests.report.builders import Page, block, everything, is_sound, report_page, row, write_run

ROWS = everything({"special_incomplete": 4, "normal_preference": 7})
BETTER = everything({})


def section(content: bytes, anchor: str) -> str:
    """Return the markup of one section."""
    return content.decode().split(f'<section id="{anchor}">')[1].split("</section>")[0]


def anchors(content: bytes) -> str:
    return " ".join(re.findall('<section id="([a-z]+)">', content.decode()))


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def printed(*folders: Path, out: Path) -> str:
    """Make a report and return what it prints."""
    said = Console(file=StringIO(), width=200)
    asked: dict[str, Any] = {"paper": True, "out": str(out), "rules": "official"}
    make_report([str(f) for f in folders], console=said, **asked)
    return str(said.file.getvalue())  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "run", ROWS)


def test_csv_has_columns_for_the_interval_and_no_formulas() -> None:
    share = Estimate(0.5, (0.25, 0.75), 8)
    lines = [["=HYPERLINK(1)", replace(share, partial=True), -3], ["@x", share, 1], ["c", None, 2]]
    assert csv_text(Table("t", "T", ["Model", "Share", "Rows"], lines)).splitlines() == [
        "Model,Share,Share low,Share high,Share n,Share partial,Rows",
        "'=HYPERLINK(1),50.0000,25.0000,75.0000,8,yes,-3",
        "'@x,50.0000,25.0000,75.0000,8,,1",
        "c,N/A,N/A,N/A,N/A,N/A,2",
    ]


def test_the_page_of_one_run(run: Path, tmp_path: Path) -> None:
    content = report_page(run, out=tmp_path / "out", rules="strict")
    is_sound(Page(content))
    assert anchors(content) == "results paper categories errors answers provenance"
    results = section(content, "results")
    assert results.count("340/340") == 2
    first, second = "acebench, strict rules (%)", "acebench, official rules (%)"
    assert 0 < results.index(first) < results.index(second)
    assert section(content, "paper").count("<h3>Table 2: ") == 2, "one for each rule set"
    found = Page(section(content, "provenance").encode()).text
    identity = json.loads((run / "run.json").read_text())["identity"]
    for part in (identity["benchmarks"]["acebench"]["data_sha256"], identity["model"], str(run)):
        assert part in found


def test_an_incomplete_run_has_no_headline_number(tmp_path: Path) -> None:
    failed = row("zh", ROWS[-1]["category"], 9, status="infra_error")
    rows = [*ROWS[:-1], failed]
    folder = write_run(tmp_path / "run", rows, missing=3, finished=False)
    results = section(report_page(folder, out=tmp_path / "out"), "results")
    assert "Toy-7B-Instruct: no headline number, 4 of 343 rows have no verdict" in results
    assert 'class="share"' not in results
    assert "339/343" in results
    allowed = write_run(tmp_path / "allowed", rows, missing=3, finished=False, max_unscored=0.1)
    content = report_page(allowed, out=tmp_path / "out2")
    assert 'class="share"' in section(content, "results")
    assert "RuntimeError" in section(content, "failures")


@pytest.mark.nightly
def test_several_runs_are_compared_printed_and_written(tmp_path: Path, here: Any) -> None:
    runs = {"A-1B": ROWS, "B-3B": BETTER, "C-7B": BETTER}
    folders = [write_run(tmp_path / name, rows, model=name) for name, rows in runs.items()]
    out = tmp_path / "out"
    tables = {int(n) for n in re.findall(r"Table (\d): ", printed(*folders, out=out))}
    assert tables == {2, 3, 4, 5, 7, 8}, "Table 6 compares prompt variants, and the runs have one"
    content = (out / "report.html").read_bytes()
    is_sound(Page(content))
    sections = "picture results paper categories errors curves comparison flips answers provenance"
    assert anchors(content) == sections
    assert "Every run against A-1B, entry by entry" in content.decode()
    assert "C-7B is better than A-1B on Special" in section(content, "comparison")
    assert "wrong to right" in section(content, "flips")
    further = {f"{name}-acebench.csv" for name in ("comparison", "categories", "errors")}
    flips = {f"flips-{n}-acebench-official.csv" for n in (1, 2)}
    whole = {"report.html", "report.json", "comparison.csv"}
    assert set(files(out)) == {f"table{i}.csv" for i in tables} | further | flips | whole
    with (out / "table3.csv").open() as file:
        line, *_ = csv.DictReader(file)
    assert (line["Model"], line["Incomplete"], line["Incomplete n"]) == ("A-1B", "40.0000", "20")
    category = "A-1B,en,special_incomplete,accuracy,10/10,10,40.0000,"
    assert category in (out / "categories-acebench.csv").read_text()
    # A second report replaces the first. Several runs without --output are only printed.
    printed(folders[0], out=out)
    assert not (out / "comparison.csv").exists()
    assert (out / "table3.csv").read_text().count("-1B") == 1
    before = files(tmp_path)
    assert here("report", *folders[:2]).code == 0
    assert files(tmp_path) == before


def test_a_benchmark_without_a_paper_has_its_accuracy(run: Path, tmp_path: Path) -> None:
    rows = block("en", "special_incomplete", 3, 4)
    other = write_run(tmp_path / "other", rows, model="o/Other", benchmark="toy")
    with pytest.raises(UserError, match="there are no paper tables for toy"):
        printed(other, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert "Accuracy" in printed(run, other, out=tmp_path / "both")
    # Runs with other conditions are not compared with each other.
    warm = write_run(tmp_path / "B", ROWS, model="o/B", sampling={"temperature": 1.0})
    content = report_page(run, warm, out=tmp_path / "warm")
    assert "sampling.temperature is" in section(content, "comparison")
    assert "flips" not in anchors(content)
    assert "paper" not in anchors(report_page(other, out=tmp_path / "out"))


def test_a_report_goes_into_its_run_and_changes_nothing_else(here: Any, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", ROWS)
    before = files(folder)
    ended = here("report", folder)
    assert ended.stdout.splitlines()[-1] == f"report: {folder}/report/report.html"
    after = files(folder)
    assert {n: c for n, c in after.items() if not n.startswith("report/")} == before
    assert {"report/report.html", "report/comparison-acebench.csv"} <= after.keys()
    assert b"data-answer data-run" in after["report/report.html"]
    # A new report replaces this one.
    assert here("report", folder, "--wrong", "0").code == 0
    assert files(folder).keys() == after.keys()
    assert b"data-answer data-run" not in files(folder)["report/report.html"]


@pytest.mark.parametrize("marker", ["", "[]", '{"made_by": "me", "files": []}'])
def test_a_folder_with_other_files_is_refused(run: Path, tmp_path: Path, marker: str) -> None:
    (tmp_path / "report.json").write_text(marker)
    with pytest.raises(UserError, match="contains files that do not belong to a report"):
        printed(run, out=tmp_path)
    assert files(tmp_path) == {"report.json": marker.encode()}


def test_places_that_cannot_hold_a_report_are_refused(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "report").write_text("a file")
    with pytest.raises(UserError, match="choose another folder with --out"):
        claim_within(LocalStore(str(tmp_path)))
    folder = tmp_path / "working_dir_files" / "_ray_pkg_1"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    with pytest.raises(UserError, match=r"is relative, .* pass --output s3://bucket/prefix or "):
        claim("report")
    assert list(folder.iterdir()) == []


def test_the_marker_of_a_report_names_no_file_outside(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("x")
    folder = tmp_path / "report"
    write(claim(str(folder)), {"a.csv": b"a", "old.csv": b"o"}, {})
    marker = json.loads((folder / "report.json").read_text())
    marker["files"] += ["../victim", "..", "", "report.json", 7]
    (folder / "report.json").write_text(json.dumps(marker))
    (folder / "kept.txt").write_text("somebody's")
    write(claim(str(folder)), {"a.csv": b"b"}, {})
    assert victim.exists()
    assert sorted(p.name for p in folder.iterdir()) == ["a.csv", "kept.txt", "report.json"]
