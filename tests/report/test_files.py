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
from ace_ray.reports.table import csv_text, escaped, markdown
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


def test_markdown_escapes_and_shows_intervals() -> None:
    assert markdown(TABLE, n=True).splitlines() == [
        "## A title",
        "",
        "| Model | Share | Rows |",
        "| --- | ---: | ---: |",
        "| a\\|b\\* | 50.0 [25.0, 75.0] n=8 | 3 |",
        "| c | N/A | N/A |",
        "",
        "- a\\_note",
    ]


HOSTILE_MARKDOWN = [
    "![x](http://evil/?q)",
    "[x](http://evil/?q)",
    "[x](javascript:alert(1))",
    "![x][y] [y]: http://evil/",
    "[x]",
    "\\\\![x](http://evil)",
    "\\\\[x](http://evil)",
    "<http://evil/?q> <a@b.c> <img src=http://evil>",
    "`<http://evil>`",
    "| [x](y) | http://evil",
    "&#33;&#91;x&#93;(http://evil)",
    "**b** _i_ ~~~",
]


@pytest.mark.parametrize("text", HOSTILE_MARKDOWN)
def test_markdown_makes_nothing_of_what_others_wrote(text: str) -> None:
    """As CommonMark has it, in a title, a cell and a note."""
    from markdown_it import MarkdownIt

    table = replace(TABLE, title=text, header=[text, "b"], lines=[[text, 1]], notes=[text])
    page = f"{markdown(table)}\n\n[x]: http://evil\n[y]: http://evil\n"
    parsed = MarkdownIt("commonmark").enable("table").parse(page)
    found = {part.type for token in parsed for part in token.children or []}
    assert found <= {"text", "text_special"}
    assert not {token.type for token in parsed} & {"html_block", "fence", "code_block"}


@pytest.mark.parametrize("text", ["http://evil", "see HTTPS://evil", "ftp://e", "(www.evil.com)"])
def test_github_makes_no_links_of_addresses(text: str) -> None:
    """Its extension looks for `://` and `www.`."""
    assert not re.search(r"(?<!\\)://|www\.", escaped(text), re.IGNORECASE)


@pytest.mark.nightly
def test_the_comparison_is_printed_and_not_written(cli: Any, runs: Path, tmp_path: Path) -> None:
    ended = cli("report", runs / "toy3", runs / "toy7")
    assert ended.code == 0, ended.stderr
    assert "Toy-3B" in ended.stdout
    assert "340/340" in ended.stdout
    assert "98.3 [" in ended.stdout
    assert "n=240" in ended.stdout
    assert list((tmp_path / "cwd").iterdir()) == []


@pytest.mark.nightly
def test_the_paper_is_printed_and_written(cli: Any, runs: Path, tmp_path: Path) -> None:
    ended = cli("report", runs / "toy3", runs / "toy7", "--paper", "--rules", "strict")
    assert ended.code == 0, ended.stderr
    for number in range(2, 9):
        assert f"Table {number}: " in ended.stdout
    folder = tmp_path / "cwd" / "report"
    names = {path.name for path in folder.iterdir()}
    tables = {f"table{i}.{kind}" for i in range(2, 9) for kind in ("csv", "md")}
    figures = {
        f"{name}.{kind}"
        for name in ("figure6", "figure7", "scores-acebench")
        for kind in ("png", "svg")
    }
    compared = {"comparison-acebench.csv", "comparison-acebench.md"}
    further = {
        f"{name}-acebench.{kind}" for name in ("categories", "errors") for kind in ("csv", "md")
    }
    whole = {"report.html", "report.md", "report.json"}
    expected = tables | figures | compared | further | whole | {"comparison.json"}
    assert expected <= names
    statistics = ("comparison", "differences-", "flips-", "sizes-", "laws-", "noise-", "best-")
    assert all(name.startswith(statistics) for name in names - expected), names - expected
    with (folder / "table3.csv").open() as file:
        first, second = csv.DictReader(file)
    assert (first["Model"], first["Incomplete"], first["Incomplete n"]) == (
        "Toy-3B",
        "40.0000",
        "20",
    )
    assert (second["Model"], second["Incomplete"]) == ("Toy-7B", "80.0000")
    page = (folder / "report.md").read_text()
    assert "Rule set: strict" in page
    assert "![Accuracy against model size (strict rules)](figure7.svg)" in page
    assert page.count("## Table") == 7
    facts = json.loads((folder / "report.json").read_text())
    assert set(facts["files"]) == names - {"report.json"}
    assert [run["label"] for run in facts["runs"]] == ["Toy-3B", "Toy-7B"]
    # A second report takes the place of the first, with nothing of it left.
    report([runs / "toy3"], paper=True, out=folder)
    assert not (folder / "figure7.png").exists()
    assert (folder / "table3.md").read_text().count("Toy-") == 1


