"""Answers that no judge saw have no verdict, until the judge of a later command gives one."""

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ace_ray.benchmarks.headline import scores_of
from ace_ray.benchmarks.registry import make_benchmark
from ace_ray.benchmarks.stabletoolbench.benchmark import StableToolBench
from ace_ray.benchmarks.stabletoolbench.callable_names import GROUPS
from ace_ray.types import RULE_SETS, Verdict
from tests.benchmarks.scored_row import scored_row
from tests.benchmarks.stabletoolbench.builders import write
from tests.scripted_endpoint import Scripted, completion, scripted_endpoint


@pytest.fixture
def run(tmp_path: Path, invoke: Any) -> Path:
    """Score an answer to each query, and no answer to every fourth, without votes."""
    entries = make_benchmark("stabletoolbench", {"data": "mini", "judge": "none"}).dataset()
    names = [{"id": entry.id, "category": entry.category} for entry in entries]
    lines = [{**name, "output": "Rye." if n % 4 else None} for n, name in enumerate(names)]
    path = write(tmp_path / "outputs.jsonl", "".join(f"{json.dumps(line)}\n" for line in lines))
    options = ("--benchmark", "stabletoolbench", "--data", "mini", "--output")
    result = invoke("score", path, *options, tmp_path / "run")
    assert "SoPR (mean of groups) N/A" in result.stdout
    assert "13 = 0 scored + 13 not_judged" in result.stdout
    return tmp_path / "run"


@pytest.fixture
def server() -> Iterator[Scripted]:
    with scripted_endpoint() as server:
        server.answer = lambda body: completion("Answer Status: Solved")
        yield server


def stored(run: Path) -> list[dict[str, Any]]:
    return [row for part in (run / "rows").iterdir() for row in pq.read_table(part).to_pylist()]


def judge_file(folder: Path, url: str, **fields: Any) -> Path:
    endpoint = {"url": url, "model": "j-1", "api_key_env": None, "max_retries": 0}
    return write(folder / "judge.yaml", {"endpoint": endpoint | fields})


def test_rows_and_summary_have_no_verdict(run: Path) -> None:
    for row in stored(run):
        assert (row["status"], row["error"]) == ("not_judged", "no judge was asked")
        for rules in RULE_SETS:
            assert row[f"{rules}_valid"] is row[f"{rules}_error_type"] is None
            assert "finish" in row[f"{rules}_metrics"]
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["scored"], summary["not_judged"], summary["solved"]) == (0, 13, 0)
    scores = summary["benchmarks"]["stabletoolbench"]["scores"]["official"]
    values = {score["name"]: score["value"] for score in scores}
    assert values == {"SoPR": None, "FAC": None, "SoWR": None, "Accuracy": None, "API recall": 0.0}


def test_views_and_exports_have_no_verdict(run: Path, tmp_path: Path, invoke: Any) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("{metrics: [{at_least: 0.0}], unscored_at_most: 0.5}")
    assert "0 of 13 rows" in invoke("show", run, "--wrong").stdout
    gate = json.loads(invoke("gate", policy, run, "--json").stdout)
    reasons = [check["reason"] for check in gate["checks"]]
    assert reasons == ["100.0 % of 13 rows are not scored", "no row of the run has a verdict"]
    assert invoke("report", run, "--output", tmp_path / "report").code == 0
    assert ",0/13," in (tmp_path / "report" / "comparison-stabletoolbench.csv").read_text()
    for kind in ("lm-eval", "inspect"):
        assert invoke("export", run, "--to", kind, "--output", tmp_path / kind).code == 0
    (results,) = (tmp_path / "lm-eval").glob("*/results_*.json")
    assert "accuracy" not in results.read_text()
    (log,) = (tmp_path / "inspect").glob("*.eval")
    with zipfile.ZipFile(log) as parts:
        samples = [json.loads(parts.read(n)) for n in parts.namelist() if n.startswith("samples/")]
    assert [(sample["scores"], sample.get("error")) for sample in samples] == [({}, None)] * 13


