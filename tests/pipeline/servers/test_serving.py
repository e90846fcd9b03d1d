"""Served roles: the command line of vLLM's server, and a supervisor that leaves nothing behind.

The server here is a small script; vLLM itself is not started.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ace_ray.models.roles import ServedRole
from ace_ray.pipeline.servers import server as module
from ace_ray.pipeline.servers.server import Server, ServerFailed, free_port
from ace_ray.pipeline.servers.serving import command, demand, environment, flags, new_key

HOST = "127.0.0.1"
PATIENCE_S = 20.0

# Notes its process and its child's, then answers to /health; MODE changes that.
SCRIPT = """
import http.server, os, subprocess, sys, time
port, notes, mode = int(sys.argv[1]), sys.argv[2], sys.argv[3]
if mode == "die":
    print("loading"); print("OutOfMemory: no room"); sys.exit(3)
if mode == "raise":
    for error in ("ValueError: no room for a KV cache", "RuntimeError: See root cause above"):
        for line in ("Traceback (most recent call last):", "  File 'core.py', line 1", error):
            print("(EngineCore pid=7) ERROR 11-24 21:40:45 [core.py:15]", line)
    sys.exit(1)
child = subprocess.Popen(["sleep", "600"])
with open(notes, "a") as file:
    print(os.getpid(), child.pid, file=file)
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
    """Servers of one test, and the processes they started."""

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
        """Of every server so far and its child, in turns."""
        return [int(pid) for pid in self.notes.read_text().split()] if self.notes.exists() else []

    def started(self) -> int:
        return len(self.pids()) // 2

    def all_gone(self) -> bool:
        return not any(alive(pid) for pid in self.pids())


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setattr(module, "_POLL_S", 0.02)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = Lab(tmp_path)
    yield made
    for server in made.servers:
        server.stop()
    for pid in made.pids():
        if alive(pid):
            os.kill(pid, signal.SIGKILL)


def test_a_server_is_ready_when_it_says_so_and_stops_whole(lab: Lab) -> None:
    server = lab.server()
    server.start(PATIENCE_S)
    assert len(lab.pids()) == 2
    assert all(alive(pid) for pid in lab.pids())
    server.stop()
    assert eventually(lab.all_gone)
    assert not server.log.exists()
    server.stop()  # twice does no harm


def test_a_server_that_dies_while_loading_is_reported_with_its_last_words(lab: Lab) -> None:
    server = lab.server("die")
    with pytest.raises(ServerFailed, match="before it was ready: loading") as caught:
        server.start(PATIENCE_S)
    line = str(caught.value)
    assert "OutOfMemory: no room | the server ended with exit code 3" in line
    assert str(server.log) in line
    assert "\n" not in line
    assert server.log.exists()


def test_the_cause_is_the_first_error_of_this_start(lab: Lab) -> None:
    server = lab.server("raise")
    server.log.write_text("Traceback (most recent call last):\nKeyError: 'of a start before'\n")
    with pytest.raises(ServerFailed, match="ready: ValueError: no room for a KV cache") as caught:
        server.start(PATIENCE_S)
    assert "root cause" not in str(caught.value)
    assert "KeyError" not in str(caught.value)


def test_a_server_that_never_gets_ready_is_ended(lab: Lab) -> None:
    server = lab.server("hang")
    with pytest.raises(ServerFailed, match=r"was not ready in 1\.5 s: no output|exit code"):
        server.start(1.5)
    assert eventually(lab.all_gone)


def test_a_server_that_died_is_started_again_but_not_for_ever(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = lab.server()
    server.start(PATIENCE_S)
    outcome: list[BaseException] = []
    ready_again = threading.Event()
    start = server.start

    def restart(deadline_s: float) -> None:
        start(deadline_s)
        ready_again.set()

    monkeypatch.setattr(server, "start", restart)

    def watch() -> None:
        try:
            server.watch(1, PATIENCE_S)
        except ServerFailed as error:
            outcome.append(error)

    watcher = threading.Thread(target=watch)
    watcher.start()
    os.kill(lab.pids()[0], signal.SIGKILL)
    assert ready_again.wait(PATIENCE_S)  # at the same port
    assert eventually(lambda: not any(map(alive, lab.pids()[:2])))  # its child went with it
    os.kill(lab.pids()[2], signal.SIGKILL)
    watcher.join(PATIENCE_S)
    assert "died 2 times" in str(outcome[0])
    assert lab.started() == 2
    assert eventually(lab.all_gone)


def test_a_stop_ends_the_watch_without_a_restart(lab: Lab) -> None:
    server = lab.server()
    server.start(PATIENCE_S)
    watcher = threading.Thread(target=server.watch, args=(5, PATIENCE_S))
    watcher.start()
    server.stop()
    watcher.join(PATIENCE_S)
    assert not watcher.is_alive()
    assert lab.started() == 1
    assert eventually(lab.all_gone)


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
    assert eventually(lambda: lab.started() == 1)
    server.stop()
    starter.join(PATIENCE_S)
    assert len(outcome) == 1
    assert eventually(lab.all_gone)


HOLDER = """
import sys, time
from ace_ray.pipeline.servers.server import Server
server = Server(sys.argv[2:], {}, host="127.0.0.1", port=int(sys.argv[1]))
server.start(20)
print(server._guard.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("guard_too", [False, True])
def test_no_server_outlives_a_process_that_was_killed(lab: Lab, guard_too: bool) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(lab.port), *lab.command("serve")],
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    guard = int(holder.stdout.readline())
    assert len(lab.pids()) == 2
    if guard_too:  # as Ray does to the children of a worker that exits
        os.kill(guard, signal.SIGKILL)
    holder.kill()
    holder.wait()
    holder.stdout.close()
    assert eventually(lambda: not alive(guard) and lab.all_gone())


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
    assert new_key() != new_key()


def test_the_demand_is_known_beforehand() -> None:
    played = role(replicas=2, engine={"tensor_parallel_size": 4})
    assert demand(played, on_gpu=True) == (1.0, 4)
    assert demand(played, on_gpu=False) == (1.0, 0)
    piped = role(engine={"tensor_parallel_size": 2, "pipeline_parallel_size": 3})
    assert demand(piped, on_gpu=True) == (1.0, 6)
