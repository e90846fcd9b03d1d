"""Agent episodes through whole runs on a real local Ray, with the engine that reads a script."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from ace_ray.benchmarks.acebench.benchmark import ACEBench
from ace_ray.storage.rows import episode_of, verdict_columns

pytestmark = [pytest.mark.ray, pytest.mark.nightly]

CALL = "[turn_on_wifi()]"
KEY = "a-secret-key"


class Simulator:
    """An OpenAI-compatible server that plays a user who says two lines."""

    def __init__(self) -> None:
        simulator = self
        self.is_up = True
        self.bodies: list[Any] = []
        self.keys: set[Any] = set()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                simulator.keys.add(self.headers["Authorization"])
                simulator.bodies.append(body)
                if not simulator.is_up:
                    self.send_error(503)
                    return
                spoken = len(body["messages"]) > 2
                answer = {
                    "model": "user-1.2",
                    "choices": [
                        {
                            "message": {"content": "finish conversation" if spoken else "Hello."},
                            "finish_reason": "stop",
                        }
                    ],
                    "usage": {"prompt_tokens": 7, "completion_tokens": 3},
                }
                data = json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    made = Simulator()
    yield made
    made.server.shutdown()


def config(folder: Path, benchmark: dict[str, Any], **engine: Any) -> Path:
    tree = {
        "model": {"source": "fake"},
        "backend": "fake",
        "max_attempts": 1,
        "benchmarks": [{"name": "acebench", "languages": ["en"], **benchmark}],
        "engine": {"default": CALL, **engine},
        "output": str(folder / "runs"),
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(tree))
    return path


def evaluate(path: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ace_ray.cli.main", "evaluate", str(path), *args],
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
        env={**os.environ, "USER_KEY": KEY},
    )


def rows_of(folder: Path) -> list[dict[str, Any]]:
    (run,) = (folder / "runs").iterdir()
    found = pa.concat_tables(pq.read_table(part) for part in sorted(run.glob("rows/*.parquet")))
    latest = {row["row_id"]: row for row in found.to_pylist()}
    return list(latest.values())


def test_simulator_that_is_down_fails_its_rows_only_and_resume_mends_them(
    tmp_path: Path, simulator: Simulator
) -> None:
    endpoint = {"url": simulator.url, "model": "user", "api_key_env": "USER_KEY", "max_retries": 1}
    path = config(
        tmp_path,
        {"categories": ["agent"], "max_messages": 8, "user": {"endpoint": endpoint}},
    )
    simulator.is_up = False
    done = evaluate(path)
    assert done.returncode == 75, done.stderr
    rows = rows_of(tmp_path)
    failed = [row for row in rows if row["status"] != "scored"]
    assert {row["category"] for row in failed} == {"agent_multi_turn"}
    assert {(row["status"], row["error_class"]) for row in failed} == {
        ("infra_error", "EndpointDown")
    }
    assert len(failed) == 4
    assert len(rows) == 8

    simulator.is_up = True
    done = evaluate(path)
    assert done.returncode == 0, done.stderr
    assert "core_worker" not in done.stderr, "Ray's own warnings say nothing to a user"
    rows = rows_of(tmp_path)
    assert {row["status"] for row in rows} == {"scored"}
    states = [json.loads(row["state"]) for row in rows if row["category"] == "agent_multi_turn"]
    # The scripted agent only calls, so its user is asked once: to begin.
    assert {state["ended"] for state in states} == {"max_messages"}
    assert all(state["steps"][0]["text"] == "Hello." for state in states)
    user = states[0]["user"]
    assert (user["kind"], user["model"], user["sampling"]["max_tokens"]) == (
        "endpoint", "user", 1000,
    )  # fmt: skip
    assert simulator.keys == {f"Bearer {KEY}"}
    (run,) = (tmp_path / "runs").iterdir()
    manifest = (run / "run.json").read_text()
    assert json.loads(manifest)["identity"]["roles"]["acebench"]["user"] == user
    assert KEY not in manifest + str(rows)


def rescored(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """The verdicts of stored rows, made again from what is stored."""
    benchmark = ACEBench.from_options({"languages": ["en"], "categories": ["agent"]})
    entries = {entry.id: entry for entry in benchmark.entries()}
    found = []
    for row in rows:
        verdicts = benchmark.check(entries[row["id"]], episode_of(row))
        found.append(tuple(verdict_columns(verdicts).values()))
    return found


def test_killed_sandbox_actor_costs_no_row(tmp_path: Path) -> None:
    path = config(tmp_path, {"categories": ["agent"], "max_messages": 24}, delay_s=0.4)
    process = subprocess.Popen(
        [sys.executable, "-m", "ace_ray.cli.main", "evaluate", str(path)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    killed: set[int] = set()
    deadline = time.monotonic() + 1800
    while process.poll() is None and time.monotonic() < deadline:
        for child in psutil.Process(process.pid).children(recursive=True):
            try:
                named = any("SandboxActor" in part for part in child.cmdline())
                # The first may still be starting; the second kill hits episodes in progress.
                if named and child.pid not in killed and len(killed) < 2:
                    time.sleep(1.5)
                    os.kill(child.pid, signal.SIGKILL)
                    killed.add(child.pid)
            except (psutil.Error, ProcessLookupError):
                continue
        time.sleep(0.2)
    _, errors = process.communicate(timeout=1800)
    assert process.returncode == 0, errors
    assert killed
    rows = rows_of(tmp_path)
    assert len(rows) == 8
    assert {row["status"] for row in rows} == {"scored"}
    # Agent rows are scored again without an engine or a sandbox.
    columns = verdict_columns({}).keys()
    assert rescored(rows) == [tuple(row[name] for name in columns) for row in rows]
    for row in rows:
        state = json.loads(row["state"])
        assert state["ended"] == "max_messages"
        errors_seen = {e for step in state["steps"] for e in step.get("errors", [])}
        assert errors_seen <= {"", "unknown_tool"}
        phones = [one["BaseApi"] for one in state["end"] if "BaseApi" in one]
        assert all(phone["wifi"] is True for phone in phones)