def test_part_without_a_judge_is_no_wrong_answer() -> None:
    """A score of the judged part alone would be a score of other queries."""
    right = dict.fromkeys(RULE_SETS, Verdict(True, metrics={"sopr": 1.0}))
    shares: Any = {rules: {"finish": 1.0} for rules in RULE_SETS}
    rows = [scored_row(GROUPS[0], str(n), right) for n in range(3)]
    rows += [scored_row(GROUPS[1], str(n), status="not_judged", unjudged=shares) for n in range(3)]
    for max_unscored, value in ((0.0, None), (0.5, 1.0)):
        summary = StableToolBench.statistics(rows, max_unscored)
        *_, pooled = scores_of(StableToolBench, summary, headline=True)["official"]
        assert (pooled.estimate and pooled.estimate.value) == value
        assert summary["categories"][GROUPS[1]]["shares"]["finish"]["value"] == 1.0


def test_a_later_judge_judges_what_no_judge_saw(run, server, tmp_path, invoke) -> None:
    rows, solved, judge = stored(run), server.answer, judge_file(tmp_path, server.url)
    query = json.loads(rows[1]["state"])["answer"]["query"][:40]
    server.answer = lambda body: completion("?") if query in str(body) else solved(body)
    result = invoke("score", run, "--judge", judge)
    assert (result.code, "13 = 12 scored + 1 not_judged" in result.stdout) == (75, True)
    (failed,) = [row for row in stored(run) if row["status"] == "not_judged"]
    assert failed["error"].startswith("sopr: none of 4 replies had exactly one verdict")
    count, server.answer = len(server.requests), solved
    assert invoke("score", run, "--judge", judge).code == 0
    # A test request, and three votes on the row that failed, with other seeds than before.
    seeds = [body["seed"] for body in server.requests[count:] if query in str(body)]
    assert (len(server.requests) - count, len(seeds)) == (4, 3)
    assert not {*seeds} & {body.get("seed") for body in server.requests[:count]}
    # Later commands keep the verdicts, also the command that made the run.
    outputs = tmp_path / "outputs.jsonl"
    again = ("score", outputs, "--benchmark", "stabletoolbench", "--data", "mini", "--output", run)
    for command in (("score", run), again):
        assert "13 = 13 scored" in invoke(*command).stdout
        assert {row["row_id"] for row in stored(run)} == {row["row_id"] for row in rows}
        for row in stored(run):
            state = json.loads(row["state"])
            status = "Solved" if row["strict_valid"] else "Unsolved"
            assert [vote["status"] for vote in state["votes"]] == [status] * 3
            assert state["judge_attempt"] == 1 + (row["id"] == failed["id"])
    outputs.write_text(outputs.read_text().replace("Rye", "Wheat"))
    assert "a judge's verdicts on earlier outputs" in invoke(*again).stderr
    # Verdicts of different judges do not compare, and are not mixed.
    other_judge = judge_file(tmp_path, server.url, model="j-2")
    assert invoke(*again[:-1], tmp_path / "other", "--judge", other_judge).code == 0
    message = invoke("compare", run, tmp_path / "other").stderr
    assert ("roles.judge.model" in message, "episodes.judge" in message) == (True, False)
    refused(run, invoke, other_judge, "another judge (role.model differ)")


def refused(run: Path, invoke: Any, judge: Path, words: str) -> None:
    """Check that ``judge`` is refused in one line, and that nothing changes."""
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    result = invoke("score", run, "--judge", judge)
    assert (result.code, len(result.stderr.splitlines())) == (2, 1), result.stderr
    assert words in result.stderr
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_a_judge_that_cannot_be_asked_changes_nothing(run, server, tmp_path, invoke) -> None:
    server.answer = lambda body: (401, "no such key")
    refused(run, invoke, judge_file(tmp_path, server.url), "no such key; check the server")
    refused(run, invoke, judge_file(tmp_path, server.url, api_key_env="NO_KEY"), "NO_KEY is not")
    engine_judge = write(tmp_path / "own.yaml", {"model": {"source": "org/m"}})
    refused(run, invoke, engine_judge, "only an endpoint can judge stored answers")
