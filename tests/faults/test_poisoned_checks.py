"""A row that kills its checker is quarantined; other rows of its block are judged."""

import pytest

from tests.faults.fault_runs import Run

pytestmark = [pytest.mark.ray, pytest.mark.nightly]

BENCHMARK = '''
import os, signal
from ace_ray.benchmarks.base import Benchmark
from ace_ray.types import Entry, Verdict


class Fatal(Benchmark):
    """Ten questions. The check of the fourth kills its process, the check of the sixth raises."""

    name = "fatal"
    rule_sets = ("official", "strict")

    def entries(self):
        return [Entry(id=f"q{i}", prompt=f"q{i}") for i in range(10)]

    def check(self, entry, episode):
        if entry.id == "q3":
            os.kill(os.getpid(), signal.SIGKILL)
        if entry.id == "q5":
            raise RecursionError("too deep")
        return {rules: Verdict(True) for rules in ("official", "strict")}
'''


def test_row_that_kills_checkers_is_quarantined(make_run, monkeypatch):
    run: Run = make_run()
    info = run.folder / "fatal-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fatal\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[ace_ray.benchmarks]\nfatal = fatal:Fatal\n")
    (run.folder / "fatal.py").write_text(BENCHMARK)
    monkeypatch.setenv("PYTHONPATH", str(run.folder))
    run.write(benchmarks=["fatal"], rows_per_block=10, max_attempts=2)

    driver = run.to_the_end()
    assert driver.code == 75, driver.text
    rows = {row["id"]: row for row in run.rows()}
    assert len(rows) == 10
    killer, raiser = rows.pop("q3"), rows.pop("q5")
    assert (killer["status"], killer["error_class"]) == ("quarantined", "CheckerKilled")
    assert killer["output"] == raiser["output"] == "[]"
    assert (raiser["status"], raiser["error_class"]) == ("infra_error", "CheckFailed")
    assert raiser["error"] == "RecursionError: too deep"
    assert raiser["attempts"] == 1, "a failed check is not evaluated again"
    assert {row["status"] for row in rows.values()} == {"scored"}
    assert all(row["official_valid"] and row["strict_valid"] for row in rows.values())
    summary = run.summary()
    assert (summary["scored"], summary["quarantined"], summary["infra_error"]) == (8, 1, 1)
