"""A real Ray cluster on this machine, of one or several nodes, that asks for a token."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
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


@dataclass(frozen=True)
class Cluster:
    """A cluster of as many raylets as ``cpus``; ``env`` lets a process submit to it."""

    dashboard: str
    env: dict[str, str]
    """With the token, and no address."""
    gcs: str
    folder: Path
    """Ray's temporary folder of the head."""
    nodes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    """``ray start``, the head's first; each leads a process group, which is all of its node."""

    def join(self, cpus: float, gpus: int = 0) -> subprocess.Popen[bytes]:
        """Another node, which is up."""
        for _ in range(STARTS):
            name = f"node-{len(self.nodes)}"
            # A folder each: a node that unpacks a job's files removes what is there.
            where = [f"--address={self.gcs}", f"--temp-dir={self.folder}-{len(self.nodes)}"]
            mark = f"--resources={json.dumps({name: 1})}"
            self.nodes.append(_started(self.env, cpus, gpus, [*where, mark]))
            if _comes_up(self.nodes[-1], partial(_has, self, name)):
                return self.nodes[-1]
        pytest.fail("no node came up")

    @property
    def driver_env(self) -> dict[str, str]:
        return {**self.env, "RAY_ADDRESS": self.gcs}

    def call(self, path: str) -> Any:
        """What the dashboard answers."""
        token = {"Authorization": f"Bearer {self.env['RAY_AUTH_TOKEN']}"}
        request = urllib.request.Request(f"{self.dashboard}{path}", headers=token)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def scrape(self) -> str:
        """What Prometheus would read now: the text of all nodes, found as it finds them."""
        file = self.folder / "prom_metrics_service_discovery.json"
        (group,) = json.loads(file.read_text())
        texts = []
        for target in group["targets"]:
            port = target.rpartition(":")[2]
            # Processes of the head are listed a moment before they listen.
            with (
                suppress(OSError),
                urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer,
            ):
                texts.append(answer.read().decode())
        return "\n".join(texts)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(folder: Path, cpus: list[int], gpus: int = 0) -> Iterator[Cluster]:
    """A cluster of one node per item of ``cpus``, the first one the head. Each says that it has
    ``gpus``, which nothing but Ray's accounts knows of."""
    port, dashboard = free_port(), free_port()
    env = {
        **os.environ,
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_metrics_report_interval_ms": "500",
        # Where it notes its address: in the common place others' local runs would find it.
        "RAY_TMPDIR": str(folder),
    }
    env.pop("RAY_ADDRESS", None)
    gcs, address = f"127.0.0.1:{port}", f"http://127.0.0.1:{dashboard}"
    head = ["--head", f"--port={port}", f"--dashboard-port={dashboard}", f"--temp-dir={folder}"]
    cluster = Cluster(address, env, gcs, folder)
    try:
        for _ in range(STARTS):
            cluster.nodes.append(_started(env, cpus[0], gpus, head))
            if _comes_up(cluster.nodes[-1], lambda: answers(address) and alive(cluster) == 1):
                break
        else:
            pytest.fail("the head did not come up")
        for count in cpus[1:]:
            cluster.join(count, gpus)
        wait_for(lambda: alive(cluster) == len(cpus), "not all nodes came up")
        yield cluster
    finally:
        # Asked to end, a raylet takes half a minute for it. All of a node is one process group.
        for node in cluster.nodes:
            end_node(node)


STARTS = 5
"""A raylet ends when its agent is not there within 15 s, as on a machine that is busy."""


def _comes_up(node: subprocess.Popen[bytes], is_up: Callable[[], bool]) -> bool:
    """Wait until it is; False: it has ended before."""
    wait_for(lambda: node.poll() is not None or is_up(), "a node neither came up nor ended")
    if node.poll() is None:
        return True
    end_node(node)
    return False


def end_node(node: subprocess.Popen[bytes]) -> None:
    """SIGKILL for all of it, if it is there."""
    with suppress(ProcessLookupError):
        os.killpg(node.pid, signal.SIGKILL)
    node.wait(timeout=60)


def _started(
    env: dict[str, str], cpus: float, gpus: int, where: list[str]
) -> subprocess.Popen[bytes]:
    # Of its own, too: beside another Ray on this machine no job agent would come up.
    agent = f"--dashboard-agent-listen-port={free_port()}"
    return subprocess.Popen(
        [RAY, "start", "--block", f"--num-cpus={cpus}", f"--num-gpus={gpus}", agent, *where],
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def wait_for(condition: Callable[[], bool], failure: str, seconds: float = 1800) -> None:
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            pytest.fail(failure)
        time.sleep(0.2)


def answers(address: str) -> bool:
    try:
        urllib.request.urlopen(f"{address}/api/version", timeout=2)
    except urllib.error.HTTPError:
        return True  # it asks for the token: it is up
    except OSError:
        return False
    return True


def alive(cluster: Cluster) -> int:
    """Nodes that are up; 0 while the dashboard cannot tell yet."""
    return len(_alive(cluster))


def _alive(cluster: Cluster) -> list[dict[str, Any]]:
    try:
        found = cluster.call("/api/v0/nodes")["data"]["result"]["result"]
    except OSError:
        return []
    return [node for node in found if node["state"] == "ALIVE"]


def _has(cluster: Cluster, resource: str) -> bool:
    """Whether a node that is up has it."""
    return any(resource in node["resources_total"] for node in _alive(cluster))
