"""The private names of Ray that the package uses, and that patches end with their context."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.data._internal.execution import streaming_executor
from ray.data._internal.execution.operators import actor_pool_map_operator as actor_pools
from ray.data._internal.stats import _StatsManager

from ace_ray.cluster import ray_internals
from ace_ray.cluster.ray_internals import (
    FixedCluster,
    Task,
    TrackedPool,
    arguments_as_values,
    lean_data,
    replaced,
)

PACKAGE = Path(ray_internals.__file__).parents[1]
_DATA = "ray.data._internal"
_POOL = f"{_DATA}.execution.operators.actor_pool_map_operator"
ELASTIC = "workers: {min, max} does not follow the nodes"
NAMES = {
    "ray._private.node:Node.start_api_server": "a local Ray starts a dashboard, 2 s and more",
    "ray._private.node:Node.start_monitor": "a local Ray starts an autoscaler process",
    "ray._private.node:Node.start_log_monitor": "a local Ray starts a log monitor process",
    "ray.actor:ActorHandle._serialization_helper": "restarts depend on the driver's node",
    "ray.actor:ActorHandle._deserialization_helper": "restarts depend on the driver's node",
    "ray.data:Dataset.map_batches_internal": "engine workers on GPUs cannot take blocks",
    f"{_DATA}.execution.execution_callback:ExecutionCallback.on_execution_step": "nothing pauses",
    f"{_DATA}.execution.streaming_executor:create_cluster_autoscaler": "an actor more per graph",
    f"{_POOL}:get_or_create_actor_location_tracker": "an actor more per graph",
    f"{_POOL}:get_actor_locations": "a call each second to an actor that is not there",
    f"{_DATA}.stats:_StatsManager.gen_dataset_id_from_stats_actor": "an actor more per graph",
    f"{_DATA}.stats:_StatsManager.register_dataset_to_stats_actor": "an actor more per graph",
    f"{_DATA}.stats:_StatsManager.update_execution_metrics": "an actor more per graph",
    f"{_DATA}.stats:_StatsManager.update_iteration_metrics": "an actor more per graph",
    f"{_POOL}:ActorPoolMapOperator._start_actor": "restarts depend on the driver's node",
    f"{_POOL}:ActorPoolMapOperator._submit_data_task": ELASTIC,
    f"{_POOL}:ActorPoolMapOperator._try_schedule_tasks_internal": ELASTIC,
    f"{_POOL}:ActorPoolMapOperator.has_execution_finished": ELASTIC,
    f"{_POOL}:_ActorPool._release_running_actor": ELASTIC,
    f"{_POOL}:_ActorPool._try_remove_pending_actor": ELASTIC,
    f"{_POOL}:_ActorPool.on_task_completed": ELASTIC,
    f"{_POOL}:_ActorPool.current_size": ELASTIC,
    f"{_POOL}:_ActorPool.scale": ELASTIC,
}
IN_SOURCE = {
    f"{_POOL}:_ActorPool.__init__": ("self._running_actors", "self._pending_actors"),
    f"{_POOL}:ActorPoolMapOperator.__init__": ("self._bundle_queue", "self._actor_pool"),
    f"{_POOL}:ActorPoolMapOperator._try_schedule_tasks_internal": ("actor_to_return=actor",),
    f"{_DATA}.execution.interfaces.physical_operator:DataOpTask.__init__": (
        "_output_ready_callback",
    ),
    f"{_DATA}.execution.streaming_executor:StreamingExecutor": (
        "self._topology",
        "self._actor_autoscaler",
        "self._metadata_fetcher",
    ),
}


def found(name: str) -> Any:
    module, _, path = name.partition(":")
    node: Any = importlib.import_module(module)
    for part in path.split("."):
        node = getattr(node, part)
    return node


@pytest.mark.parametrize("name", NAMES)
def test_ray_has_the_name(name: str) -> None:
    assert callable(found(name)), f"without it: {NAMES[name]}"


@pytest.mark.parametrize("name", IN_SOURCE)
def test_ray_sets_the_attributes(name: str) -> None:
    source = inspect.getsource(found(name))
    for attribute in IN_SOURCE[name]:
        assert attribute in source, f"without it: {ELASTIC}"


def test_one_file_reaches_into_ray() -> None:
    private = re.compile(r"ray\._private|ray\.data\._internal|ray\.core\.")
    files = [path for path in PACKAGE.rglob("*.py") if private.search(path.read_text("utf-8"))]
    assert [path.name for path in files] == ["ray_internals.py"]


def attributes() -> list[dict[str, Any]]:
    owners = (streaming_executor, actor_pools, _StatsManager, actor_pools.ActorPoolMapOperator)
    return [dict(vars(owner)) for owner in owners]


def fail_within() -> None:
    before = attributes()
    with lean_data(), arguments_as_values():
        assert streaming_executor.create_cluster_autoscaler is FixedCluster
        assert all(one != other for one, other in zip(attributes(), before, strict=True))
        raise ValueError("within")


def test_ray_data_is_as_it_was_afterwards() -> None:
    before = attributes()
    with pytest.raises(ValueError, match="within"):
        fail_within()
    assert attributes() == before


@pytest.mark.nightly
def test_the_executor_reads_metadata_itself() -> None:
    code = (
        "from ace_ray.pipeline.session import prepare; prepare()\n"
        "from ray.data._internal.execution.metadata_fetcher import make_metadata_fetcher\n"
        "print(type(make_metadata_fetcher()).__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "InlineMetadataFetcher"


@pytest.mark.parametrize("references", [{}, {"_data_context_ref": "a reference"}])
def test_values_travel_and_references_stay(references: dict[str, str]) -> None:
    given: list[Any] = []

    def start(operator: Any, *args: Any) -> str:
        given.append((operator._map_transformer_ref, operator._data_context_ref, *args))
        return "started"

    class Operator:
        _map_transformer, data_context = "code", "context"

    operator = Operator()
    vars(operator).update(references)
    owner = actor_pools.ActorPoolMapOperator
    with replaced(owner, _start_actor=start), arguments_as_values():
        assert owner._start_actor(operator, "labels") == "started"
    assert given == [("code", "context", "labels")]
    assert vars(operator) == references


def test_what_a_lost_actor_had_goes_to_others_and_nothing_twice() -> None:
    """One block has not come back, one has, and one is just coming: that one stays its own."""
    coming = {0: False, 1: False, 2: True, 3: False}
    queued: list[Any] = []
    completed: list[str] = []
    pool = TrackedPool.__new__(TrackedPool)
    pool._op = SimpleNamespace(
        _data_tasks={
            number: SimpleNamespace(has_pending_emits=lambda number=number: coming[number])
            for number in coming
        },
        _metrics=SimpleNamespace(
            on_task_finished=lambda *how: None, on_input_queued=lambda inputs, input_index: None
        ),
        _output_queue=SimpleNamespace(finalize=lambda key: None),
        _bundle_queue=SimpleNamespace(add=queued.append),
    )
    pool._pool = SimpleNamespace(on_task_completed=completed.append)
    blocks: list[Any] = ["waits", "came", "comes", "of another"]
    actors = ["lost", "lost", "lost", "other"]
    pool._tasks = {
        number: Task(actor, block, out=2 * (number == 1))
        for number, (actor, block) in enumerate(zip(actors, blocks, strict=True))
    }
    pool.give_away("lost")
    assert queued == ["waits"]
    assert completed == ["lost", "lost"]
    assert set(pool._tasks) == {2, 3}
    coming[2], pool._tasks[2].out = False, 1
    pool.give_away("lost")
    assert queued == ["waits"], "what has come back is not evaluated again"
    assert set(pool._tasks) == {3}
