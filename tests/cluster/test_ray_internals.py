"""Private names of Ray that the package uses."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

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


@pytest.mark.parametrize("name", NAMES)
def test_ray_has_each_private_name(name: str) -> None:
    module, _, path = name.partition(":")
    node: Any = importlib.import_module(module)
    for part in path.split("."):
        node = getattr(node, part)
    assert callable(node), f"without it: {NAMES[name]}"
