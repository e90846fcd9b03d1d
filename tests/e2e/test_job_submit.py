"""``ray job submit`` against a real local cluster that asks for a token."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.e2e.ray_clusters import RAY, Cluster, running

pytestmark = [pytest.mark.ray, pytest.mark.cluster, pytest.mark.nightly]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """One node of 2 CPUs."""
    # Not pytest's folder: the path of a socket has at most 107 characters. And not the common one,
    # where its address would be found by others' local runs.
    with (
        tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as folder,
        running(Path(folder, "ray"), [2]) as cluster,
    ):
        yield cluster


AGENT_S = 180.0
NO_AGENT = "No available agent to submit job"
"""Ray's answer while the agent of a head that was just started is not there."""


def submitted(cluster: Cluster, *entrypoint: str) -> str:
    """What ``ray job submit`` printed of a job that succeeded."""
    command = [RAY, "job", "submit", "--address", cluster.dashboard, "--working-dir", str(ROOT)]
    limit = time.monotonic() + AGENT_S
    while True:
        done = subprocess.run(
            [*command, "--", *entrypoint],
            env=cluster.env,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        said = done.stdout + done.stderr
        if done.returncode == 0 or NO_AGENT not in said or time.monotonic() > limit:
            break
        time.sleep(1)
    assert done.returncode == 0, said
    return done.stdout


def test_jobs_write_score_and_report_a_run(cluster, config, tmp_path):
    said = submitted(cluster, "python", "jobs/evaluate.py", "--config", str(config))
    assert "declared 4 = 4 scored" in said
    assert "core_worker" not in said, "Ray's own warnings say nothing to a user"
    (run,) = (tmp_path / "runs").iterdir()
    assert (run / "_SUCCESS").exists()
    assert json.loads((run / "run.json").read_text())["machine"]["cluster_cpus"] == 2
    both = f"python jobs/score.py {run} && python jobs/report.py {run}"
    said = submitted(cluster, "sh", "-c", both)
    assert "no verdict changed" in said
    assert "Overall (workbook)" in said.partition("no verdict changed")[2]


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(
    "token", [{"RAY_AUTH_MODE": "disabled"}, {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}]
)
def test_a_driver_without_the_token_is_told_so(cluster, config, tmp_path, named, token):
    env = {
        key: value for key, value in cluster.driver_env.items() if not key.startswith("RAY_AUTH")
    }
    env |= token
    note = tmp_path / "ray" / "ray_current_cluster"
    if not named:
        # As `ray start` leaves it where it is given no folder.
        note.parent.mkdir()
        note.write_text(env.pop("RAY_ADDRESS"))
        env["RAY_TMPDIR"] = str(tmp_path)
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
    line = done.stderr.splitlines()[-1]
    assert cluster.gcs in line
    assert "RAY_AUTH_TOKEN" in line
    assert ("check RAY_ADDRESS" in line) is named
    assert (f"found on this machine ({note}" in line and "RAY_ADDRESS=local" in line) is not named
    assert "Traceback" not in done.stderr


def test_a_run_that_does_not_fit_is_refused(cluster, config, tmp_path):
    done = subprocess.run(
        [sys.executable, "jobs/evaluate.py", "--config", str(config), "--set", "workers=4"],
        env=cluster.driver_env,
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
    env = {
        key: value for key, value in cluster.driver_env.items() if not key.startswith("RAY_AUTH")
    }
    env |= {"RAY_ADDRESS": "local"}
    never = ["--set", "engine.ready_file=/never"]
    driver = subprocess.Popen(
        [sys.executable, "jobs/evaluate.py", "--config", str(config), *never],
        env=env,
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        for _ in range(600):
            with suppress(psutil.Error):  # a process may go while it is looked at
                below = psutil.Process(driver.pid).children(recursive=True)
                if any("EngineWorker" in " ".join(process.cmdline()) for process in below):
                    break
            time.sleep(0.1)
        driver.send_signal(signal.SIGINT)
        _, printed = driver.communicate(timeout=600)
    finally:
        if driver.poll() is None:
            os.killpg(driver.pid, signal.SIGKILL)
    assert driver.returncode == 75, printed
    assert "Traceback" not in printed
