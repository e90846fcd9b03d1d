"""``ray job submit`` against a real local cluster that asks for a token."""

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
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import yaml

ROOT = Path(__file__).parents[2]
RAY = str(Path(sys.executable).with_name("ray"))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[str, dict[str, str]]]:
    """(dashboard address, environment with the token) of a 2-CPU cluster."""
    port, dashboard = free_port(), free_port()
    env = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    env.pop("RAY_ADDRESS", None)
    head = subprocess.Popen(
        f"{RAY} start --head --block --num-cpus=2 "
        f"--port={port} --dashboard-port={dashboard}".split(),
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    address = f"http://127.0.0.1:{dashboard}"
    try:
        for _ in range(120):
            if head.poll() is None and answers(address):
                break
            time.sleep(0.5)
        else:
            pytest.fail("the local cluster did not come up")
        # The head's address stays behind in Ray's temporary folder: exactly what a later local
        # run must not wait for (test_a_dead_head_is_not_waited_for).
        yield address, {**env, "RAY_ADDRESS": f"127.0.0.1:{port}"}
    finally:
        os.killpg(head.pid, signal.SIGTERM)
        head.wait(timeout=60)


def answers(address: str) -> bool:
    try:
        urllib.request.urlopen(f"{address}/api/version", timeout=2)
    except urllib.error.HTTPError:
        return True  # it asks for the token: it is up
    except OSError:
        return False
    return True


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    benchmark = {"name": "acebench", "languages": ["en"], "categories": ["normal_atom_bool"]}
    path.write_text(
        yaml.safe_dump(
            {
                "model": {"source": "fake"},
                "backend": "fake",
                "benchmarks": [benchmark],
                "output": str(tmp_path / "runs"),
            }
        )
    )
    return path


def test_a_job_writes_a_complete_run(cluster, config, tmp_path):
    address, env = cluster
    env = {key: value for key, value in env.items() if key != "RAY_ADDRESS"}
    command = [RAY, "job", "submit", "--address", address, "--working-dir", str(ROOT), "--"]
    command += ["python", "jobs/evaluate.py", "--config", str(config)]
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "declared 4 = 4 scored" in done.stdout
    (run,) = (tmp_path / "runs").iterdir()
    assert (run / "_SUCCESS").exists()
    assert json.loads((run / "run.json").read_text())["machine"]["cluster_cpus"] == 2


def test_a_driver_without_the_token_is_told_so(cluster, config):
    _, env = cluster
    env = {key: value for key, value in env.items() if not key.startswith("RAY_AUTH")}
    env |= {"RAY_AUTH_MODE": "disabled"}
    done = subprocess.run(
        [sys.executable, "jobs/evaluate.py", "--config", str(config)],
        env=env,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "token" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_a_run_that_does_not_fit_is_refused(cluster, config, tmp_path):
    _, env = cluster
    done = subprocess.run(
        [sys.executable, "jobs/evaluate.py", "--config", str(config), "--set", "workers=4"],
        env=env,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "set workers to 1 or less" in done.stderr
    assert not list(tmp_path.glob("runs/*"))


def test_a_driver_beside_another_ray_ends_at_once(cluster, config):
    """What it leaves unreferenced at its end must not look for a Ray, and find this one."""
    _, env = cluster
    env = {key: value for key, value in env.items() if not key.startswith("RAY_AUTH")}
    env |= {"RAY_ADDRESS": "local"}
    driver = subprocess.Popen(
        [sys.executable, "jobs/evaluate.py", "--config", str(config), "--set", "engine.load_s=100"],
        env=env,
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        for _ in range(600):
            below = psutil.Process(driver.pid).children(recursive=True)
            if any("EngineWorker" in " ".join(process.cmdline()) for process in below):
                break
            time.sleep(0.1)
        driver.send_signal(signal.SIGINT)
        _, printed = driver.communicate(timeout=45)
    finally:
        if driver.poll() is None:
            os.killpg(driver.pid, signal.SIGKILL)
    assert driver.returncode == 75, printed
    assert "Traceback" not in printed
