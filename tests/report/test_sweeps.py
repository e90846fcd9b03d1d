"""Reports of sweeps and of early decisions."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from ace_ray.errors import UserError
from ace_ray.reports.early import EarlyRun, decisions_table, early_run
from ace_ray.reports.sweeps import Sweep, ledger_table, load_sweep
from ace_ray.storage.object_store import open_store
from ace_ray.storage.stored import Early, read_summary
from tests.report.builders import (
    Page,
    block,
    everything,
    is_sound,
    ledger_line,
    refused,
    report_page,
    write_run,
    write_sweep,
)

FEW = block("en", "special_incomplete", 1, 2)
LINES = [
    ledger_line("step_100", step=100),
    ledger_line("step_200", step=200, tokens={"prompt": None, "completion": 2}, parameters=2),
    ledger_line("other", "failed", note="the engine did not start", entries=0, cost=0.02),
    refused("step_300", "a tensor holds NaN"),
    refused("step_400", "") | {"state": "pending"},
]


def loaded(folder: Path) -> Sweep:
    found = load_sweep(open_store(str(folder)))
    assert found is not None
    return found


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = {
        f"step_{step}": everything({"special_incomplete": right}, of=5)
        for step, right in ((100, 2), (200, 5))
    }
    return write_sweep(tmp_path_factory.mktemp("sweeps") / "sweep", LINES, runs)


def test_complete_runs_are_reported_and_others_named(sweep: Path, here: Any) -> None:
    ended = here("report", sweep)
    assert ended.code == 0, ended.stderr
    assert ended.stdout.splitlines()[-1] == f"report: {sweep}/report/report.html"
    content = (sweep / "report" / "report.html").read_bytes()
    is_sound(Page(content))
    text = content.decode()
    assert "<h1>Sweep train-1a2b</h1>" in text
    assert "2 of 5 models are complete" in text
    results = text.split('<section id="results">')[1].split("</section>")[0]
    assert results.count("170/170") == 4
    assert "the engine did not start" in results
    assert "not evaluated yet" in results
    assert "training step" in text
    assert "Sweep train-1a2b</summary>" in text, "its manifest is among the provenance"
    facts = json.loads((sweep / "report" / "report.json").read_text())
    assert facts["sweep"]["left_out"] == ["other", "step_300", "step_400"]
    with (sweep / "report" / "ledger.csv").open() as file:
        first, *lines, none, every = csv.DictReader(file)
    assert [line["Model"] for line in lines] == ["step_200", "other", "step_300"]
    assert (first["Load (s)"], first["Total (s)"], first["Devices"]) == ("20.0", "100.0", "1 gpu")
    assert (none["Total (s)"], none["Entries"], none["Cost"]) == ("N/A", "N/A", "N/A")
    # 300 s over 680 entries; the seconds of failed runs count.
    sums = {"Total (s)": "300.0", "Generation (s)": "180.0", "Cost": "0.2200", "Entries": "680"}
    sums |= {"Prompt tokens": "N/A", "Completion tokens": "402"}
    sums |= {"Per 1,000 entries (s)": "441.2", "Per 1,000 entries (cost)": "0.3235"}
    assert {name: every[name] for name in sums} == sums
    assert here("report", sweep).code == 0, "its own report is not a run of the sweep"


def test_labels_are_unique_and_damaged_runs_left_out(tmp_path: Path) -> None:
    lines = [ledger_line("a"), ledger_line("b", cost=None, per_1000={})]
    lines = [line | {"label": "same"} for line in lines]
    lines += [ledger_line("gone"), ledger_line("torn")]
    folder = write_sweep(tmp_path / "sweep", lines, dict.fromkeys(("a", "b", "torn"), FEW))
    (folder / "run-torn" / "run.json").write_text("{")
    found = loaded(folder)
    assert [run.label for run in found.runs] == ["same (run-a)", "same (run-b)"]
    whys = {one.label: one.why for one in found.left_out}
    assert "run.json is missing" in whys["gone"]
    assert "is not JSON" in whys["torn"]
    table = ledger_table(found)
    costs = [line[table.header.index("Cost")] for line in table.lines]
    assert costs == ["0.1000", None, "0.1000", "0.1000", None], "no sum without all prices"


def refusal(folder: Path) -> str:
    with pytest.raises(UserError) as caught:
        report_page(folder, out=Path("unused"))
    assert not Path("unused").exists()
    return str(caught.value)


def test_a_damaged_sweep_is_refused(tmp_path: Path) -> None:
    write_sweep(tmp_path, [], {})
    (tmp_path / "ledger.json").unlink()
    assert "the sweep has no ledger yet" in refusal(tmp_path)
    (tmp_path / "ledger.json").write_text('{"schema_version": 1}')
    assert "'runs' is missing" in refusal(tmp_path)
    (tmp_path / "sweep.json").write_text('{"schema_version": 1}')
    assert "'sweep_id' is missing" in refusal(tmp_path)
    (tmp_path / "sweep.json").write_text("{")
    assert "is not JSON" in refusal(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"run_id": "../elsewhere"},
        {"run_id": "run-twice"},
        {"state": "done"},
        {"entries": "many"},
        {"cost": float("nan")},
        {"seconds": {"load": -1.0, "warm_up": 0, "generation": 0, "tool": 0, "idle": 0}},
    ],
)
def test_a_damaged_ledger_line_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    lines = [ledger_line("a", **change), ledger_line("twice")]
    assert "ledger.json" in refusal(write_sweep(tmp_path / "sweep", lines, {}))


def test_a_sweep_is_reported_alone(sweep: Path, tmp_path: Path, here: Any) -> None:
    ended = here("report", write_run(tmp_path / "run", FEW), sweep)
    assert ended.code == 2
    assert "is a sweep" in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1


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
    run = EarlyRun("step 20", "step 10", Early.model_validate(tree), 80, 200, 800.0)
    (found,) = decisions_table([run]).lines
    return list(found)


def test_a_stopped_run_has_estimates_only() -> None:
    assert line() == [
        "step 20", "acebench/official", "step 10", "better", "~+3.1 [+0.4, +6.0]",
        "~42.0 [30.0, 50.0]", "50 of 100", "80 of 200", "0.33",
    ]  # fmt: skip


def test_exact_numbers_and_outcomes_are_named() -> None:
    value = {"estimate": 0.4, "low": 0.4, "high": 0.4}
    exact = line(stopped=False, low=0.031, high=0.031, value=value)
    assert exact[4:6] == ["+3.1 [+3.1, +3.1]", "40.0 [40.0, 40.0]"]
    assert exact[-1] == "0.00"
    assert line(difference=-1e-9, low=-1e-9, high=1e-9)[4] == "+0.0 [+0.0, +0.0]"
    assert line(outcome="within")[3] == "within 1 point"
    assert line(outcome=None)[3] == "undecided"
    assert line(stale=True)[3] == "better, based on older verdicts"


def test_a_stopped_run_is_reported_but_not_compared(tmp_path: Path, here: Any) -> None:
    folder = write_run(tmp_path / "a", everything({"normal_preference": 3})[:-5], finished=False)
    summary = {"complete": False, "why": "stopped early", "scored": 5, "early": EARLY}
    (folder / "summary.json").write_text(json.dumps(summary))
    manifest = json.loads((folder / "run.json").read_text()) | {"early": {"looked": True}}
    (folder / "run.json").write_text(json.dumps(manifest))
    store = open_store(str(folder))
    found = early_run("a", store, read_summary(store), {"step-10": "step 10"})
    assert found is not None
    assert found.against == "step 10"
    write_run(tmp_path / "b", everything({"normal_preference": 3}), model="o/Toy-2B")
    ended = here("report", folder)
    assert ended.code == 0, ended.stderr
    assert "Early decisions" in ended.stdout
    page = (folder / "report" / "report.html").read_text()
    assert "~+3.1" in page
    assert page.count("they are not scores of the benchmark") == 1
    refused = here("compare", folder, tmp_path / "b", "--allow-different")
    assert refused.code == 2
    assert "was stopped when its comparison was decided" in " ".join(refused.stderr.split())
