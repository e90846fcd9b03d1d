"""Private names of Ray that the package uses."""

import importlib
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from ace_ray.cluster.ray_internals import worker_log

_DATA = "ray.data._internal"
_EXECUTION = f"{_DATA}.execution"
_OPERATOR = f"{_EXECUTION}.operators.actor_pool_map_operator"
ELASTIC = "workers: {min, max} does not follow the nodes"
NAMES = {
    "ray._private.parameter:RayParams": "a local Ray starts an autoscaler and a log monitor",
    "ray._private.node:Node.start_api_server": "a local Ray starts a dashboard, 2 s and more",
    "ray._private.node:Node.get_logs_dir_path": "logs of engines that crashed are not stored",
    "ray.data:Dataset.map_batches_internal": "engine workers on GPUs cannot take blocks",
    f"{_EXECUTION}.execution_callback:ExecutionCallback.on_execution_step": "nothing pauses",
    f"{_EXECUTION}.streaming_executor:create_cluster_autoscaler": "an actor more per graph",
    f"{_EXECUTION}.node_trackers.actor_location:ActorLocationTracker": "an actor more per graph",
    f"{_DATA}.stats:get_or_create_stats_actor": "an actor more per graph",
    f"{_OPERATOR}:ActorPoolMapOperator._start_actor": "each run prints an error of Ray",
    f"{_OPERATOR}:ActorPoolMapOperator._submit_data_task": ELASTIC,
    f"{_OPERATOR}:_ActorPool._release_running_actor": ELASTIC,
    f"{_OPERATOR}:_ActorPool.scale": ELASTIC,
}


@pytest.mark.parametrize("name", NAMES)
def test_ray_has_each_private_name(name: str) -> None:
    module, _, path = name.partition(":")
    node: Any = importlib.import_module(module)
    for part in path.split("."):
        node = getattr(node, part)
    assert callable(node), f"without it: {NAMES[name]}"


def test_the_log_of_a_worker_ends_with_its_last_200_lines(tmp_path, monkeypatch) -> None:
    node = SimpleNamespace(get_logs_dir_path=lambda: str(tmp_path))
    monkeypatch.setattr(ray._private.worker, "_global_node", node)
    assert worker_log(7) == ()
    long, short = (tmp_path / f"worker-ab-01-7.{stream}" for stream in ("out", "err"))
    long.write_text("".join(f"line {number}\n" for number in range(90_000)))
    (tmp_path / "worker-ab-01-17.err").write_text("of another worker\n")
    short.write_text("the error\n" + "x" * 5_000)
    lines = worker_log(7)
    assert (len(lines), lines[0], lines[-2]) == (200, "line 89802", "the error")
    assert len(lines[-1]) == 1_000
