"""When workers that come and go are started, given up and withdrawn; and what that rests on."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.data._internal.actor_autoscaler import ActorPoolScalingRequest
from ray.data._internal.execution.interfaces import RefBundle
from ray.data._internal.execution.interfaces.physical_operator import DataOpTask
from ray.data._internal.execution.operators.actor_pool_map_operator import (
    ActorPoolMapOperator,
    _ActorPool,
)
from ray.data._internal.execution.streaming_executor import StreamingExecutor

from ace_ray.run.elastic import ElasticWorkers, _Task
from ace_ray.run.planning.cluster import Nodes, Resources

NODE = {"CPU": 4.0, "GPU": 2.0}


class Pool:
    """The sizes of a pool, and what it is asked for."""

    def __init__(self, running: list[str], pending: int = 0) -> None:
        places = enumerate(running)
        self._running_actors = {n: SimpleNamespace(actor_location=node) for n, node in places}
        self._pending_actors = {f"ready {n}": f"pending {n}" for n in range(pending)}
        self.asked = 0

    def num_pending_actors(self) -> int:
        return len(self._pending_actors)

    def current_size(self) -> int:
        return len(self._running_actors) + len(self._pending_actors)

    def scale(self, request: ActorPoolScalingRequest) -> None:
        self.asked += request.delta


def grown(
    monkeypatch: pytest.MonkeyPatch,
    pool: Pool,
    nodes: dict[str, dict[str, float]],
    *,
    free: dict[str, dict[str, float]] | None = None,
    draining: tuple[str, ...] = (),
    waiting: int = 1,
    fewest: int = 1,
) -> int:
    """How many workers are started, of one GPU each and at most 8."""

    def room(nodes: Nodes) -> int:
        return min(8, int(sum(node["GPU"] for node in nodes)))

    state = SimpleNamespace(available_resources_per_node=lambda: free or nodes)
    monkeypatch.setattr(ray._private, "state", state)
    need = Resources(1, 1.0, 1, 1, fewest=fewest, limit=8)
    workers = ElasticWorkers(None, need, room, 20.0, lambda: False, lambda line: None)
    workers._queue = SimpleNamespace(total_enqueued_input_blocks=lambda: waiting)
    workers._op = SimpleNamespace(
        _actor_pool=pool, _bundle_queue=SimpleNamespace(has_next=lambda: False)
    )
    monkeypatch.setattr(workers, "_without_node_s", lambda actor, nodes: 0.0)
    there = {node: has for node, has in nodes.items() if node not in draining}
    workers._grow(there, dict.fromkeys(draining, 0))
    return pool.asked


def test_a_worker_starts_where_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    two = {"a": NODE, "b": NODE}
    held = {"a": {"CPU": 2.0}, "b": NODE}
    assert grown(monkeypatch, Pool(["a", "a"]), two, free=held) == 2
    assert grown(monkeypatch, Pool(["a", "a"], pending=2), two, free=held) == 0
    assert grown(monkeypatch, Pool(["a", "a"]), two, free=held, waiting=0) == 0
    busy = {"a": {"CPU": 2.0}, "b": {"CPU": 4.0, "GPU": 1.0}}
    assert grown(monkeypatch, Pool(["a", "a"]), two, free=busy) == 1, "others hold the rest"


def test_never_more_than_the_most(monkeypatch: pytest.MonkeyPatch) -> None:
    many = {str(number): NODE for number in range(9)}
    assert grown(monkeypatch, Pool(["0"] * 5), many) == 3
    assert grown(monkeypatch, Pool(["0"] * 8), many) == 0


def test_the_least_are_asked_for_whatever_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    none: dict[str, dict[str, float]] = {"a": {"CPU": 0.0}}
    assert grown(monkeypatch, Pool(["a"]), {"a": NODE}, free=none, fewest=3) == 2
    assert grown(monkeypatch, Pool(["a"], pending=2), {"a": NODE}, free=none, fewest=3) == 0


def test_a_node_that_is_drained_has_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    two = {"a": NODE, "b": NODE}
    free = {"a": {"CPU": 2.0, "GPU": 1.0}, "b": {"CPU": 3.0, "GPU": 1.0}}
    pool = Pool(["a", "b"])
    assert grown(monkeypatch, pool, two, free=free, draining=("b",)) == 1


def test_ray_data_has_what_this_rests_on() -> None:
    """Names inside Ray Data: another release may have other ones."""
    for name in ("_submit_data_task", "_try_schedule_tasks_internal", "has_execution_finished"):
        assert callable(getattr(ActorPoolMapOperator, name))
    for name in ("_release_running_actor", "_try_remove_pending_actor", "on_task_completed"):
        assert callable(getattr(_ActorPool, name))
    held = inspect.getsource(_ActorPool.__init__) + inspect.getsource(ActorPoolMapOperator.__init__)
    for name in ("_running_actors", "_pending_actors", "_bundle_queue", "_actor_pool"):
        assert f"self.{name}" in held
    submit = inspect.getsource(ActorPoolMapOperator._try_schedule_tasks_internal)
    assert "actor_to_return=actor" in submit
    assert "actor_autoscaler" in inspect.getsource(StreamingExecutor)
    assert "_output_ready_callback" in inspect.getsource(DataOpTask.__init__)
    fields: Any = RefBundle.__dataclass_fields__
    assert {"blocks", "schema", "owns_blocks"} <= set(fields)


def test_what_a_lost_worker_held_goes_to_others_and_nothing_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One block has not come back, one has, and one is just coming: that one stays its own."""
    killed: list[str] = []
    monkeypatch.setattr(ray, "kill", killed.append)
    coming = {0: False, 1: False, 2: True, 3: False}
    state = SimpleNamespace(num_tasks_in_flight=3)
    queued: list[str] = []
    released: list[str] = []

    def completed(actor: str) -> None:
        state.num_tasks_in_flight -= 1

    workers = ElasticWorkers(
        None, Resources(1, 1.0, 1, 1), len, 20.0, lambda: False, lambda line: None
    )
    workers._op = SimpleNamespace(
        _data_tasks={
            number: SimpleNamespace(has_pending_emits=lambda number=number: coming[number])
            for number in coming
        },
        _metrics=SimpleNamespace(
            on_task_finished=lambda *how: None, on_input_queued=lambda inputs, input_index: None
        ),
        _output_queue=SimpleNamespace(finalize=lambda key: None),
        _bundle_queue=SimpleNamespace(add=queued.append),
        _actor_pool=SimpleNamespace(
            on_task_completed=completed, _release_running_actor=released.append
        ),
    )
    workers._tasks = {
        0: _Task("lost", "waits"),
        1: _Task("lost", "came", out=2),
        2: _Task("lost", "comes"),
        3: _Task("other", "of another"),
    }
    workers._lost = {"lost"}
    workers._give_away("lost", state)
    assert queued == ["waits"]
    assert (released, killed) == ([], [])
    assert set(workers._tasks) == {2, 3}
    coming[2], workers._tasks[2].out = False, 1
    workers._give_away("lost", state)
    assert queued == ["waits"], "what has come back is not evaluated again"
    assert (released, killed) == (["lost"], ["lost"])
    assert set(workers._tasks) == {3}
    assert not workers._lost
