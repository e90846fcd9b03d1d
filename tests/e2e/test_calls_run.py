"""Whole runs of the user's own cases: in prompt mode, in native mode, and made elsewhere."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.calls.rules import example
from tests.e2e.conftest import Evaluate
from tests.scripted_endpoint import call, completion, scripted_endpoint

CASES = Path(__file__).resolve().parents[2] / "examples" / "calls.jsonl"
GOLD = {
    case["messages"][-1]["content"]: [
        {**expected, "arguments": example(expected["arguments"])} for expected in case["expected"]
    ]
    for case in map(json.loads, CASES.read_text().splitlines())
}
WRONG = "What is the capital of Estonia?"


@pytest.mark.ray
@pytest.mark.nightly
def test_prompt_mode(evaluate: Evaluate, invoke: Any, tmp_path: Path) -> None:
    shutil.copy(CASES, tmp_path / "cases.jsonl")
    replies = {question: json.dumps(calls) for question, calls in GOLD.items()}
    replies[WRONG] = json.dumps([{"name": "book_room", "arguments": {}}])
    run = evaluate(
        benchmarks=[{"name": "calls", "data": "cases.jsonl"}], engine={"replies": replies}
    )
    assert [row["id"] for row in run.rows if not row["exact_valid"]] == ["no-tool-helps"]
    block = run.summary["benchmarks"]["calls"]
    assert block["rules"]["exact"]["accuracy"] == 7 / 8
    assert block["calls"]["trigger_recall"]["accuracy"] == 1
    assert block["calls"]["no_call"]["accuracy"] == 1 / 2
    assert "Trigger F1" in run.stdout
    again = invoke("score", run.folder).ok()
    assert "no verdict changed" in again.stdout + again.stderr


@pytest.mark.ray
@pytest.mark.nightly
def test_native_mode_behind_an_endpoint(evaluate: Evaluate, monkeypatch: Any) -> None:
    def answer(body: dict[str, Any]) -> Any:
        calls = GOLD.get(body["messages"][-1]["content"], [])  # preflight asks another question
        made = [call(c["name"], c["arguments"], number) for number, c in enumerate(calls)]
        message: dict[str, Any] = {"text": None, "tool_calls": made} if made else {"text": "No."}
        return completion(**message)

    monkeypatch.setenv("OPENAI_API_KEY", "key")
    with scripted_endpoint() as server:
        server.answer = answer
        model = {"endpoint": {"url": server.url, "model": "org/m"}}
        benchmark = {"name": "calls", "data": str(CASES), "mode": "native"}
        run = evaluate(model=model, backend="endpoint", benchmarks=[benchmark])
    assert [row["exact_valid"] for row in run.rows] == [True] * 8
    conversation = next(b for b in server.requests if "L-1177" in b["messages"][-1]["content"])
    assert [m["role"] for m in conversation["messages"]][2:4] == ["assistant", "tool"]


def test_outputs_made_elsewhere(invoke: Any, tmp_path: Path) -> None:
    room: dict[str, Any] = {
        "name": "book_room",
        "arguments": {"day": "2031-03-14", "from_hour": 9.5, "seats": 6},
    }
    equipment = {**room, "arguments": {**room["arguments"], "equipment": ["screen"]}}
    outputs = [
        {"id": "half-past", "output": json.dumps([equipment])},
        {"id": "author", "output": "I do not know."},
        {"id": "two-renewals", "output": json.dumps(room)},
    ]
    path = tmp_path / "answers.jsonl"
    path.write_text("\n".join(map(json.dumps, outputs)))
    run = tmp_path / "run"
    arguments = ("score", path, "--benchmark", "calls", "--output", run)
    invoke(*arguments).refused("'data' is missing")
    invoke(*arguments, "--option", f"data={CASES}").ok()
    verdicts = [json.loads(line) for line in (run / "verdicts.jsonl").read_text().splitlines()]
    assert [v["exact"]["error_type"] for v in verdicts] == ["", "no_call", "wrong_name"]
    invoke("score", run, "--option", "mode=native").refused("the run was made with mode = 'prompt'")
    shutil.copy(CASES, tmp_path / "moved.jsonl")
    assert invoke("score", run, "--option", f"data={tmp_path}/moved.jsonl").code == 0


def test_data_check_takes_a_file(invoke: Any, tmp_path: Path) -> None:
    assert invoke("data", "check", "calls", CASES).code == 0
    invoke("data", "check", "calls").refused("the data needs exactly one source")
    path = tmp_path / "cases.jsonl"
    path.write_text(CASES.read_text().replace('"weeks": 3', '"weeks": 9'))
    problem = "cases.jsonl:4: expected.0.arguments: weeks: 9 is greater than the"
    invoke("data", "check", "calls", path).refused(problem)
