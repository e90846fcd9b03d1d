"""Whole runs on one shared local Ray, so that `make test` covers each kind of run once."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, S3
from tests.e2e.conftest import Evaluate
from tests.e2e.smollm2 import ENGINE, MODEL, conversation_calls
from tests.faults.fault_runs import needs_vllm_and_smollm2

pytestmark = pytest.mark.ray
ARITH = f"{Path(__file__).resolve().parents[2]}/examples/arith.py:Arith"


def test_a_killed_run_resumes_on_s3(make_run, s3: S3, local_ray: dict[str, str]) -> None:
    run = make_run(f"s3://{s3.bucket}/killed")
    go = run.marker("go")
    run.write(engine={"hold": dict.fromkeys(run.questions[6:], go)}, rows_per_part=2)
    killed = run.start(**local_ray)
    killed.until_stored(3)
    killed.kill()
    before = run.started()
    Path(go).touch()
    resumed = run.to_the_end(code=0, **local_ray)
    assert f"12 rows declared, {12 - len(before)} to evaluate" in resumed.text
    run.check_scored(12)
    assert before.items() <= run.started().items()
    assert run.summary()["complete"]


FAILS, FAILS_ONCE, KILLS, HANGS_ONCE = range(1, 5)
"""Numbers of the entries on which the engine fails, fails once, crashes, and hangs once."""


def test_rows_that_fail_kill_and_hang_are_told_apart(make_run, local_ray: dict[str, str]) -> None:
    # One row at a time, so that a crash takes no other row along.
    run = make_run(concurrency=1, engine_stall_timeout_s=3.0, max_attempts=2)
    questions = run.questions
    engine = {
        "fail": {questions[FAILS]: "told to fail, always"},
        "fail_once": {questions[FAILS_ONCE]: run.marker("failed")},
        "die": {questions[KILLS]: ""},
        "hang": {questions[HANGS_ONCE]: run.marker("hung")},
    }
    run.write(engine=engine)
    driver = run.to_the_end(code=75, **local_ray)
    statuses = Counter(row["status"] for row in run.rows())
    assert statuses == {"scored": 10, "infra_error": 1, "quarantined": 1}
    assert run.row(FAILS)["error"] == "told to fail, always"
    assert run.row(KILLS)["status"] == "quarantined"
    for entry in (FAILS_ONCE, HANGS_ONCE):
        assert (run.row(entry)["status"], run.row(entry)["attempts"]) == ("scored", 2)
    assert "declared 12 = 10 scored + 1 infra_error + 1 quarantined" in driver.text


SUMS = f"""
import ace_ray

run = ace_ray.evaluate(
    model="fake",
    backend="fake",
    benchmarks=[{{"name": {ARITH!r}}}],
    engine={{"default": "?", "replies": {{"2 + 2": "4", "3 + 5": "8", "12 + 30": "It is 42."}}}},
    output="runs",
)
accuracy = run.summary["benchmarks"]["arith"]["rules"]["correct"]["accuracy"]
print("RESULT", run.status, run.rows(["id"]).num_rows, accuracy)
"""


def test_a_local_benchmark_through_the_python_api(tmp_path, local_ray) -> None:
    # A new process, because Ray reads its settings when it is imported.
    result = subprocess.run(
        [sys.executable, "-c", SUMS],
        cwd=tmp_path,
        env={**os.environ, **local_ray},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "RESULT complete 5 0.6" in result.stdout, result.stdout + result.stderr


@pytest.mark.engine
@needs_vllm_and_smollm2
def test_native_and_prompted_conversations_on_vllm(evaluate: Evaluate, local_ray: Any) -> None:
    agents = ["agent_multi_turn_0", "agent_multi_step_0"]
    benchmarks = [
        {"name": "bfcl", "ids": ["simple_python_0"]},
        {"name": "acebench", "languages": ["en"], "ids": agents, "max_messages": 6},
        {"name": f"{ROOT}/examples/appointments.py:Appointments"},
    ]
    model: dict[str, Any] = {"backend": "vllm", "model": MODEL, "engine": ENGINE}
    result = evaluate(**model, benchmarks=benchmarks, sampling={"max_tokens": 8}, env=local_ray)
    assert "declared 5 = 5 scored" in result.stdout
    rows = result.rows
    assert all(row["prompt_tokens"] > 100 and row["completion_tokens"] > 0 for row in rows)
    # Native calls of the example, and calls in the text of ACEBench's answers.
    calls = {row["id"]: conversation_calls(row)[:2] for row in rows if row["model_calls"] > 1}
    assert calls == {
        "morning": ["free_slots", "book"],
        "full": ["free_slots", "book"],
        "agent_multi_turn_0": ["turn_on_wifi", "login_device"],
        "agent_multi_step_0": ["turn_on_wifi", "login_device"],
    }
