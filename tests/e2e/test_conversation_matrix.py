"""Conversations with calls on vLLM with SmolLM2, for every combination that a config allows.

A cell is a benchmark with a mode, a candidate and its roles. One run serves the cells of all
benchmarks. `scripted_parsers` makes the model's answers into calls.
"""

import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.request import urlopen

import pytest

from ace_ray.models.cpu_environment import cpu_environment
from ace_ray.models.sources import materialize, resolve
from ace_ray.util.subprocesses import module_command, module_environment
from tests.conftest import ROOT
from tests.e2e.ray_clusters import free_port
from tests.e2e.smollm2 import ENGINE, MODEL, PLUGIN, SOURCE, TEMPLATE, conversation_calls
from tests.faults.fault_runs import needs_vllm_and_smollm2

pytestmark = [pytest.mark.engine, pytest.mark.nightly, needs_vllm_and_smollm2]
START_S = 600
"""Timeout of the server's start."""

BRIEF = {"max_tokens": 16}

Tree = dict[str, Any]


@pytest.fixture(scope="module")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start vLLM's server for SmolLM2 with the scripted parsers. Yield its base URL."""
    port, log = free_port(), tmp_path_factory.mktemp("server") / "server.log"
    command = [
        *module_command("vllm.entrypoints.openai.api_server"),
        *("--model", str(materialize(resolve(SOURCE, None))), "--served-model-name", "smollm2"),
        *("--host", "127.0.0.1", f"--port={port}", f"--chat-template={TEMPLATE}"),
        *("--enable-auto-tool-choice", "--tool-call-parser=scripted"),
        *(f"--tool-parser-plugin={PLUGIN}", f"--reasoning-parser-plugin={PLUGIN}"),
        *("--reasoning-parser=scripted", "--enforce-eager", "--dtype=float32"),
        *("--max-model-len=8192", "--block-size=32", f"--kv-cache-memory-bytes={1 << 30}"),
    ]
    with (
        log.open("wb") as output,
        subprocess.Popen(
            command, env=module_environment(cpu_environment()), stdout=output, stderr=output
        ) as process,
    ):
        deadline = time.monotonic() + START_S
        while not is_healthy(port):
            assert process.poll() is None, log.read_text()[-4000:]
            assert time.monotonic() < deadline, log.read_text()[-4000:]
            time.sleep(0.5)
        yield f"http://127.0.0.1:{port}/v1"
        process.terminate()


def is_healthy(port: int) -> bool:
    with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
        return bool(answer.status == 200)
    return False


def benchmarks(mode: str, role: Any) -> list[Tree]:
    """Return the config's benchmarks, with ``role`` for every role. BFCL has no roles."""
    judge = role if role == "same" else {**role, "sampling": {"max_tokens": 200}}
    stable = {"name": "stabletoolbench", "groups": ["G1_tool"], "ids": ["9021"], "votes": 1}
    listed = [
        {"name": "acebench", "languages": ["en"], "mode": mode, "max_messages": 8, "user": role}
        | {"ids": ["agent_multi_turn_0", "agent_multi_step_0"]},
        {"name": "tau2", "data": "installed", "domains": ["mock"], "ids": ["create_task_1"]}
        | {"mode": mode, "max_steps": 8, "user": role},
        stable
        | {"mode": "react" if mode == "prompt" else mode, "max_steps": 4}
        | {"simulator": role, "judge": judge},
    ]
    if mode == "native":
        listed.append({"name": f"{ROOT}/examples/appointments.py:Appointments", "user": role})
    if role == "same":
        ids = ["multi_turn_base_0", "memory_kv_0-customer-0"]
        listed.append({"name": "bfcl", "mode": mode, "ids": ids})
    return listed


@pytest.mark.parametrize("role", ["same", "served", "endpoint"])
@pytest.mark.parametrize("mode", ["native", "prompt"])
@pytest.mark.parametrize("candidate", ["engine", "endpoint"])
def test_conversations_go_on_after_calls(
    tmp_path, evaluate, server_url, candidate, mode, role
) -> None:
    endpoint = {"url": server_url, "model": "smollm2", "api_key_env": None}
    roles: dict[str, Any] = {
        "same": "same",
        "served": {"model": {"source": SOURCE}, "engine": ENGINE, "sampling": BRIEF},
        "endpoint": {"endpoint": endpoint, "sampling": BRIEF},
    }
    candidates: dict[str, Tree] = {
        # Two logical CPUs also hold the engine of a role.
        "engine": {"backend": "vllm", "model": MODEL, "engine": ENGINE, "worker_cpus": 0.4},
        "endpoint": {"backend": "endpoint", "model": {"endpoint": endpoint}},
    }
    tree = {**candidates[candidate], "sampling": BRIEF, "max_attempts": 3}
    # Only the first cell converts the model.
    cache = {"ACE_RAY_CACHE": str(tmp_path.parent / "matrix-cache")}
    rows = evaluate(**tree, benchmarks=benchmarks(mode, roles[role]), env=cache).rows
    assert {row["status"] for row in rows} == {"scored"}
    for row in rows:
        calls = conversation_calls(row)
        print(f"{candidate} {mode} {role} {row['benchmark']} {row['id']}: {calls}")
        assert len(calls) >= 2, f"{row['benchmark']} {row['id']}"
