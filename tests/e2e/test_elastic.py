"""Engine workers come and go with the nodes of a real cluster while a run goes on."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import ace_ray
from tests.e2e.ray_clusters import Cluster, end_node, running, wait_for

pytestmark = [pytest.mark.ray, pytest.mark.cluster, pytest.mark.nightly]

SAMPLES = 12
"""Samples of each of four entries."""


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Start one node, with room for one engine worker beside the checker and the writer."""
    monkeypatch.setenv("RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S", "12")
    with running(2) as cluster:
        yield cluster


class Run:
    """An ``ace-ray evaluate`` whose engine waits for `answer`."""

    def __init__(self, cluster: Cluster, config: Path) -> None:
        self._cluster, self._file = cluster, config.with_name("answer")
        self._log, self._folder = config.with_name("log"), config.parent / "runs" / "elastic"
        tree = {
            **yaml.safe_load(config.read_text()),
            "run_id": "elastic",
            "samples": SAMPLES,
            "engine": {"hold": {"": str(self._file)}, "delay_s": 0.2},
            "workers": {"min": 1, "max": 3},
            "concurrency": 8,
        }
        config.write_text(yaml.safe_dump(tree))
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "ace_ray.cli.main", "evaluate", str(config)],
                env=cluster.driver_env,
                stdout=log,
                stderr=log,
            )

    @property
    def output(self) -> str:
        return self._log.read_text()

    def until(self, engines: int) -> None:
        wait_for(
            lambda: self.process.poll() is not None or self._cluster.engines() == engines,
            f"never {engines} engine workers",
            seconds=600,
        )
        assert self.process.poll() is None, self.output

    def answer(self) -> list[dict[str, Any]]:
        """Let the engine answer, and return the rows of the complete run."""
        self._file.touch()
        assert self.process.wait(timeout=600) == 0, self.output
        rows = ace_ray.Run.open(str(self._folder)).rows().to_pylist()
        assert len({row["row_id"] for row in rows}) == len(rows) == 4 * SAMPLES
        assert {row["status"] for row in rows} == {"scored"}
        assert {row["attempts"] for row in rows} == {1}
        return rows


@pytest.fixture
def run(cluster: Cluster, config: Path) -> Iterator[Run]:
    run = Run(cluster, config)
    yield run
    run.process.kill()


def test_a_drained_node_gives_its_rows_back(cluster: Cluster, run: Run) -> None:
    run.until(engines=1)
    node = cluster.join(1)
    run.until(engines=2)
    os.kill(node.pid, signal.SIGTERM)
    wait_for(lambda: len(cluster.alive()) == 1, "the node does not end")
    run.until(engines=1)
    rows = run.answer()
    assert "its engine worker has" in run.output
    assert len({row["worker"] for row in rows}) == 1


def test_rows_of_a_killed_node_go_to_a_node_that_joins(cluster: Cluster, run: Run) -> None:
    run.until(engines=1)
    node = cluster.join(1)
    run.until(engines=2)
    end_node(node)
    run.until(engines=1)
    wait_for(lambda: len(cluster.alive()) == 1, "the node does not end")
    cluster.join(1)
    run.until(engines=2)
    rows = run.answer()
    assert len({row["worker"] for row in rows}) == 2