def test_a_foreign_folder_is_left_alone(runs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "report"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="holds files that are not of a report"):
        report([runs / "toy3"], paper=True, out=folder)
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("marker", ["", "[]", '{"made_by": "me", "files": []}'])
def test_another_report_json_does_not_make_a_folder_ours(tmp_path: Path, marker: str) -> None:
    (tmp_path / "report.json").write_text(marker)
    with pytest.raises(UserError, match="not of a report"):
        claim(str(tmp_path))


def test_what_cannot_be_a_report_s_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file: .*Not a directory; name another with --out"):
        claim(str(tmp_path / "file"))
    with pytest.raises(UserError, match="no store for 'gs'"):
        claim("gs://bucket/report")


@pytest.mark.nightly
def test_a_report_of_several_runs_on_s3(runs: Path, s3: Any) -> None:
    def keys() -> set[str]:
        found = s3.client.list_objects_v2(Bucket=s3.bucket, Prefix="several/")
        return {item["Key"].removeprefix("several/") for item in found.get("Contents", [])}

    out = f"s3://{s3.bucket}/several/report/"
    text = report([runs / "toy3", runs / "toy7"], paper=True, out=out)
    assert text.splitlines()[-1] == f"report: {out}report.html"
    assert {"report/report.html", "report/report.json", "report/table3.md"} <= keys()
    report([runs / "toy3"], out=out)
    assert "report/sizes-acebench-strict.svg" not in keys(), "the next one takes its place"
    s3.client.put_object(Bucket=s3.bucket, Key="several/mine/notes.txt", Body=b"mine")
    with pytest.raises(UserError, match="holds files that are not of a report"):
        report([runs / "toy3"], out=f"s3://{s3.bucket}/several/mine")
    with pytest.raises(UserError, match="bucket nowhere does not exist; name another with --out"):
        report([runs / "toy3"], out="s3://nowhere/report")


@pytest.mark.nightly
@pytest.mark.parametrize("out", ["report", None])
def test_a_job_s_report_goes_to_no_relative_folder(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str | None
) -> None:
    folder = tmp_path / "working_dir_files" / "_ray_pkg_1"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    with pytest.raises(
        UserError, match=r"is relative, .* pass --output s3://bucket/prefix or an abs"
    ):
        report([runs / "toy3", runs / "toy7"], paper=True, out=out)
    assert list(folder.iterdir()) == []
    report([runs / "toy3"], out=tmp_path / "out")
    assert (tmp_path / "out" / "report.html").exists()


def test_a_marker_cannot_reach_out_of_its_folder(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("x")
    folder = tmp_path / "report"
    write(claim(str(folder)), {"a.md": b"a", "old.md": b"o"}, {})
    marker = json.loads((folder / "report.json").read_text())
    marker["files"] += ["../victim", "..", "", "report.json", 7]
    (folder / "report.json").write_text(json.dumps(marker))
    (folder / "kept.txt").write_text("somebody's")
    write(claim(str(folder)), {"a.md": b"b"}, {})
    assert victim.exists()
    assert sorted(p.name for p in folder.iterdir()) == ["a.md", "kept.txt", "report.json"]


def test_runs_of_different_benchmarks_have_no_paper(runs: Path, tmp_path: Path) -> None:
    rows = [{**row, "benchmark": "toy"} for row in block("en", "special_incomplete", 3, 4)]
    other = write_run(tmp_path / "other", rows, model="o/Other")
    text = (other / "run.json").read_text().replace('"acebench"', '"toy"')
    (other / "run.json").write_text(text)
    for folders, words in (
        ([runs / "toy3", other], "the runs share no benchmark (Toy-3B: acebench; Other: toy)"),
        ([other], "no tables of a paper are known for toy"),
    ):
        with pytest.raises(UserError) as caught:
            report(folders, paper=True, out=tmp_path / "out")
        assert words in str(caught.value)
    assert not (tmp_path / "out").exists()
    assert "Accuracy" in report([runs / "toy3", other])


@pytest.mark.nightly
def test_one_line_for_what_is_not_a_run(cli: Any, tmp_path: Path) -> None:
    ended = cli("report", tmp_path)
    assert ended.code == 2
    assert ended.stderr.startswith(f"ace-ray: {tmp_path}: is not a run")
    assert len(ended.stderr.strip().splitlines()) == 1
