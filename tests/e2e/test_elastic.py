"""Engine workers come and go with the nodes of a real cluster while a run goes on."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.ray_clusters import Cluster, end_node, running, wait_for
from tests.faults.fault_runs import Run

pytestmark = [pytest.mark.ray, pytest.mark.cluster, pytest.mark.nightly]


class ElasticRun:
    """A run whose engine waits for `answer`."""

    def __init__(self, cluster: Cluster, make_run: Callable[..., Run]) -> None:
        run = make_run(samples=4, workers={"min": 1, "max": 3}, concurrency=8)
        self._cluster, self._file = cluster, Path(run.marker("answer"))
        run.write(engine={"hold": {"": str(self._file)}, "delay_s": 0.2})
        self.driver = run.start(**cluster.driver_env)

    def until(self, engines: int) -> None:
        self.driver.until(lambda: self._cluster.engines() == engines, timeout=600)

    def answer(self) -> list[dict[str, Any]]:
        """Let the engine answer, and return the rows of the complete run."""
        self._file.touch()
        assert self.driver.wait(timeout=600) == 0, self.driver.text
        self.driver.run.check_scored(12 * 4)
        rows = self.driver.run.rows()
        assert {row["attempts"] for row in rows} == {1}
        return rows


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Start one node, with room for one engine worker beside the checker and the writer."""
    monkeypatch.setenv("RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S", "12")
    with running(2) as cluster:
        yield cluster


@pytest.fixture
def run(cluster: Cluster, make_run: Callable[..., Run]) -> ElasticRun:
    return ElasticRun(cluster, make_run)


def test_a_drained_node_gives_its_rows_back(cluster: Cluster, run: ElasticRun) -> None:
    run.until(engines=1)
    node = cluster.join(1)
    run.until(engines=2)
    os.kill(node.pid, signal.SIGTERM)
    wait_for(lambda: len(cluster.alive()) == 1, "the node does not end")
    run.until(engines=1)
    rows = run.answer()
    assert "its engine worker has" in run.driver.text
    assert len({row["worker"] for row in rows}) == 1


def test_rows_of_a_killed_node_go_to_a_node_that_joins(cluster: Cluster, run: ElasticRun) -> None:
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
