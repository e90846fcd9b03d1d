"""What graphs of a run do otherwise than Ray Data's own. All of it is put back after them, for the
process may have other graphs, of whoever called this package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import ray
from ray.actor import ActorHandle
from ray.data import Dataset
from ray.data._internal.cluster_autoscaler.base_cluster_autoscaler import ClusterAutoscaler
from ray.data._internal.execution import streaming_executor
from ray.data._internal.execution.interfaces.execution_options import ExecutionResources
from ray.data._internal.execution.operators import actor_pool_map_operator as actor_pools
from ray.data._internal.stats import _StatsManager


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


class Unheard:
    """A method of an actor's handle that nobody answers."""

    def remote(self, *_: Any) -> None:
        pass


class NoTracker:
    """In place of the actor that is told where the actors of pools are."""

    update_actor_location = Unheard()


@contextmanager
def replaced(owner: Any, **attributes: Any) -> Iterator[None]:
    """The attributes of a class or module are others in this context."""
    before = {name: vars(owner)[name] for name in attributes}
    for name, value in attributes.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


@contextmanager
def without_helpers() -> Iterator[None]:
    """Graphs in this context have none of Ray Data's own actors beside them.

    Each is a process that imports Ray Data, 1.5 s of CPU, while the engine starts, and hears of the
    graph ever after: one gathers numbers for a dashboard that a Ray of the run's own does not have,
    one shares a cluster among datasets, of which there is one, one is asked each second where
    actors are. Without that one they are taken to be where they first were.
    """
    unheard = staticmethod(lambda *_, **__: None)
    with (
        replaced(streaming_executor, create_cluster_autoscaler=FixedCluster),
        replaced(
            actor_pools,
            get_or_create_actor_location_tracker=NoTracker,
            get_actor_locations=lambda actors: {},
        ),
        # All through which a graph reaches the actor that gathers numbers.
        replaced(
            _StatsManager,
            gen_dataset_id_from_stats_actor=staticmethod(lambda: uuid4().hex),
            register_dataset_to_stats_actor=unheard,
            update_execution_metrics=unheard,
            update_iteration_metrics=unheard,
        ),
    ):
        yield


_AS_VALUES = {"_map_transformer_ref": "_map_transformer", "_data_context_ref": "data_context"}
"""Of an operator: what an actor is given by reference, and where its value is."""


@contextmanager
def actors_hold_their_arguments() -> Iterator[None]:
    """Actors of graphs in this context can be started again when the node that made them is gone.

    Ray Data hands them their code by a reference to this node's object store, of which Ray warns at
    every start. As values they travel with the actor's description, which the GCS keeps. Handles
    of other actors among them have to be `unheld`.
    """
    start: Callable[..., Any] = actor_pools.ActorPoolMapOperator._start_actor

    def start_with_values(operator: Any, *args: Any, **kwargs: Any) -> Any:
        # Cached properties, which tasks of the operator go on to use as references.
        attributes = vars(operator)
        references = {name: attributes[name] for name in _AS_VALUES if name in attributes}
        for name, value in _AS_VALUES.items():
            attributes[name] = getattr(operator, value)
        try:
            return start(operator, *args, **kwargs)
        finally:
            for name in _AS_VALUES:
                del attributes[name]
            attributes.update(references)

    tracker = actor_pools.get_or_create_actor_location_tracker
    with (
        replaced(actor_pools.ActorPoolMapOperator, _start_actor=start_with_values),
        # Detached: no handle keeps it.
        replaced(actor_pools, get_or_create_actor_location_tracker=lambda: unheld(tracker())),
    ):
        yield


def map_blocks(dataset: Dataset, worker: type, **options: Any) -> Dataset:
    """``map_batches`` whose batches are the blocks, Arrow tables, also of workers that hold GPUs.

    The public method refuses that for these: it takes a batch for what a GPU computes at once, and
    to be given a number of rows would make it wait for as many. vLLM makes its own batches.
    """
    return dataset.map_batches_internal(worker, batch_size=None, batch_format="pyarrow", **options)


def unheld(actor: Any) -> Any:
    """A handle of the same actor that does not keep it: the driver does. As an argument it is a
    value, where Ray makes a reference of one that does."""
    if not isinstance(actor, ActorHandle):
        return actor
    state, _, _ = actor._serialization_helper()
    return ActorHandle._deserialization_helper(state, True)
