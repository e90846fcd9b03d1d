"""Whole runs of models behind a scripted OpenAI-compatible server."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import ace_ray
from tests.scripted_endpoint import Scripted, call, completion, scripted_endpoint

KEY = "the-key-of-the-test"
ACEBENCH = {
    "name": "acebench",
    "languages": ["en"],
    "categories": ["normal_atom_bool", "agent_multi_turn"],
    "mode": "native",
    "user": "same",
}
BFCL = {"name": "bfcl", "categories": ["simple_python", "multi_turn_base"], "mode": "native"}
STABLE = {"name": "stabletoolbench", "groups": ["G1_tool"], "mode": "native", "cache": "readwrite"}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scripted]:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with scripted_endpoint() as scripted:
        yield scripted


class Answers:
    """Answer with one call of the first tool in every turn, then with words.

    One request fails once, the model's name changes, and one question's answers have no usage."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._request_count = 0
        self._failed = False

    def __call__(self, body: dict[str, Any]) -> Any:
        prompt = json.dumps(body["messages"])
        with self._lock:
            self._request_count += 1
            model = "m-1" if self._request_count < 10 else "m-2"
            if "lock the back door" in prompt and not self._failed:
                self._failed = True
                return 503, "<html>busy</html>"
        answer = completion(**self._message(body, prompt), model=model)
        if "Water bed T3" in prompt:
            del answer["usage"]
        return answer

    def _message(self, body: dict[str, Any], prompt: str) -> dict[str, Any]:
        if "Documentation:" in prompt:
            return {"text": '{"error": "", "response": {"found": 42}}'}
        if "DATA: " in prompt:
            return {"text": '{"reason": "it says so", "status": "Solved"}'}
        names = [tool["function"]["name"] for tool in body.get("tools", ())]
        if names and body["messages"][-1]["role"] == "user":
            return {"text": None, "tool_calls": [call(names[0], {})], "reasoning": "I look."}
        if "Finish" in names:
            final = {"return_type": "give_answer", "final_answer": "42"}
            return {"text": "", "tool_calls": [call("Finish", final)]}
        return {"text": "finish conversation"}


def config(folder: Path, server: Scripted, *benchmarks: dict[str, Any], **changes: Any) -> Path:
    tree = {
        "model": {"endpoint": {"url": server.url, "model": "org/m", "max_retries": 0}},
        "benchmarks": [*benchmarks],
        "run_id": "run",
        "output": str(folder / "runs"),
        **changes,
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(tree))
    return path


@pytest.mark.ray
@pytest.mark.nightly
def test_three_benchmarks_call_tools(cli, invoke, tmp_path, server) -> None:
    server.answer = Answers()
    cached = {**STABLE, "cache_folder": str(tmp_path / "answers")}
    path = config(tmp_path, server, ACEBENCH, BFCL, cached, max_attempts=2)
    result = cli("evaluate", path, timeout_s=1800)
    assert result.code == 0, result.stderr
    folder = tmp_path / "runs" / "run"
    rows = ace_ray.Run.open(str(folder)).rows().to_pylist()
    assert {row["status"] for row in rows} == {"scored"}
    assert {row["benchmark"] for row in rows} == {"acebench", "bfcl", "stabletoolbench"}
    assert [row["attempts"] for row in rows].count(2) == 1, "the request that failed once"

    facts = {row["row_id"]: json.loads(row["endpoint"]) for row in rows}
    assert all(set(fact["models"]) <= {"m-1", "m-2"} for fact in facts.values())
    (silent,) = (row for row in rows if row["prompt_tokens"] is None)
    assert silent["completion_tokens"] is None
    assert facts[silent["row_id"]]["calls_without_usage"] == silent["model_calls"] == 1
    bfcl_row = next(row for row in rows if row["benchmark"] == "bfcl" and row["model_calls"] > 1)
    assert bfcl_row["prompt_tokens"] == 7 * bfcl_row["model_calls"]
    assert facts[bfcl_row["row_id"]]["reasoning_tokens"] == bfcl_row["model_calls"]

    # Calls keep the endpoint's ids, and results name their call.
    messages = json.loads(bfcl_row["messages"])
    ids = [c["id"] for m in messages for c in m.get("tool_calls", ())]
    assert ids[0] == "fn-0"
    assert len(set(ids)) == len(ids)
    assert [m["tool_call_id"] for m in messages if m["role"] == "tool"] == ids
    replayed = next(b for b in server.requests if b["messages"][-1]["role"] == "tool")
    sent = next(m for m in replayed["messages"] if m.get("tool_calls"))
    assert sent["tool_calls"][0]["function"]["arguments"] == "{}"
    assert any("tools" not in body for body in server.requests), "the user simulator has no tools"

    manifest = json.loads((folder / "run.json").read_text())
    assert manifest["model"]["revision"] is None
    assert "chat template" in manifest["model"]["unknown"]
    stored = b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())
    assert KEY.encode() not in stored
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["tokens"] == {"prompt": None, "completion": None}
    assert set(summary["endpoint"]["models"]) == {"m-1", "m-2"}
    assert summary["timing"]["device"] == "endpoint"
    assert "THE ENDPOINT CHANGED ITS MODEL within the run" in result.stdout
    assert "tokens unknown (the endpoint reports no usage)" in result.stdout
    reported = invoke("report", folder)
    assert reported.code == 0, reported.stderr
    page = (folder / "report" / "report.html").read_text()
    assert "behind an endpoint; unknown for its model: revision" in page

    # No row is pending, so the same command sends no request.
    count = len(server.requests)
    assert cli("evaluate", path, timeout_s=600).code == 0
    assert len(server.requests) == count


def test_logprobs_of_an_endpoint_are_refused(invoke: Any, tmp_path: Path, server: Scripted) -> None:
    benchmark = {"name": "bfcl", "categories": ["simple_python"], "contamination": True}
    result = invoke("evaluate", config(tmp_path, server, benchmark))
    assert result.code == 2
    assert "benchmarks.bfcl: needs logprobs of given texts" in result.stderr
    assert not server.requests
