"""A benchmark in a local file goes through every command, with the fake engine."""

import json
from pathlib import Path
from typing import Any

import pytest

ARITH = f"{Path(__file__).resolve().parents[2]}/examples/arith.py:Arith"


def test_outputs_made_elsewhere_become_a_run(invoke: Any, tmp_path: Path) -> None:
    outputs = tmp_path / "answers.jsonl"
    texts = {"2 + 2": "4", "3 + 5": "nine", "12 + 30": "42", "17 + 25": "42"}
    lines = [json.dumps({"id": key, "output": text}) for key, text in texts.items()]
    outputs.write_text("\n".join(lines) + "\n")
    run, second = tmp_path / "scored", tmp_path / "other"
    result = invoke("score", outputs, "--benchmark", ARITH, "--output", run)
    assert result.code == 0, result.stderr
    assert "4 of 5 entries; a sample of the benchmark, not its score" in result.stdout
    verdicts = [json.loads(line) for line in (run / "verdicts.jsonl").read_text().splitlines()]
    assert [line["correct"]["valid"] for line in verdicts] == [True, False, True, True]
    assert verdicts[1]["correct"]["error"] == "the answer does not end in 8"
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["declared"], summary["scored"], summary["skipped"]) == (4, 4, 0)
    assert summary["tokens"] == {"prompt": None, "completion": None}
    assert (summary["solved"], summary["cost"], "engine" in summary) == (3, None, False)
    assert summary["rules"]["correct"]["n"] == 4
    result = invoke("report", run)
    assert "external outputs" in (run / "report" / "report.html").read_text()
    outputs.write_text(outputs.read_text().replace("nine", "8"))
    assert invoke("score", outputs, "--benchmark", ARITH, "--output", second).code == 0
    result = invoke("compare", run, second, "--flips")
    assert result.code == 0, result.stderr
    assert "3 + 5" in result.stdout
    outputs.write_text('{"id": "1 + 1", "output": "2"}\n')
    result = invoke("score", outputs, "--benchmark", ARITH, "--output", tmp_path / "bad")
    assert result.code == 2
    assert not (tmp_path / "bad").exists()

    # Every local file that the run names has to be named by the command.
    manifest = json.loads((run / "run.json").read_text())
    manifest["config"]["benchmarks"].append({"name": "./other.py:Other"})
    (run / "run.json").write_text(json.dumps(manifest))
    result = invoke("score", run, "--benchmark", ARITH)
    assert "the run's checks are in a local file, ./other.py:Other" in result.stderr
    missing = tmp_path / "none.py"
    result = invoke("score", run, "--benchmark", ARITH, "--benchmark", f"{missing}:Other")
    assert f"{missing} cannot be read" in result.stderr


BUGGY = """
from ace_ray.benchmarks.base import Benchmark
from ace_ray.types import Entry, Verdict

class Buggy(Benchmark):
    name = "buggy"

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


@pytest.mark.ray
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("rows", "run", "check", "code"),
    [
        (3, "entry.data['missing']", "pass", 1),
        (60, "pass", "return entry.gold.strip()", 1),
        (5, "assert entry.id != '2', 'no two'", "pass", 75),
    ],
    ids=["in run", "in check", "in one row"],
)
def test_a_bug_in_every_row_ends_the_run(evaluate, tmp_path, rows, run, check, code) -> None:
    (tmp_path / "buggy.py").write_text(BUGGY.format(rows=rows, run=run, check=check))
    benchmark, attempts = {"name": f"{tmp_path}/buggy.py:Buggy"}, 3 if code == 1 else 1
    result = evaluate(code=code, benchmarks=[benchmark], max_attempts=attempts, workers="auto")
    if code == 1:
        assert "rows failed with the same exception in the code of buggy: " in result.stderr
        assert f'{tmp_path}/buggy.py", line ' in result.stdout, "the traceback"
        assert "continues this run" not in result.stderr
        assert "attempt 2" not in result.stdout
    else:
        assert "1 x AssertionError: no two (infra_error)" in result.stdout
        assert (result.summary["scored"], result.summary["failures"][0]["rows"]) == (4, 1)
