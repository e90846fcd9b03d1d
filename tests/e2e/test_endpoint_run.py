"""Whole runs of models behind a scripted OpenAI-compatible server."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.scripted_endpoint import Scripted, call, completion, scripted_endpoint

ACEBENCH: dict[str, Any] = {"name": "acebench", "languages": ["en"], "user": "same"}
ACEBENCH |= {"categories": ["normal_atom_bool", "agent_multi_turn"], "mode": "native"}
BFCL = {"name": "bfcl", "categories": ["simple_python", "multi_turn_base"], "mode": "native"}
STABLE = {"name": "stabletoolbench", "groups": ["G1_tool"], "mode": "native", "cache": "readwrite"}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scripted]:
    monkeypatch.setenv("OPENAI_API_KEY", "the-key-of-the-test")
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


def behind(server: Scripted) -> dict[str, Any]:
    """Return the keys of a config for the model of ``server``."""
    endpoint = {"url": server.url, "model": "org/m", "max_retries": 0}
    return {"model": {"endpoint": endpoint}, "backend": "endpoint"}


@pytest.mark.ray
@pytest.mark.nightly
def test_three_benchmarks_call_tools(evaluate, invoke, tmp_path, server) -> None:
    server.answer = Answers()
    cached = {**STABLE, "cache_folder": str(tmp_path / "answers")}
    settings = {"benchmarks": [ACEBENCH, BFCL, cached], "max_attempts": 2, **behind(server)}
    result = evaluate(**settings)
    rows = result.rows
    assert {row["status"] for row in rows} == {"scored"}
    assert {row["benchmark"] for row in rows} == {"acebench", "bfcl", "stabletoolbench"}
    assert [row["attempts"] for row in rows].count(2) == 1, "the request that failed once"

    facts = {row["row_id"]: json.loads(row["endpoint"]) for row in rows}
    (silent,) = (row for row in rows if row["prompt_tokens"] is None)
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
    assert any("tools" not in body for body in server.requests), "the user simulator has no tools"

    assert set(result.summary["endpoint"]["models"]) == {"m-1", "m-2"}
    assert result.summary["timing"]["device"] == "endpoint"
    assert "THE ENDPOINT CHANGED ITS MODEL within the run" in result.stdout
    assert "tokens unknown (the endpoint reports no usage)" in result.stdout
    invoke("report", result.folder).ok()
    page = (result.folder / "report" / "report.html").read_text()
    assert "behind an endpoint; unknown for its model: revision" in page

    # No row is pending, so the same command sends no request.
    count = len(server.requests)
    evaluate(**settings)
    assert len(server.requests) == count


def test_logprobs_of_an_endpoint_are_refused(invoke, config_file, server) -> None:
    benchmark = {"name": "bfcl", "categories": ["simple_python"], "contamination": True}
    result = invoke("evaluate", config_file(benchmarks=[benchmark], **behind(server)))
    result.refused("benchmarks.bfcl: needs logprobs of given texts")
    assert not server.requests
