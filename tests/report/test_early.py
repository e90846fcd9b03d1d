"""Early decisions in reports: an estimate with its confidence sequence, not a score."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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
