"""Engines that lie on several nodes: what is reserved for each before it starts.

One placement group an engine, of a bundle for each GPU. The engine worker is in the first, beside
the engine core, and holds no GPU: vLLM's Ray executor puts a worker of its own into every bundle,
in the order of nodes, so that tensor parallelism stays on a node where its size divides the node's.
"""

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
from ace_ray.pipeline.health.signals import Interrupts

LOOK_S = 5.0


@contextmanager
def reserved(
    need: Resources, config: RunConfig, interrupts: Interrupts, say: Callable[[str], None]
) -> Iterator[Callable[[], dict[str, Any]] | None]:
    """A placement group for each engine that lies on several nodes, held until the context ends.

    Yields what gives an engine worker its options, one after another; None where engines lie on one
    node. Raises `RunFailed`: the cluster could hold them, and did not within ``start_timeout_s``.
    """
    if not need.spread:
        yield None
        return
    from ray.util import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    groups = [placement_group(bundles(need), strategy="PACK") for _ in range(need.workers)]
    try:
        _wait(groups, need, config.start_timeout_s, interrupts)
        where = ", ".join(_described(group) for group in groups)
        say(f"reserved for each engine: {where}")
        places = cycle(groups)
        yield lambda: {
            "scheduling_strategy": PlacementGroupSchedulingStrategy(
                next(places),
                placement_group_bundle_index=0,
                placement_group_capture_child_tasks=True,
            )
        }
    finally:
        for group in groups:
            with suppress(Exception):  # the cluster may be gone
                remove_placement_group(group)


def bundles(need: Resources) -> list[dict[str, float]]:
    """Of one engine: vLLM takes one GPU of each."""
    each: list[dict[str, float]] = [{"GPU": 1.0} for _ in range(need.worker_gpus)]
    return [{"CPU": need.worker_cpus, "GPU": 1.0}, *each[1:]]


def materialized(ref: ModelRef) -> Path:
    """The model's folder (`sources.materialize`), on every node that this process's engine lies on.

    Raises `UserError`: what any of them does, or they keep it in different places."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    folder, group = materialize(ref), _group()
    others = _nodes(group) - {ray.get_runtime_context().get_node_id()} if group else set()
    on_node = ray.remote(num_cpus=0)(materialize)
    for node in sorted(others):
        there = NodeAffinitySchedulingStrategy(node, soft=False)
        try:
            theirs = ray.get(on_node.options(scheduling_strategy=there).remote(ref))
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, UserError):
                raise error.cause from error
            raise
        if theirs != folder:
            raise UserError(
                f"lies in {folder} on one node of its engine and in {theirs} on another",
                where=ref.source,
                fix="give all nodes the same ACE_RAY_CACHE and HF_HOME",
            )
    return folder


def placed() -> dict[str, str]:
    """Where the engine of this process lies, if it is in a placement group: a fact of engines."""
    group = _group()
    return {"placement": _described(group)} if group else {}


def _group() -> Any:
    """The placement group of this process; None where it is in none."""
    import ray

    return ray.util.get_current_placement_group() if ray.is_initialized() else None


def _wait(groups: list[Any], need: Resources, patience_s: float, interrupts: Interrupts) -> None:
    import ray

    waiting = [group.ready() for group in groups]
    waited = 0.0
    while waiting and not interrupts.asked:
        _, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=LOOK_S)
        waited += LOOK_S
        if waiting and waited >= patience_s:
            raise RunFailed(
                f"{len(waiting)} of {len(groups)} engines have not got their {need.worker_gpus} "
                f"GPUs within start_timeout_s = {patience_s:g}: others hold them, or nodes went",
                resumable=True,
            )


def _described(group: Any) -> str:
    return f"{len(group.bundle_specs)} GPUs on {len(_nodes(group))} node(s)"


def _nodes(group: Any) -> set[str]:
    """The ids of those that ``group`` lies on."""
    from ray.util import placement_group_table

    return set(placement_group_table(group)["bundles_to_node_id"].values())
