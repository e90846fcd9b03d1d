"""Served roles: the command line of vLLM's server, and a child process that is started and ended.

The server here is a small script; vLLM itself is not started.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ace_ray.models.roles import ServedRole
from ace_ray.pipeline import serving
from ace_ray.pipeline.roles import RoleBinding, demand
from ace_ray.pipeline.serving import (
    Server,
    ServerFailed,
    command,
    environment,
    flags,
    free_port,
)
from ace_ray.types import Sampling

HOST = "127.0.0.1"
PATIENCE_S = 20.0

# Notes its process, then answers to /health; MODE changes that.
SCRIPT = """
import http.server, os, sys, time
port, notes, mode = int(sys.argv[1]), sys.argv[2], sys.argv[3]
if mode == "die":
    print("loading"); print("OutOfMemory: no room"); sys.exit(3)
if mode == "raise":
    for error in ("ValueError: no room for a KV cache", "RuntimeError: See root cause above"):
        for line in ("Traceback (most recent call last):", "  File 'core.py', line 1", error):
            print("(EngineCore pid=7) ERROR 11-24 21:40:45 [core.py:15]", line)
    sys.exit(1)
with open(notes, "a") as file:
    print(os.getpid(), file=file)
if mode == "hang":
    time.sleep(600)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def eventually(holds: Callable[[], bool]) -> bool:
    limit = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > limit:
            return False
        time.sleep(0.02)
    return True


class Lab:
    """Servers of one test, and their processes."""

    def __init__(self, folder: Path) -> None:
        self.notes = folder / "pids"
        self.port = free_port(HOST)
        self.servers: list[Server] = []

    def command(self, mode: str) -> list[str]:
        return [sys.executable, "-S", "-c", SCRIPT, str(self.port), str(self.notes), mode]

    def server(self, mode: str = "serve") -> Server:
        made = Server(self.command(mode), dict(os.environ), host=HOST, port=self.port)
        self.servers.append(made)
        return made

    def pids(self) -> list[int]:
        return [int(pid) for pid in self.notes.read_text().split()] if self.notes.exists() else []

    def all_gone(self) -> bool:
        return not any(alive(pid) for pid in self.pids())


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setattr(serving, "POLL_S", 0.02)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = Lab(tmp_path)
    yield made
    for server in made.servers:
        server.stop()
    for pid in made.pids():
        if alive(pid):
            os.kill(pid, signal.SIGKILL)


def test_a_server_starts_and_stops(lab: Lab) -> None:
    server = lab.server()
    server.start(PATIENCE_S)
    assert all(alive(pid) for pid in lab.pids())
    server.stop()
    assert len(lab.pids()) == 1
    assert eventually(lab.all_gone)
    assert not server.log.exists()
    assert server.wait() == ""
    server.stop()  # twice does no harm


def test_a_server_that_dies_while_loading_is_reported_with_its_last_lines(lab: Lab) -> None:
    server = lab.server("die")
    with pytest.raises(ServerFailed, match="exit code 3 before it was ready: loading") as caught:
        server.start(PATIENCE_S)
    line = str(caught.value)
    assert "OutOfMemory: no room" in line
    assert str(server.log) in line
    assert "\n" not in line
    assert server.log.exists()


def test_the_cause_is_the_first_error(lab: Lab) -> None:
    server = lab.server("raise")
    with pytest.raises(ServerFailed, match="ready: ValueError: no room for a KV cache") as caught:
        server.start(PATIENCE_S)
    assert "root cause" not in str(caught.value)


def test_a_server_that_never_gets_ready_is_reported(lab: Lab) -> None:
    server = lab.server("hang")
    with pytest.raises(ServerFailed, match=r"was not ready in 1\.5 s: no output|exit code"):
        server.start(1.5)
    server.stop()
    assert eventually(lab.all_gone)


def test_the_end_of_a_server_is_reported(lab: Lab) -> None:
    server = lab.server()
    server.start(PATIENCE_S)
    os.kill(lab.pids()[0], signal.SIGKILL)
    assert "the server ended with exit code -9" in server.wait()


def test_a_stop_is_heard_while_the_server_loads(lab: Lab) -> None:
    server = lab.server("hang")
    outcome: list[str] = []

    def start() -> None:
        try:
            server.start(600)
        except ServerFailed as error:
            outcome.append(str(error))

    starter = threading.Thread(target=start)
    starter.start()
    assert eventually(lambda: len(lab.pids()) == 1)
    server.stop()
    starter.join(PATIENCE_S)
    assert len(outcome) == 1
    assert eventually(lab.all_gone)


