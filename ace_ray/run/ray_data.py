"""What Ray Data starts beside a graph, and a Ray of this run's own does without.

Each is a process that imports Ray Data, 1.5 s of CPU, while the engine starts, and hears of the
graph ever after: one gathers numbers for a dashboard that is not there, one shares a cluster among
datasets, of which there is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import ray
from ray.data._internal.cluster_autoscaler import create_cluster_autoscaler
from ray.data._internal.cluster_autoscaler.base_cluster_autoscaler import ClusterAutoscaler
from ray.data._internal.execution import streaming_executor
from ray.data._internal.execution.interfaces.execution_options import ExecutionResources
from ray.data._internal.stats import _StatsManager

_STATS = (
    "gen_dataset_id_from_stats_actor",
    "register_dataset_to_stats_actor",
    "update_execution_metrics",
    "update_iteration_metrics",
)
"""Of `_StatsManager`: all through which a graph reaches the actor."""
_ORIGINAL = {name: _StatsManager.__dict__[name] for name in _STATS}


class FixedCluster(ClusterAutoscaler):  # type: ignore[misc]  # Ray ships no types of it
    """Of a cluster that does not grow, and has one dataset."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._all = ExecutionResources.from_resource_dict(ray.cluster_resources())

    def try_trigger_scaling(self) -> None:
        pass

    def on_executor_shutdown(self) -> None:
        pass

    def get_total_resources(self) -> ExecutionResources:
        return self._all


@contextmanager
def without_helpers() -> Iterator[None]:
    """Graphs in this context have none of Ray Data's own actors beside them."""
    streaming_executor.create_cluster_autoscaler = FixedCluster
    for name in _STATS:
        setattr(_StatsManager, name, staticmethod(lambda *_, **__: None))
    _StatsManager.gen_dataset_id_from_stats_actor = staticmethod(lambda: uuid4().hex)
    try:
        yield
    finally:  # the process may have other graphs, of whoever called this package
        streaming_executor.create_cluster_autoscaler = create_cluster_autoscaler
        for name, original in _ORIGINAL.items():
            setattr(_StatsManager, name, original)
