"""`ace-ray report` of runs and sweeps: pages, CSV files, folders, early decisions, refusals."""

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
from ace_ray.reports.early import EarlyDecision, decisions_table, early_decisions
from ace_ray.reports.report import make_report
from ace_ray.reports.report_folder import claim, claim_within, write
from ace_ray.reports.runs import ScoredRun
from ace_ray.reports.sweeps import ledger_table, load_sweep
from ace_ray.reports.table import cell, csv_text
from ace_ray.storage.object_store import LocalStore, open_store
from ace_ray.storage.stored import EarlyResult
from tests.report.builders import (
    Page,
    block,
    change_manifest,
    everything,
    is_sound,
    ledger_line,
    refused,
    report_page,
    write_run,
    write_sweep,
)

ROWS = everything({"special_incomplete": 4, "normal_preference": 7})


def section(content: bytes, anchor: str) -> str:
    """Return the markup of one section."""
    return content.decode().split(f'<section id="{anchor}">')[1].split("</section>")[0]


def anchors(content: bytes) -> str:
    return " ".join(re.findall('<section id="([a-z]+)">', content.decode()))


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def printed(*folders: Path, out: Path) -> str:
    """Make a report and return what it prints."""
    console = Console(file=StringIO(), width=200)
    options: dict[str, Any] = {"paper": True, "out": str(out), "rules": "official"}
    make_report([str(f) for f in folders], console=console, **options)
    return str(console.file.getvalue())  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "run", ROWS)


def test_csv_has_columns_for_the_interval_and_no_formulas() -> None:
    share = Estimate(0.5, (0.25, 0.75), 8)
    part = replace(share, partial=True)
    lines: list[Any] = [["=HYPERLINK(1)", part, -3], ["@x", share, 1], ["c", None, 2]]
    assert csv_text(Table("t", "T", ["=Model", "Share", "Rows"], lines)).splitlines() == [
        "'=Model,Share,Share low,Share high,Share n,Share partial,Rows",
        "'=HYPERLINK(1),50.0000,25.0000,75.0000,8,yes,-3",
        "'@x,50.0000,25.0000,75.0000,8,,1",
        "c,N/A,N/A,N/A,N/A,N/A,2",
    ]
    assert cell(part, intervals=True) == "50.0 partial [25.0, 75.0] n=8"


def test_the_page_of_one_run(run: Path, tmp_path: Path) -> None:
    content = report_page(run, out=tmp_path / "out", rules="strict")
    is_sound(content)
    assert anchors(content) == "results paper categories errors curves answers provenance"
    results = section(content, "results")
    assert results.count("340/340") == 2
    first, second = "acebench, strict rules (%)", "acebench, official rules (%)"
    assert 0 < results.index(first) < results.index(second)
    assert section(content, "paper").count("<h3>Table 2: ") == 2, "one for each rule set"
    errors = (tmp_path / "out/errors-acebench.csv").read_text().splitlines()[1:3]
    assert errors == [
        "Toy-7B-Instruct,official,error_detection,12,66.7,special_incomplete 12",
        "Toy-7B-Instruct,official,value_error:string,6,33.3,normal_preference 6",
    ]
    text = Page(section(content, "provenance").encode()).text
    identity = json.loads((run / "run.json").read_text())["identity"]
    for part in (identity["benchmarks"]["acebench"]["data_sha256"], identity["model"], str(run)):
        assert part in text