def test_engine_arguments_as_vllm_takes_them() -> None:
    assert flags(
        {
            "max_model_len": 4096,
            "enforce_eager": True,
            "enable_prefix_caching": False,
            "quantization": None,
            "gpu_memory_utilization": 0.5,
            "hf_overrides": {"rope": {"factor": 2.0}},
            "kv_cache_dtype_skip_layers": ["0", 1],
            "dtype": "-x",
        }
    ) == [
        "--max-model-len=4096",
        "--enforce-eager",
        "--no-enable-prefix-caching",
        "--gpu-memory-utilization=0.5",
        '--hf-overrides={"rope": {"factor": 2.0}}',
        "--kv-cache-dtype-skip-layers",
        "0",
        "1",
        "--dtype=-x",
    ]
    assert flags({"tensor_parallel_size": 1, "data_parallel_rank": 0}) == [
        "--tensor-parallel-size=1",
        "--data-parallel-rank=0",
    ]


def role(**changes: object) -> ServedRole:
    return ServedRole.model_validate({"model": {"source": "org/m"}, **changes})


def line(played: ServedRole, engine: dict[str, object]) -> list[str]:
    return command(Path("/models/m"), played, engine, name="m", host="10.0.0.1", port=8123)


def test_the_command_line() -> None:
    words = line(role(), {"dtype": "bfloat16"})
    assert words[:4] == [sys.executable, "-P", "-m", "vllm.entrypoints.openai.api_server"]
    for word in ("--model=/models/m", "--host=10.0.0.1", "--port=8123", "--dtype=bfloat16"):
        assert word in words
    # Nothing of the model's own sampling defaults, as in the candidate's engine.
    assert "--generation-config=vllm" in words
    assert words[words.index("--served-model-name") + 1] == "m"
    assert not any("api" in word for word in words[4:])
    assert "--generation-config=auto" in line(role(), {"generation_config": "auto"})


def test_template_and_reasoning_of_a_served_model() -> None:
    model = {"chat_template_kwargs": {"enable_thinking": False}, "reasoning_parser": "qwen3"}
    words = line(role(model={"source": "org/m", **model}), {})
    assert "--reasoning-parser=qwen3" in words
    assert '--default-chat-template-kwargs={"enable_thinking": false}' in words
    plain = line(role(), {})
    assert not any("reasoning" in word or "template" in word for word in plain)


def test_the_reasoning_parser_of_a_served_model() -> None:
    def words(engine: dict[str, object], named: str) -> list[str]:
        played = role(model={"source": "org/m", "reasoning_parser": named})
        return [word for word in line(played, engine) if word.startswith("--reasoning")]

    assert words({}, "qwen3") == ["--reasoning-parser=qwen3"]
    assert words({}, "auto") == words({}, "none") == []
    assert words({"reasoning_parser": "olmo3"}, "auto") == ["--reasoning-parser=olmo3"]


def test_the_tool_parser_of_a_served_model() -> None:
    plain = line(role(), {})
    words = line(role(model={"source": "org/m", "tool_parser": "hermes"}), {})
    flags = ["--enable-auto-tool-choice", "--tool-call-parser=hermes"]
    assert [word for word in words if word not in plain] == flags
    assert not any("tool" in word for word in plain)


def test_the_key_travels_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "another")
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "0")
    env = environment("k")
    assert (env["VLLM_API_KEY"], env["VLLM_CPU_OMP_THREADS_BIND"]) == ("k", "0")
    monkeypatch.delenv("VLLM_CPU_OMP_THREADS_BIND")
    cores = {int(core) for core in environment("k")["VLLM_CPU_OMP_THREADS_BIND"].split(",")}
    assert cores == os.sched_getaffinity(0)


def test_the_demand_is_known_beforehand() -> None:
    piped = role(replicas=2, engine={"tensor_parallel_size": 2, "pipeline_parallel_size": 3})
    bindings = {"toy": {"user": RoleBinding(piped, None, Sampling(), {})}}
    assert demand(bindings, on_gpu=True) == [(1.0, 6)] * 2
    assert demand(bindings, on_gpu=False) == [(1.0, 0)] * 2
