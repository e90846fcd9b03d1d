"""A benchmark in a local file goes through every command, with the fake engine."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Evaluate, Evaluated
from tests.report.builders import change_manifest

ARITH = f"{Path(__file__).resolve().parents[2]}/examples/arith.py:Arith"


def test_outputs_made_elsewhere_become_a_run(invoke: Any, tmp_path: Path) -> None:
    outputs = tmp_path / "answers.jsonl"
    texts = {"2 + 2": "4", "3 + 5": "nine", "12 + 30": "42", "17 + 25": "42"}
    lines = [json.dumps({"id": key, "output": text}) for key, text in texts.items()]
    outputs.write_text("\n".join(lines) + "\n")
    run, second = tmp_path / "scored", tmp_path / "other"
    result = invoke("score", outputs, "--benchmark", ARITH, "--output", run).ok()
    assert "4 of 5 entries; a sample of the benchmark, not its score" in result.stdout
    verdicts = [json.loads(line) for line in (run / "verdicts.jsonl").read_text().splitlines()]
    assert [line["correct"]["valid"] for line in verdicts] == [True, False, True, True]
    assert verdicts[1]["correct"]["error"] == "the answer does not end in 8"
    invoke("report", run)
    assert "external outputs" in (run / "report" / "report.html").read_text()
    outputs.write_text(outputs.read_text().replace("nine", "8"))
    assert invoke("score", outputs, "--benchmark", ARITH, "--output", second).code == 0
    result = invoke("compare", run, second, "--flips").ok()
    assert "3 + 5" in result.stdout

    # Every local file that the run names has to be named by the command.
    config = change_manifest(run)["config"]
    config["benchmarks"].append({"name": "./other.py:Other"})
    change_manifest(run, config=config)
    command = ("score", run, "--benchmark", ARITH)
    invoke(*command).refused("the run's checks are in a local file, ./other.py:Other")
    missing = tmp_path / "none.py"
    invoke(*command, "--benchmark", f"{missing}:Other").refused(f"{missing} cannot be read")


LOCAL = """
import asyncio
from ace_ray.benchmarks.base import Benchmark
from ace_ray.types import Entry, Verdict

class Local(Benchmark):
    name = "local"

    def entries(self):
        return [Entry(id=str(i), prompt=f"{{i}}?", gold=i) for i in range({rows})]

    async def run(self, entry, context):
        await context.answer(self.prompt(entry))
        {run}
        return context.episode

    def check(self, entry, episode):
        {check}
        return Verdict(True)
"""


@pytest.fixture
def evaluate_local(evaluate: Evaluate, tmp_path: Path) -> Evaluate:
    """Evaluate a benchmark with the statements ``run`` of each row and ``check`` of each answer."""

    def start(rows: int, *, run: str = "pass", check: str = "pass", **settings: Any) -> Evaluated:
        (tmp_path / "local.py").write_text(LOCAL.format(rows=rows, run=run, check=check))
        return evaluate(benchmarks=[{"name": f"{tmp_path}/local.py:Local"}], **settings)

    return start


@pytest.mark.ray
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("rows", "bug", "error"),
    [
        (3, {"run": "entry.data['missing']"}, "KeyError: 'missing'"),
        (60, {"check": "entry.gold.strip()"}, "AttributeError: "),
        (3, {"run": "raise TimeoutError('of the server')"}, "TimeoutError: of the server"),
        (3, {"run": "raise SystemExit('of the server')"}, "SystemExit: of the server"),
        (3, {"run": "raise asyncio.CancelledError('of us')"}, "CancelledError: of us"),
    ],
    ids=["in run", "in check", "timeout", "exit", "cancellation"],
)
def test_a_bug_in_every_row_ends_the_run(evaluate_local, tmp_path, rows, bug, error) -> None:
    result = evaluate_local(rows, **bug, code=1, max_attempts=3, workers="auto")
    assert "rows failed with the same exception in the code of local: " in result.stderr
    assert f'{tmp_path}/local.py", line ' in result.stdout, "the traceback"
    assert error in result.stdout + result.stderr
    assert "EpisodeTimeout" not in result.stdout
    assert "continues this run" not in result.stderr
    assert "attempt 2" not in result.stdout


@pytest.mark.ray
@pytest.mark.nightly
def test_a_bug_in_one_row_fails_the_row(evaluate_local: Evaluate) -> None:
    result = evaluate_local(5, run="assert entry.id != '2', 'no two'", code=75, workers="auto")
    assert "1 x AssertionError: no two (infra_error)" in result.stdout
    assert (result.summary["scored"], result.summary["failures"][0]["rows"]) == (4, 1)
