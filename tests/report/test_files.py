"""What `ace-ray report` prints and writes, and what it refuses."""

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
from ace_ray.reports.folder import claim, write
from ace_ray.reports.report import make_report
from ace_ray.reports.table import csv_text
from tests.report.builders import block, everything, write_run

TABLE = Table(
    name="t",
    title="A title",
    header=["Model", "Share", "Rows"],
    lines=[["a|b*", Estimate(0.5, (0.25, 0.75), 8), 3], ["c", None, None]],
    notes=["a_note"],
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for size, right in ((3, 4), (7, 8)):
        rows = everything({"normal_preference": right, "special_incomplete": right})
        write_run(folder / f"toy{size}", rows, model=f"o/Toy-{size}B")
    return folder


def report(folders: list[Path], *, paper: bool = False, out: Path | str | None = None) -> str:
    """`make_report` without a process of its own; returns what it prints."""
    printed = StringIO()
    make_report(
        [str(folder) for folder in folders],
        paper=paper,
        out=None if out is None else str(out),
        rules="official",
        console=Console(file=printed, width=200),
    )
    return printed.getvalue()


def test_csv_has_columns_for_the_interval() -> None:
    assert csv_text(TABLE).splitlines() == [
        "Model,Share,Share low,Share high,Share n,Rows",
        "a|b*,50.0000,25.0000,75.0000,8,3",
        "c,N/A,N/A,N/A,N/A,N/A",
    ]


def test_csv_runs_nothing_in_a_spreadsheet() -> None:
    """Labels and sources are whatever somebody called a model."""
    table = replace(TABLE, lines=[["=HYPERLINK(1)", None, -3], ["@x", None, 1]])
    assert csv_text(table).splitlines()[1:] == [
        "'=HYPERLINK(1),N/A,-3",
        "'@x,N/A,1",
    ]


@pytest.mark.nightly
def test_the_paper_is_printed_and_written(cli: Any, runs: Path, tmp_path: Path) -> None:
    ended = cli("report", runs / "toy3", runs / "toy7", "--paper", "--rules", "strict")
    assert ended.code == 0, ended.stderr
    printed = {int(n) for n in re.findall(r"Table (\d): ", ended.stdout)}
    shown = {2, 3, 4, 5, 7, 8}
    assert printed == shown, "Table 6 compares prompt variants, and the runs have one"
    assert list((tmp_path / "cwd").iterdir()) == [], "several runs without --output are printed"
    folder = tmp_path / "out"
    report([runs / "toy3", runs / "toy7"], paper=True, out=folder)
    names = {path.name for path in folder.iterdir()}
    tables = {f"table{i}.csv" for i in shown}
    further = {f"{name}-acebench.csv" for name in ("comparison", "categories", "errors")}
    flips = {"flips-1-acebench-official.csv"}
    whole = {"report.html", "report.json", "comparison.csv"}
    assert names == tables | further | flips | whole
    with (folder / "table3.csv").open() as file:
        first, second = csv.DictReader(file)
    assert (first["Model"], first["Incomplete"], first["Incomplete n"]) == (
        "Toy-3B",
        "40.0000",
        "20",
    )
    assert (second["Model"], second["Incomplete"]) == ("Toy-7B", "80.0000")
    facts = json.loads((folder / "report.json").read_text())
    assert set(facts["files"]) == names - {"report.json"}
    assert [run["label"] for run in facts["runs"]] == ["Toy-3B", "Toy-7B"]
    # A second report takes the place of the first, with nothing of it left.
    report([runs / "toy3"], paper=True, out=folder)
    assert not (folder / "comparison.csv").exists()
    assert (folder / "table3.csv").read_text().count("Toy-") == 1


def test_a_foreign_folder_is_left_alone(runs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "report"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="contains files that do not belong to a report"):
        report([runs / "toy3"], paper=True, out=folder)
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("marker", ["", "[]", '{"made_by": "me", "files": []}'])
def test_another_report_json_does_not_make_a_folder_ours(tmp_path: Path, marker: str) -> None:
    (tmp_path / "report.json").write_text(marker)
    with pytest.raises(UserError, match="do not belong to a report"):
        claim(str(tmp_path))


@pytest.mark.nightly
def test_a_job_s_report_goes_to_no_relative_folder(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "working_dir_files" / "_ray_pkg_1"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    with pytest.raises(
        UserError, match=r"is relative, .* pass --output s3://bucket/prefix or an abs"
    ):
        report([runs / "toy3", runs / "toy7"], out="report")
    assert list(folder.iterdir()) == []


def test_a_marker_cannot_reach_out_of_its_folder(tmp_path: Path) -> None:
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


def test_a_benchmark_without_a_paper(runs: Path, tmp_path: Path) -> None:
    rows = [{**row, "benchmark": "toy"} for row in block("en", "special_incomplete", 3, 4)]
    other = write_run(tmp_path / "other", rows, model="o/Other")
    text = (other / "run.json").read_text().replace('"acebench"', '"toy"')
    (other / "run.json").write_text(text)
    with pytest.raises(UserError, match="there are no paper tables for toy"):
        report([other], paper=True, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert "Accuracy" in report([runs / "toy3", other])
