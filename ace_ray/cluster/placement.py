"""Placement groups of engines that run on several nodes.

Each engine has one group, with a bundle for each GPU. The engine worker and the engine core run in
the first bundle; the engine worker takes no GPU. vLLM's Ray executor puts one of its workers into
every bundle, node by node. So a tensor-parallel group stays on one node if its size divides the
number of GPUs of a node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import cycle
from pathlib import Path
from typing import Any

from ace_ray.cluster.resources import Resources
from ace_ray.config.schema import RunConfig
from ace_ray.errors import RunFailed, UserError
from ace_ray.models.sources import ModelRef, materialize
from ace_ray.util import log

LOOK_S = 5.0


@contextmanager
def reserve(
    need: Resources, config: RunConfig, stopping: Callable[[], bool]
) -> Iterator[Callable[[], dict[str, Any]] | None]:
    """Reserve a placement group for each engine until the context ends, if engines span nodes.

    Yield a function that returns the Ray options of the next engine worker; None if each engine
    runs on one node. ``stopping``: returns whether the run must end. Raises `RunFailed` if the GPUs
    are not free within ``start_timeout_s``."""
    if not need.spread:
        yield None
        return
    from ray.util import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    groups = [placement_group(bundles(need), strategy="PACK") for _ in range(need.workers)]
    try:
        _wait(groups, need, config.start_timeout_s, stopping)
        log.info(f"reserved for each engine: {', '.join(map(_describe, groups))}")
        group_cycle = cycle(groups)
        yield lambda: {
            "scheduling_strategy": PlacementGroupSchedulingStrategy(
                next(group_cycle),
                placement_group_bundle_index=0,
                placement_group_capture_child_tasks=True,
            )
        }
    finally:
        for group in groups:
            with suppress(Exception):  # the cluster may be gone
                remove_placement_group(group)


def bundles(need: Resources) -> list[dict[str, float]]:
    """Return the bundles of one engine. vLLM takes one GPU of each bundle."""
    gpu_bundles = [{"GPU": 1.0} for _ in range(need.worker_gpus - 1)]
    return [{"CPU": need.worker_cpus, "GPU": 1.0}, *gpu_bundles]


def fetch_on_nodes(ref: ModelRef) -> Path:
    """Fetch the model on every node of this process's engine, and return the model's folder.

    Raises `UserError` if a node cannot fetch the model, or the folder differs between nodes."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    folder, group = materialize(ref), _group()
    node_ids = _nodes(group) - {ray.get_runtime_context().get_node_id()} if group else set()
    on_node = ray.remote(num_cpus=0)(materialize)
    for node in sorted(node_ids):
        strategy = NodeAffinitySchedulingStrategy(node, soft=False)
        try:
            theirs = ray.get(on_node.options(scheduling_strategy=strategy).remote(ref))
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, UserError):
                raise error.cause from error
            raise
        if theirs != folder:
            raise UserError(
                f"the model is in {folder} on one node of an engine and in {theirs} on another",
                where=ref.source,
                fix="give all nodes the same ACE_RAY_CACHE and HF_HOME",
            )
    return folder


def place_facts() -> dict[str, str]:
    """Return ``{"placement": text}`` for this process's engine; {} if it has no placement group."""
    group = _group()
    return {"placement": _describe(group)} if group else {}


def _group() -> Any:
    """Return the placement group of this process, or None."""
    import ray

    return ray.util.get_current_placement_group() if ray.is_initialized() else None


def _wait(
    groups: list[Any], need: Resources, patience_s: float, stopping: Callable[[], bool]
) -> None:
    import ray

    waiting = [group.ready() for group in groups]
    waited = 0.0
    while waiting and not stopping():
        _, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=LOOK_S)
        waited += LOOK_S
        if waiting and waited >= patience_s:
            raise RunFailed(
                f"{len(waiting)} of {len(groups)} engines did not get their {need.worker_gpus} "
                f"GPUs within {patience_s:g} s (start_timeout_s): "
                "other jobs use them, or nodes have left",
                resumable=True,
            )


def _describe(group: Any) -> str:
    return f"{len(group.bundle_specs)} GPUs on {len(_nodes(group))} node(s)"


def _nodes(group: Any) -> set[str]:
    """Return the ids of the nodes of ``group``."""
    from ray.util import placement_group_table

    return set(placement_group_table(group)["bundles_to_node_id"].values())
