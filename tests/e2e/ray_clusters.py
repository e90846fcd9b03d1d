"""A real Ray cluster on this machine, with a token; nodes may join and end."""

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

BIN = Path(sys.executable).parent
RAY = str(BIN / "ray")
STARTS = 5
"""Attempts: a raylet ends when its agent is not there within 15 s, as on a busy machine."""


@dataclass(frozen=True)
class Cluster:
    """A cluster; ``env`` lets a process submit to it."""

    dashboard: str
    env: dict[str, str]
    gcs: str
    folder: Path
    nodes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    """``ray start``, the head's first. Each leads the process group of its node."""

    def join(self, cpus: float) -> subprocess.Popen[bytes]:
        """Start another node."""
        for _ in range(STARTS):
            name = f"node-{len(self.nodes)}"
            # Separate folders: a node that unpacks a job's files removes other files.
            options = [f"--address={self.gcs}", f"--temp-dir={self.folder}-{len(self.nodes)}"]
            mark = f"--resources={json.dumps({name: 1})}"
            self.nodes.append(_started(self.env, cpus, [*options, mark]))
            if _comes_up(self.nodes[-1], partial(self._has, name)):
                return self.nodes[-1]
        pytest.fail("no node came up")

    @property
    def driver_env(self) -> dict[str, str]:
        return {**self.env, "RAY_ADDRESS": self.gcs}

    def call(self, path: str) -> Any:
        """Return the dashboard's answer."""
        token = {"Authorization": f"Bearer {self.env['RAY_AUTH_TOKEN']}"}
        request = urllib.request.Request(f"{self.dashboard}{path}", headers=token)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def engines(self) -> int:
        """Count the engine workers that have started."""
        try:
            reply = self.call(
                "/api/v0/actors?detail=1&limit=1000&filter_keys=state"
                "&filter_predicates=%3D&filter_values=ALIVE"
            )
        except OSError:
            return 0
        actors = reply["data"]["result"]["result"]
        return sum("EngineWorker" in actor["class_name"] for actor in actors)

    def alive(self) -> list[dict[str, Any]]:
        """Return the nodes that are up; none while the dashboard does not answer."""
        try:
            nodes = self.call("/api/v0/nodes")["data"]["result"]["result"]
        except OSError:
            return []
        return [node for node in nodes if node["state"] == "ALIVE"]

    def _has(self, resource: str) -> bool:
        return any(resource in node["resources_total"] for node in self.alive())


@contextmanager
def running(cpus: int) -> Iterator[Cluster]:
    """Start a cluster of one node."""
    # Not pytest's folder: the path of a socket has at most 107 characters.
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as parent:
        folder = Path(parent, "ray")
        port, dashboard = free_port(), free_port()
        env = {
            **os.environ,
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_metrics_report_interval_ms": "500",
            # Here Ray notes its address; other local runs would find it in the default folder.
            "RAY_TMPDIR": str(folder),
        }
        env.pop("RAY_ADDRESS", None)
        gcs, address = f"127.0.0.1:{port}", f"http://127.0.0.1:{dashboard}"
        head = ["--head", f"--port={port}", f"--dashboard-port={dashboard}"]
        cluster = Cluster(address, env, gcs, folder)
        try:
            for _ in range(STARTS):
                started = _started(env, cpus, [*head, f"--temp-dir={folder}"])
                cluster.nodes.append(started)
                if _comes_up(started, lambda: _answers(address) and len(cluster.alive()) == 1):
                    break
            else:
                pytest.fail("the head did not come up")
            yield cluster
        finally:
            for node in cluster.nodes:
                end_node(node)


def end_node(node: subprocess.Popen[bytes]) -> None:
    """Kill all processes of a node."""
    with suppress(ProcessLookupError):
        os.killpg(node.pid, signal.SIGKILL)
    node.wait(timeout=60)


def wait_for(condition: Callable[[], bool], failure: str, seconds: float = 1800) -> None:
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            pytest.fail(failure)
        time.sleep(0.2)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _comes_up(node: subprocess.Popen[bytes], is_up: Callable[[], bool]) -> bool:
    """Wait for a node; return False if it has ended."""
    wait_for(lambda: node.poll() is not None or is_up(), "a node neither came up nor ended")
    if node.poll() is None:
        return True
    end_node(node)
    return False


def _started(env: dict[str, str], cpus: float, options: list[str]) -> subprocess.Popen[bytes]:
    # A port of its own: beside another Ray on this machine no job agent would come up.
    agent = f"--dashboard-agent-listen-port={free_port()}"
    return subprocess.Popen(
        [RAY, "start", "--block", f"--num-cpus={cpus}", "--num-gpus=0", agent, *options],
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _answers(address: str) -> bool:
    try:
        urllib.request.urlopen(f"{address}/api/version", timeout=2)
    except urllib.error.HTTPError:
        return True  # it asks for the token
    except OSError:
        return False
    return True