def test_runs_with_a_price_have_costs_and_a_figure(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name, ROWS, model=f"o/{name}") for name in ("small", "large")]
    for number, run in enumerate(runs, 1):
        timing: dict[str, Any] = {"device": "gpu", "waits": None}
        timing |= {"device_s": {"generation": 3400.0 * number}}
        timing |= {"price_per_hour": 3.6, "output_tokens_per_s": 25.0 * number}
        if number == 1:
            timing["rows_in_flight"] = {"every_s": 60.0, "rows": [8, 64.5, 0]}
            timing["pace"] = {"until_90_s": 41.2, "last_tenth": 0.304}
            timing["waits"] = {"all": 0.34, "tail": 0.22, "start": 0.09, "of_later": 0.1}
        (run / "summary.json").write_text(json.dumps({"timing": timing}))
    content = report_page(*runs, out=tmp_path / "out")
    is_sound(content)
    for title in ("official rules, by cost of an entry", "Rows in flight in the last session"):
        assert title in content.decode()
    rows = list(csv.reader(StringIO((tmp_path / "out/comparison-acebench.csv").read_text())))
    assert rows[0][-2:] == ["Cost per entry", "Cost per solved entry"]
    solved = 3.4 / sum(row["official_valid"] and row["strict_valid"] for row in ROWS)
    assert [line[-2:] for line in rows[1:]] == [
        [f"{n * 0.01:.3g}", f"{n * solved:.3g}"] for n in (1, 2)
    ]
    for name in ("cost-acebench", "rows-in-flight"):
        assert (tmp_path / f"out/{name}.svg").is_file()
    points = (tmp_path / "out/rows-in-flight-points.csv").read_text().split()
    assert points == ["Line,minutes,Value", "small,0.0,8.0", "small,1.0,64.5", "small,2.0,0.0"]
    waits = (tmp_path / "out/waits.csv").read_text()
    assert waits.split() == ["Run,All,Start,Tail", "small,34.0,9.0,22.0"]
    pace = (tmp_path / "out/pace.csv").read_text().splitlines()
    assert pace == ["Run,90 % of rows after (s),Last tenth", "small,41.2,0.304"]
    engine = list(csv.reader(StringIO((tmp_path / "out/engine.csv").read_text())))
    assert engine[1:] == [
        [name, f"{25 * n:.1f}", f"{10 * n:.3g}", f"{1000 * n * solved:.3g}"]
        for n, name in enumerate(("small", "large"), 1)
    ]


