"""Engine workers that come and go with the nodes of a real cluster, while a run goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from tests.e2e.ray_clusters import Cluster, alive, end_node, running, wait_for
from tests.e2e.test_fake_run import rows_of

pytestmark = [pytest.mark.ray, pytest.mark.cluster, pytest.mark.nightly]

SAMPLES = 12
"""Of four entries."""


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """One node, with room for one engine worker beside the checker and the writer."""
    monkeypatch.setenv("RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S", "12")
    # Not pytest's folder: the path of a socket has at most 107 characters.
    with (
        tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as folder,
        running(Path(folder, "ray"), [2]) as cluster,
    ):
        yield cluster


class Run:
    """An ``ace-ray evaluate`` whose engine answers nothing before `answer`."""

    def __init__(self, cluster: Cluster, config: Path, **changes: Any) -> None:
        self._cluster, self._file = cluster, config.with_name("answer")
        self._log = config.with_name("log")
        tree = yaml.safe_load(config.read_text())
        engine = {"answer_file": str(self._file), "delay_s": 0.2}
        config.write_text(
            yaml.safe_dump(
                {
                    **tree,
                    "run_id": "elastic",
                    "samples": SAMPLES,
                    "engine": engine,
                    "workers": {"min": 1, "max": 3},
                    "concurrency": 8,
                    **changes,
                }
            )
        )
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "ace_ray.cli.main", "evaluate", str(config)],
                env=cluster.driver_env,
                stdout=log,
                stderr=log,
            )
        self._folder = config.parent / "runs" / "elastic"

    @property
    def said(self) -> str:
        return self._log.read_text()

    def engines(self) -> int:
        """That have started and hold rows."""
        try:
            found = self._cluster.call(
                "/api/v0/actors?detail=1&limit=1000&filter_keys=state"
                "&filter_predicates=%3D&filter_values=ALIVE"
            )
        except OSError:
            return 0
        actors = found["data"]["result"]["result"]
        return sum("EngineWorker" in actor["class_name"] for actor in actors)

    def until(self, engines: int) -> None:
        try:
            wait_for(
                lambda: self._process.poll() is not None or self.engines() == engines,
                f"never {engines} engine workers",
                seconds=600,
            )
        finally:
            print(self.said)
        assert self._process.poll() is None, self.said

    def answer(self) -> None:
        self._file.touch()

    def end(self) -> pa.Table:
        """The rows of the run, which has to come to its end."""
        try:
            code = self._process.wait(timeout=600)
        finally:
            self._process.kill()
        assert code == 0, self.said
        rows = rows_of(self._folder)
        assert len(rows) == 4 * SAMPLES
        assert len(set(rows["row_id"].to_pylist())) == 4 * SAMPLES
        assert set(rows["status"].to_pylist()) == {"scored"}
        return rows


@pytest.fixture
def run(cluster: Cluster, config: Path) -> Iterator[Run]:
    run = Run(cluster, config)
    yield run
    run._process.kill()


def nodes(cluster: Cluster, count: int) -> None:
    wait_for(lambda: alive(cluster) == count, f"never {count} nodes")


def test_a_worker_that_joins_late_takes_rows(cluster: Cluster, run: Run) -> None:
    run.until(engines=1)
    cluster.join(1)
    run.until(engines=2)
    run.answer()
    rows = run.end()
    assert len(set(rows["worker"].to_pylist())) == 2


def test_a_node_that_gets_sigterm_gives_its_rows_back(cluster: Cluster, run: Run) -> None:
    run.until(engines=1)
    node = cluster.join(1)
    run.until(engines=2)
    os.kill(node.pid, signal.SIGTERM)
    nodes(cluster, 1)
    run.until(engines=1)
    run.answer()
    rows = run.end()
    assert "its engine worker has" in run.said
    assert set(rows["attempts"].to_pylist()) == {1}
    assert len(set(rows["worker"].to_pylist())) == 1


def test_a_node_that_is_killed_takes_no_row_with_it(cluster: Cluster, run: Run) -> None:
    run.until(engines=1)
    node = cluster.join(1)
    run.until(engines=2)
    end_node(node)
    run.until(engines=1)
    nodes(cluster, 1)
    cluster.join(1)
    run.until(engines=2)
    run.answer()
    rows = run.end()
    assert set(rows["attempts"].to_pylist()) == {1}
    assert len(set(rows["worker"].to_pylist())) == 2
