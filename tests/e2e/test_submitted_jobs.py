"""Jobs on a real cluster of two nodes: submitted, followed, scraped, stopped, and refused."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from ace_ray.benchmarks.acebench.data.loader import load, locate
from ace_ray.pipeline.monitoring.metrics import DEATHS, SPECS
from tests.e2e.ray_clusters import RAY, Cluster, running, wait_for

pytestmark = [pytest.mark.ray, pytest.mark.cluster, pytest.mark.nightly]

ROOT = Path(__file__).parents[2]
NO_AGENT = "No available agent to submit job"
"""Ray's answer while the agent of a new head is not there."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running([1, 1]) as cluster:
        yield cluster


class Follower:
    """A process of ``ace-ray submit``; ``text`` is its output so far."""

    def __init__(self, cluster: Cluster, config: Path, *options: str) -> None:
        command = [sys.executable, "-m", "ace_ray.cli", "submit", str(config)]
        self.process = subprocess.Popen(
            [*command, "--address", cluster.dashboard, *options],
            env=cluster.env,
            cwd=config.parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.text = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.text += line

    def until(self, said: str) -> None:
        wait_for(lambda: said in self.text or self.process.poll() is not None, f"never said {said}")
        assert said in self.text, self.text

    def end(self) -> int:
        try:
            code = self.process.wait(timeout=1800)
        finally:
            self.process.kill()
        self._reader.join(timeout=10)
        return code


def changed(config: Path, **changes: Any) -> Path:
    config.write_text(yaml.safe_dump({**yaml.safe_load(config.read_text()), **changes}))
    return config


def test_a_job_is_followed_again_left_and_stopped(cluster: Cluster, config: Path) -> None:
    changed(config, engine={"ready_file": "/never"})
    first = Follower(cluster, config)
    first.until("rows declared")
    second = Follower(cluster, config)
    second.until("rows declared")
    second.process.send_signal(signal.SIGINT)
    assert second.end() == 130
    assert "already running, not submitted again: ace-ray-evaluate-" in second.text
    assert "Traceback" not in second.text
    (name,) = re.findall(r"ray job stop --address \S+ (ace-ray-evaluate-\w+-1)", second.text)

    def job() -> Any:
        return cluster.call(f"/api/jobs/{name}")

    assert job()["status"] == "RUNNING"
    wait_for(lambda: job()["driver_info"] is not None, "no driver")
    os.kill(int(job()["driver_info"]["pid"]), signal.SIGTERM)
    assert first.end() == 75, first.text
    assert "the same command continues this run" in first.text


def test_a_job_on_two_nodes_is_complete_and_its_metrics_are_served(
    cluster: Cluster, config: Path, tmp_path: Path
) -> None:
    # Engines wait until both have started, and one row waits until the metrics were read.
    answer, read = tmp_path / "answer", tmp_path / "read"
    held = load(locate("mini"), languages=["en"], categories=["normal_atom_bool"])[0]
    engine = {"answer_file": str(answer), "hold": {held.data["question"]: str(read)}}
    changed(config, samples=3, workers=2, worker_cpus=0.7, engine=engine)
    first = Follower(cluster, config)
    first.until("submitted ace-ray-evaluate-")
    (name,) = re.findall(r"submitted (\S+)", first.text)
    names = {spec.scraped for spec in SPECS} - {DEATHS.scraped}
    scraped: set[str] = set()

    def all_read() -> bool:
        with suppress(OSError):
            text = cluster.scrape()
            scraped.update(re.findall(r"^(ray_ace_ray_\w+)\{", text, re.MULTILINE))
        return names <= scraped or first.process.poll() is not None

    wait_for(lambda: cluster.engines() == 2, "two engines never had a node each")
    answer.touch()
    wait_for(all_read, f"some of {sorted(names)} are never served")
    assert names - scraped == set(), first.text
    read.touch()
    assert first.end() == 0, first.text
    assert "declared 12 = 12 scored" in first.text
    (run,) = (tmp_path / "runs").iterdir()
    assert (run / "_SUCCESS").exists()

    # The job has ended: the same config is another attempt.
    again = Follower(cluster, config, "--no-follow")
    assert again.end() == 0, again.text
    assert f"submitted {name[:-1]}2" in again.text
    job = cluster.call(f"/api/jobs/{name}")
    metadata = job["metadata"]
    assert (metadata["model"], metadata["benchmarks"], metadata["attempt"]) == (
        *("fake", "acebench", "1"),
    )
    assert cluster.env["RAY_AUTH_TOKEN"] not in json.dumps(job)


def test_jobs_evaluate_score_and_report(cluster: Cluster, config: Path, tmp_path: Path) -> None:
    def submitted(*entrypoint: str) -> str:
        command = [RAY, "job", "submit", "--address", cluster.dashboard, "--working-dir", str(ROOT)]
        limit = time.monotonic() + 180
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

    said = submitted("python", "jobs/evaluate.py", "--config", str(config))
    assert "declared 4 = 4 scored" in said
    assert "core_worker" not in said, "a warning of Ray"
    (run,) = (tmp_path / "runs").iterdir()
    assert (run / "_SUCCESS").exists()
    assert json.loads((run / "run.json").read_text())["machine"]["cluster_cpus"] == 2
    said = submitted("sh", "-c", f"python jobs/score.py {run} && python jobs/report.py {run}")
    assert "no verdict changed" in said
    assert "Overall (workbook)" in said.partition("no verdict changed")[2]


@pytest.mark.parametrize(
    ("env", "options", "words"),
    [
        ({"RAY_AUTH_MODE": "disabled"}, (), ("RAY_AUTH_TOKEN", "check RAY_ADDRESS")),
        ({"RAY_AUTH_TOKEN": "0" * 64}, (), ("RAY_AUTH_TOKEN", "check RAY_ADDRESS")),
        ({}, ("--set", "workers=4"), ("set workers to",)),
    ],
)
def test_a_driver_without_the_token_or_without_room_is_refused(
    cluster: Cluster,
    config: Path,
    tmp_path: Path,
    env: dict[str, str],
    options: tuple[str, ...],
    words: tuple[str, ...],
) -> None:
    given = {name: value for name, value in cluster.driver_env.items() if name not in env}
    if env.get("RAY_AUTH_MODE") == "disabled":
        del given["RAY_AUTH_TOKEN"]
    done = subprocess.run(
        [sys.executable, "jobs/evaluate.py", "--config", str(config), *options],
        env={**given, **env},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    for word in words:
        assert word in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("runs/*"))