def test_a_benchmark_without_a_paper_has_its_accuracy(run: Path, tmp_path: Path) -> None:
    rows = block("en", "special_incomplete", 3, 4)
    second = write_run(tmp_path / "other", rows, model="o/Other", benchmark="toy")
    with pytest.raises(UserError, match="there are no paper tables for toy"):
        printed(second, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert "Accuracy" in printed(run, second, out=tmp_path / "both")
    # Runs with other conditions are not compared with each other.
    warm = write_run(tmp_path / "B", ROWS, model="o/B", sampling={"temperature": 1.0})
    content = report_page(run, warm, out=tmp_path / "warm")
    assert "sampling.temperature is" in section(content, "comparison")


def test_a_report_goes_into_its_run_and_changes_nothing_else(invoke: Any, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", ROWS)
    before = files(folder)
    result = invoke("report", folder)
    assert result.stdout.splitlines()[-1] == f"report: {folder}/report/report.html"
    after = files(folder)
    assert {n: c for n, c in after.items() if not n.startswith("report/")} == before
    assert {"report/report.html", "report/comparison-acebench.csv"} <= after.keys()
    assert b"data-answer data-run" in after["report/report.html"]
    # A new report replaces this one.
    assert invoke("report", folder, "--wrong", "0").code == 0
    assert files(folder).keys() == after.keys()
    assert b"data-answer data-run" not in files(folder)["report/report.html"]


@pytest.mark.parametrize("marker", ["", "[]", '{"made_by": "me", "files": []}'])
def test_a_folder_with_other_files_is_refused(run: Path, tmp_path: Path, marker: str) -> None:
    (tmp_path / "report.json").write_text(marker)
    with pytest.raises(UserError, match="contains files that do not belong to a report"):
        printed(run, out=tmp_path)
    assert files(tmp_path) == {"report.json": marker.encode()}


def test_places_that_cannot_hold_a_report_are_refused(run, tmp_path, monkeypatch) -> None:
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
    write(claim(str(folder)), {"a.csv": b"a", "old.csv": b"o"}, [], {})
    marker = json.loads((folder / "report.json").read_text())
    marker["files"] += ["../victim", "..", "", "report.json", 7]
    (folder / "report.json").write_text(json.dumps(marker))
    (folder / "kept.txt").write_text("somebody's")
    write(claim(str(folder)), {"a.csv": "b"}, [], {})
    assert victim.exists()
    assert sorted(p.name for p in folder.iterdir()) == ["a.csv", "kept.txt", "report.json"]


FEW = block("en", "special_incomplete", 1, 2)
LINES = [
    ledger_line("step_100", step=100),
    ledger_line("step_200", step=200, tokens={"prompt": None, "completion": 2}, parameters=2),
    ledger_line("other", "failed", note="the engine did not start", entries=0, cost=0.02),
    refused("step_300", "a tensor holds NaN"),
    refused("step_400", "") | {"state": "pending"},
]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = {
        f"step_{step}": everything({"special_incomplete": right}, of=5)
        for step, right in ((100, 2), (200, 5))
    }
    return write_sweep(tmp_path_factory.mktemp("sweeps") / "sweep", LINES, runs)


@pytest.mark.nightly
def test_complete_runs_are_reported_and_others_named(sweep, tmp_path, invoke) -> None:
    result = invoke("report", sweep).ok()
    assert result.stdout.splitlines()[-1] == f"report: {sweep}/report/report.html"
    content = (sweep / "report" / "report.html").read_bytes()
    is_sound(content)
    text = content.decode()
    assert "2 of 5 models are complete" in text
    results = text.split('<section id="results">')[1].split("</section>")[0]
    assert results.count("170/170") == 4
    assert "the engine did not start" in results
    facts = json.loads((sweep / "report" / "report.json").read_text())
    assert facts["sweep"]["left_out"] == ["other", "step_300", "step_400"]
    with (sweep / "report" / "ledger.csv").open() as file:
        first, *lines, none, every = csv.DictReader(file)
    assert [line["Model"] for line in lines] == ["step_200", "other", "step_300"]
    assert (first["Load (s)"], first["Total (s)"], first["Devices"]) == ("20.0", "100.0", "1 gpu")
    assert (none["Total (s)"], none["Entries"], none["Cost"]) == ("N/A", "N/A", "N/A")
    # 300 s over 680 entries; the seconds of failed runs count.
    sums = {"Total (s)": "300.0", "Cost": "0.2200", "Prompt tokens": "N/A"}
    sums |= {"Per 1,000 entries (s)": "441.2", "Per 1,000 entries (cost)": "0.3235"}
    assert {name: every[name] for name in sums} == sums
    assert invoke("report", sweep).code == 0, "its own report is not a run of the sweep"
    # A sweep is reported alone.
    invoke("report", write_run(tmp_path / "run", FEW), sweep).refused("is a sweep")


def test_labels_are_unique_and_damaged_runs_left_out(tmp_path: Path) -> None:
    lines = [ledger_line("a"), ledger_line("b", cost=None, per_1000={})]
    lines = [line | {"label": "same"} for line in lines]
    lines += [ledger_line("gone"), ledger_line("torn")]
    folder = write_sweep(tmp_path / "sweep", lines, dict.fromkeys(("a", "b", "torn"), FEW))
    (folder / "run-torn" / "run.json").write_text("{")
    sweep = load_sweep(open_store(str(folder)))
    assert sweep is not None
    assert [run.label for run in sweep.runs] == ["same (run-a)", "same (run-b)"]
    whys = {run.label: run.why for run in sweep.left_out}
    assert "run.json is missing" in whys["gone"]
    assert "is not JSON" in whys["torn"]
    table = ledger_table(sweep)
    costs = [line[table.header.index("Cost")] for line in table.lines]
    assert costs == ["0.1000", None, "0.1000", "0.1000", None], "no sum without all prices"
    # Of two rows one is solved.
    cost = sweep.runs[0].totals["cost"]
    assert (cost["total"], cost["per_entry"], cost["per_solved_entry"]) == (0.1, 0.05, 0.1)


def test_a_sweep_compares_its_candidates_with_the_reference(tmp_path: Path) -> None:
    lines = [ledger_line("a") | {"label": "greedy"}, ledger_line("b") | {"label": "short"}]
    folder = write_sweep(tmp_path / "sweep", lines, {"a": FEW})
    write_run(folder / "run-b", FEW, model="/models/train/b", sampling={"max_tokens": 9})
    manifest = json.loads((folder / "sweep.json").read_text())
    for reference, words in (("short", "of the right answers of short"), ("gone", "greedy")):
        manifest["config"] = {"reference": reference}
        (folder / "sweep.json").write_text(json.dumps(manifest))
        page = Page(report_page(folder, out=tmp_path / reference))
        assert words in page.text
        assert "the runs differ in sampling: max_tokens is 1200 in greedy; 9 in short" in page.text
        assert "not comparable" not in page.text


def refusal(folder: Path) -> str:
    with pytest.raises(UserError) as caught:
        report_page(folder, out=Path("unused"))
    assert not Path("unused").exists()
    return str(caught.value)


def test_a_damaged_sweep_is_refused(tmp_path: Path) -> None:
    write_sweep(tmp_path, [], {})
    (tmp_path / "ledger.json").unlink()
    assert "the sweep has no ledger yet" in refusal(tmp_path)
    for lines, problem in (
        ([ledger_line("a", run_id="../a")], "run_id"),
        ([ledger_line("a"), ledger_line("a")], "names run 'run-a' twice"),
    ):
        assert problem in refusal(write_sweep(tmp_path, lines, {}))
    (tmp_path / "ledger.json").write_text('{"schema_version": 1}')
    assert "'runs' is missing" in refusal(tmp_path)
    (tmp_path / "sweep.json").write_text("{")
    assert "is not JSON" in refusal(tmp_path)


HEADLINE = {
    "units": 60, "of_units": 100, "rows": 80, "difference": 0.031, "low": 0.004, "high": 0.06,
    "outcome": "better", "decided_at_units": 50,
    "value": {"estimate": 0.42, "low": 0.3, "high": 0.5},
}  # fmt: skip
EARLY = {
    "against": "s3://b/p/step-10", "alpha": 0.01, "margin": 1.0,
    "decided": True, "stopped": True, "headlines": {"acebench/official": HEADLINE},
}  # fmt: skip


def line(*, stopped: bool = True, stale: bool = False, **changed: Any) -> list[Any]:
    """Return the line of a run of which 80 of 200 rows were evaluated in 800 device seconds."""
    tree = {**EARLY, "stopped": stopped, "stale": stale}
    tree["headlines"] = {"acebench/official": {**HEADLINE, **changed}}
    run = EarlyDecision("step 20", "step 10", EarlyResult.model_validate(tree), 80, 200, 800.0)
    (cells,) = decisions_table([run]).lines
    return list(cells)


def test_a_stopped_run_has_estimates_and_a_complete_one_exact_numbers() -> None:
    assert line() == [
        "step 20", "acebench/official", "step 10", "better", "~+3.1 [+0.4, +6.0]",
        "~42.0 [30.0, 50.0]", "50 of 100", "80 of 200", "0.33",
    ]  # fmt: skip
    value = {"estimate": 0.4, "low": 0.4, "high": 0.4}
    exact = line(stopped=False, low=0.031, high=0.031, value=value)
    assert exact[4:6] == ["+3.1 [+3.1, +3.1]", "40.0 [40.0, 40.0]"]
    assert exact[-1] == "0.00"
    assert line(difference=-1e-9, low=-1e-9, high=1e-9)[4] == "+0.0 [+0.0, +0.0]"
    assert line(outcome="within")[3] == "within 1 point"
    assert line(outcome=None)[3] == "undecided; needs more rows of its reference"
    assert line(outcome=None, rows_to_decide=9)[3] == "undecided; needs about 9 more rows"
    assert line(stale=True)[3] == "better, based on older verdicts"


def test_a_stopped_run_is_reported_but_not_compared(tmp_path: Path, invoke: Any) -> None:
    folder = write_run(tmp_path / "a", everything({"normal_preference": 3})[:-5], finished=False)
    summary = {"complete": False, "why": "stopped early", "scored": 5, "early": EARLY}
    (folder / "summary.json").write_text(json.dumps(summary))
    change_manifest(folder, early={"looked": True})
    (decision,) = early_decisions([ScoredRun(open_store(str(folder)))], {"step-10": "step 10"})
    assert decision.against == "step 10"
    write_run(tmp_path / "b", everything({"normal_preference": 3}), model="o/Toy-2B")
    result = invoke("report", folder).ok()
    assert "Early decisions" in result.stdout
    page = (folder / "report" / "report.html").read_text()
    assert "~+3.1" in page
    assert page.count("they are not scores of the benchmark") == 1
    result = invoke("compare", folder, tmp_path / "b", "--allow-different")
    result.refused("was stopped when its comparison was decided")
