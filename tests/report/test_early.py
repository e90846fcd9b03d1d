"""What was decided early, in reports: an estimate with its sequence, never a plain number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ace_ray.reports.early import EarlyRun, decisions_table, early_run
from ace_ray.storage.object_store import open_store
from ace_ray.storage.stored import Early, read_summary
from tests.report.builders import everything, write_run

HEADLINE = {
    "units": 60, "of_units": 100, "rows": 80, "difference": 0.031, "low": 0.004, "high": 0.06,
    "outcome": "better", "decided_at_units": 50,
    "value": {"estimate": 0.42, "low": 0.3, "high": 0.5},
}  # fmt: skip
EARLY = {
    "against": "s3://b/p/step-10", "alpha": 0.01, "margin": 1.0,
    "decided": True, "stopped": True, "headlines": {"acebench/official": HEADLINE},
}  # fmt: skip


def run(**more: Any) -> EarlyRun:
    early = Early.model_validate({**EARLY, **more})
    return EarlyRun("step 20", "step 10", early, scored=80, declared=200, device_s=800.0)


def test_a_stopped_run_has_estimates_only() -> None:
    table = decisions_table([run()])
    (line,) = table.lines
    assert line == [
        "step 20", "acebench/official", "step 10", "better", "~+3.1 [+0.4, +6.0]",
        "~42.0 [30.0, 50.0]", "50 of 100", "80 of 200", "0.33",
    ]  # fmt: skip
    assert any("estimates" in note for note in table.notes)


@pytest.mark.parametrize(
    ("outcome", "said"), [("within", "within 1 point"), (None, "undecided"), ("worse", "worse")]
)
def test_outcomes(outcome: str | None, said: str) -> None:
    headlines = {"acebench/official": {**HEADLINE, "outcome": outcome}}
    assert decisions_table([run(headlines=headlines)]).lines[0][3] == said


def test_a_complete_run_has_saved_nothing_and_no_tilde() -> None:
    exact = {**HEADLINE, "low": 0.031, "high": 0.031, "units": 100,
             "value": {"estimate": 0.4, "low": 0.4, "high": 0.4}}  # fmt: skip
    made = run(stopped=False, headlines={"acebench/official": exact})
    line = decisions_table([made]).lines[0]
    assert line[4:6] == ["+3.1 [+3.1, +3.1]", "40.0 [40.0, 40.0]"]
    assert line[-1] == "0.00"


def test_no_difference_has_no_sign_of_its_own() -> None:
    none = {**HEADLINE, "difference": -1e-9, "low": -1e-9, "high": 1e-9}
    line = decisions_table([run(headlines={"acebench/official": none})]).lines[0]
    assert line[4] == "+0.0 [+0.0, +0.0]"


def stopped(folder: Path) -> None:
    write_run(folder, everything({"normal_preference": 3})[:-5], model="o/Toy-1B")
    summary = {"complete": False, "why": "stopped early", "scored": 5, "early": EARLY}
    (folder / "summary.json").write_text(json.dumps(summary))
    (folder / "_SUCCESS").unlink(missing_ok=True)
    manifest = json.loads((folder / "run.json").read_text())
    manifest["early"] = {"looked": True}
    (folder / "run.json").write_text(json.dumps(manifest))


def test_read_back_from_a_folder(tmp_path: Path) -> None:
    stopped(tmp_path / "run")
    store = open_store(str(tmp_path / "run"))
    found = early_run("x", store, read_summary(store), {"step-10": "step 10"})
    assert found is not None
    assert found.early.stopped
    assert found.against == "step 10"


@pytest.mark.nightly
def test_reports_and_comparisons_of_a_stopped_run(tmp_path: Path, here: Any) -> None:
    stopped(tmp_path / "a")
    write_run(tmp_path / "b", everything({"normal_preference": 3}), model="o/Toy-2B")
    ended = here("report", tmp_path / "a")
    assert ended.code == 0, ended.stderr
    assert "Early decisions" in ended.stdout
    page = (tmp_path / "a" / "report" / "report.html").read_text()
    assert "~+3.1" in page
    assert page.count("they are not scores of the benchmark") == 1
    refused = here("compare", tmp_path / "a", tmp_path / "b", "--allow-different")
    assert refused.code == 2
    assert "was stopped when its comparison was decided" in " ".join(refused.stderr.split())
