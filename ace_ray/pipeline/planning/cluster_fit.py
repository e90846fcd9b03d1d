"""Fit a pass to the nodes of the cluster: resources of its actors, arguments of its engines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from ace_ray.cluster import resources
from ace_ray.cluster.resources import Nodes, Resources
from ace_ray.config.schema import ENDPOINT
from ace_ray.models import adapters
from ace_ray.models.engine_args import cluster_engine_args
from ace_ray.pipeline.planning.plan import Plan, PlannedRows
from ace_ray.pipeline.roles import RoleBindings, demand
from ace_ray.util import log


class ClusterFit(NamedTuple):
    """Resources and engine arguments of a pass on the present nodes."""

    bindings: RoleBindings
    """Roles that take part; none if no row is interactive."""
    on_gpu: bool
    """Whether engines run on GPUs."""
    need: Resources
    engine: dict[str, Any]
    """Engine arguments of the candidates, adapted to the cluster."""
    refit: Callable[[Nodes], Resources]
    """Returns the resources on other nodes."""


def fit_cluster(plans: Sequence[Plan], rows: Sequence[PlannedRows]) -> ClusterFit:
    """Return the `ClusterFit` of a pass over ``rows``, the pending rows of each run that has some.
    ``plans``: of all runs, which differ only in weights. Raises `UserError` if no node fits."""
    config = plans[0].config
    interactive = any(of_run.interactive.any() for of_run in rows)
    bindings = plans[0].bindings if interactive else {}
    nodes = resources.nodes()
    has_gpus = any(node.get("GPU", 0) for node in nodes)
    if slow := resources.dtype_warning(config, has_gpus):
        log.warning(slow)
    # With an endpoint the candidate takes no GPU, but the engines of roles may.
    on_gpu = has_gpus and (resources.takes_gpus(config) or config.backend == ENDPOINT)
    refit = partial(
        resources.fit,
        config,
        max(map(len, rows)),
        interactive=interactive,
        servers=demand(bindings, on_gpu=on_gpu),
    )
    need = refit(nodes)
    resources.note_if_busy(need)
    log.debug(f"resources: {need}")
    engine = dict(config.engine)
    if config.backend not in ("fake", ENDPOINT):
        temperatures = [config.sampling.sampling().temperature] + [
            binding.sampling.temperature
            for bound in bindings.values()
            for binding in bound.values()
            if binding.role == "same"
        ]
        engine = cluster_engine_args(
            adapters.engine_args([plan.model for plan in plans], config.engine),
            on_gpu=on_gpu,
            seeded=max(temperatures) > 0,
            spread=need.spread,
        )
    log.debug(f"engine arguments: {engine}")
    return ClusterFit(bindings, on_gpu, need, engine, refit)
