"""Fit a pass to the nodes of the cluster: resources of its actors, arguments of its engines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from ace_ray.cluster import resources
from ace_ray.cluster.resources import Nodes, Resources
from ace_ray.config.schema import ENDPOINT, RunConfig
from ace_ray.models import adapters
from ace_ray.models.engine_args import cluster_engine_args
from ace_ray.models.sources import ModelRef
from ace_ray.pipeline.planning.plan import PlannedRows
from ace_ray.pipeline.roles import RoleBindings, demand
from ace_ray.util import log


class ClusterFit(NamedTuple):
    """What a pass needs on the present nodes."""

    bindings: RoleBindings
    """Roles that take part; none if no row is interactive."""
    on_gpu: bool
    """Whether engines run on GPUs."""
    need: Resources
    refit: Callable[[Nodes], Resources]
    """Returns the resources on other nodes."""


def fit_cluster(
    config: RunConfig, bindings: RoleBindings, rows: Sequence[PlannedRows]
) -> ClusterFit:
    """Fit a pass over the ``rows`` of each run. Raises `UserError` if it does not fit the nodes."""
    interactive = any(of_run.interactive.any() for of_run in rows)
    bindings = bindings if interactive else {}
    nodes = resources.nodes()
    has_gpus = any(node.get("GPU", 0) for node in nodes)
    if slow := resources.slow_dtype(config, has_gpus):
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
    return ClusterFit(bindings, on_gpu, need, refit)


def engine_args(
    config: RunConfig, models: Sequence[ModelRef], fitted: ClusterFit
) -> dict[str, Any]:
    """Return the engine arguments for the candidates ``models``, adapted to the cluster."""
    if config.backend in ("fake", ENDPOINT):
        return dict(config.engine)
    samplings = [config.sampling.sampling()] + [
        binding.sampling
        for bound in fitted.bindings.values()
        for binding in bound.values()
        if binding.role == "same"
    ]
    seeded = any(sampling.temperature > 0 for sampling in samplings)
    engine = adapters.engine_args(models, config.engine)
    return cluster_engine_args(
        engine, on_gpu=fitted.on_gpu, seeded=seeded, spread=fitted.need.spread
    )
