"""When workers that come and go are started."""

from __future__ import annotations

import pytest

from ace_ray.cluster.resources import Nodes, Resources
from ace_ray.pipeline import elastic
from ace_ray.pipeline.elastic import ElasticWorkers

NODE = {"CPU": 4.0, "GPU": 2.0}


class Pool:
    """The actors of a pool by node, and how many more it is asked for."""

    def __init__(self, running: list[str], starting: int = 0, waiting: bool = True) -> None:
        self._running = {f"actor {n}": node for n, node in enumerate(running)}
        self._starting, self.is_waited_for = starting, waiting
        self.size = len(running) + starting
        self.more = 0

    def running(self) -> dict[str, str]:
        return self._running

    def pending(self) -> list[str]:
        return [f"pending {n}" for n in range(self._starting)]

    def grow(self, more: int) -> None:
        self.more += more


def grown(
    monkeypatch: pytest.MonkeyPatch,
    pool: Pool,
    nodes: dict[str, dict[str, float]],
    *,
    free: dict[str, dict[str, float]] | None = None,
    draining: tuple[str, ...] = (),
    fewest: int = 1,
) -> int:
    """How many workers are started, of one GPU each and at most 8."""

    def room(nodes: Nodes) -> int:
        return min(8, int(sum(node["GPU"] for node in nodes)))

    monkeypatch.setattr(elastic, "free_resources", lambda: free or nodes)
    need = Resources(1, 1.0, 1, 1, fewest=fewest, limit=8)
    workers = ElasticWorkers(None, need, room, 20.0, lambda: False, lambda line: None)
    workers._pool = pool
    monkeypatch.setattr(workers, "_without_node_s", lambda actor, nodes: 0.0)
    there = {node: has for node, has in nodes.items() if node not in draining}
    workers._grow(there, dict.fromkeys(draining, 0))
    return pool.more


def test_a_worker_starts_where_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    two = {"a": NODE, "b": NODE}
    held = {"a": {"CPU": 2.0}, "b": NODE}
    assert grown(monkeypatch, Pool(["a", "a"]), two, free=held) == 2
    assert grown(monkeypatch, Pool(["a", "a"], starting=2), two, free=held) == 0
    assert grown(monkeypatch, Pool(["a", "a"], waiting=False), two, free=held) == 0
    busy = {"a": {"CPU": 2.0}, "b": {"CPU": 4.0, "GPU": 1.0}}
    assert grown(monkeypatch, Pool(["a", "a"]), two, free=busy) == 1, "others hold the rest"
    many = {str(number): NODE for number in range(9)}
    assert grown(monkeypatch, Pool(["0"] * 5), many) == 3, "never more than the most"


def test_the_least_are_asked_for_whatever_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    none: dict[str, dict[str, float]] = {"a": {"CPU": 0.0}}
    assert grown(monkeypatch, Pool(["a"]), {"a": NODE}, free=none, fewest=3) == 2
    assert grown(monkeypatch, Pool(["a"], starting=2), {"a": NODE}, free=none, fewest=3) == 0


def test_a_node_that_is_drained_has_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    two = {"a": NODE, "b": NODE}
    free = {"a": {"CPU": 2.0, "GPU": 1.0}, "b": {"CPU": 3.0, "GPU": 1.0}}
    pool = Pool(["a", "b"])
    assert grown(monkeypatch, pool, two, free=free, draining=("b",)) == 1
