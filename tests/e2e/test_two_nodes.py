"""``ace-ray submit`` to a real cluster of two nodes: followed, met again, left, stopped."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from ace_ray.benchmarks.acebench.data.loader import load, locate
from ace_ray.pipeline.monitoring.metrics import DEATHS, SPECS
from tests.e2e.ray_clusters import Cluster, running, wait_for

pytestmark = [pytest.mark.ray, pytest.mark.cluster, pytest.mark.nightly]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two nodes of 1 CPU each."""
    # Not pytest's folder: the path of a socket has at most 107 characters.
    with (
        tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as folder,
        running(Path(folder, "ray"), [1, 1]) as cluster,
    ):
        yield cluster


@pytest.fixture
def two_workers(config: Path) -> Path:
    """The config with a worker that fits a node once, so that two take both."""
    tree = yaml.safe_load(config.read_text())
    config.write_text(yaml.safe_dump({**tree, "samples": 3, "workers": 2, "worker_cpus": 0.7}))
    return config


class Follower:
    """An ``ace-ray submit`` in a process of its own; ``text`` is what it has printed."""

    def __init__(self, cluster: Cluster, config: Path, *options: str) -> None:
        command = [sys.executable, "-m", "ace_ray.cli.main", "submit", str(config)]
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


def nodes_of_engines(cluster: Cluster) -> set[str]:
    actors = cluster.call("/api/v0/actors?detail=1&limit=1000")["data"]["result"]["result"]
    engines = [actor for actor in actors if "EngineWorker" in actor["class_name"]]
    return {actor["node_id"] for actor in engines} - {None}


def end_driver(cluster: Cluster, name: str) -> None:
    wait_for(lambda: cluster.call(f"/api/jobs/{name}")["driver_info"] is not None, "no driver")
    os.kill(int(cluster.call(f"/api/jobs/{name}")["driver_info"]["pid"]), signal.SIGTERM)


def test_a_run_is_met_again_and_left(cluster, two_workers):
    tree = yaml.safe_load(two_workers.read_text())
    two_workers.write_text(yaml.safe_dump({**tree, "engine": {"ready_file": "/never"}}))
    first = Follower(cluster, two_workers)
    first.until("rows declared")
    second = Follower(cluster, two_workers)
    second.until("rows declared")
    second.process.send_signal(signal.SIGINT)
    assert second.end() == 130
    assert "already running, not submitted again: ace-ray-evaluate-" in second.text
    assert "Traceback" not in second.text
    (name,) = re.findall(r"ray job stop --address \S+ (ace-ray-evaluate-\w+-1)", second.text)
    assert cluster.call(f"/api/jobs/{name}")["status"] == "RUNNING", "whoever leaves stops nothing"
    end_driver(cluster, name)
    assert first.end() == 75, first.text


def test_a_run_on_two_nodes_is_followed_and_scraped(cluster, two_workers, tmp_path):
    # Engines that answer at once could end all rows before the second one has a node, and the run
    # before what it says of itself was read.
    both, read = tmp_path / "both", tmp_path / "read"
    held = load(locate("mini"), languages=["en"], categories=["normal_atom_bool"])[0]
    engine = {"answer_file": str(both), "hold": {held.data["question"]: str(read)}}
    tree = yaml.safe_load(two_workers.read_text())
    two_workers.write_text(yaml.safe_dump({**tree, "engine": engine}))
    first = Follower(cluster, two_workers)
    first.until("submitted ace-ray-evaluate-")
    (name,) = re.findall(r"submitted (\S+)", first.text)
    names = {spec.scraped for spec in SPECS} - {DEATHS.scraped}
    scraped: set[str] = set()

    def have_nodes() -> bool:
        with suppress(OSError):  # a dashboard that is busy is asked again
            return len(nodes_of_engines(cluster)) == 2
        return False

    def all_read() -> bool:
        scraped.update(re.findall(r"^(ray_ace_ray_\w+)\{", cluster.scrape(), re.MULTILINE))
        return names <= scraped or first.process.poll() is not None

    wait_for(have_nodes, "two engines never had a node each")
    both.touch()
    wait_for(all_read, f"some of {sorted(names)} are never served")
    assert names - scraped == set(), first.text
    read.touch()
    assert first.end() == 0, first.text
    assert first.text.count("12 rows declared, 12 to evaluate") == 1
    assert "declared 12 = 12 scored" in first.text
    (run,) = (tmp_path / "runs").iterdir()
    assert (run / "_SUCCESS").exists()

    # It has ended: the same config is another attempt.
    again = Follower(cluster, two_workers, "--no-follow")
    assert again.end() == 0, again.text
    assert f"submitted {name[:-1]}2" in again.text
    for attempt in ("1", "2"):
        job = cluster.call(f"/api/jobs/{name[:-1]}{attempt}")
        metadata = job["metadata"]
        assert (metadata["model"], metadata["benchmarks"]) == ("fake", "acebench")
        assert metadata["attempt"] == attempt
        assert cluster.env["RAY_AUTH_TOKEN"] not in json.dumps(job)


def test_the_jobs_exit_code_is_handed_on(cluster, config):
    tree = yaml.safe_load(config.read_text())
    config.write_text(yaml.safe_dump({**tree, "engine": {"ready_file": "/never"}}))
    follower = Follower(cluster, config)
    follower.until("4 rows declared")
    (name,) = re.findall(r"submitted (\S+)", follower.text)
    end_driver(cluster, name)
    assert follower.end() == 75, follower.text
    assert "the same command continues this run" in follower.text
