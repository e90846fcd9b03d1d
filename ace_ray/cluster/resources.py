"""Compute the resources of a run, and check that the nodes have them before anything starts."""

from __future__ import annotations

import math
import os
import re
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from ace_ray.config.schema import ENDPOINT, RunConfig
from ace_ray.errors import UserError
from ace_ray.util import log

CHECKER_CPUS = 0.25
WRITER_CPUS = 0.25
SANDBOX_CPUS = 0.1
# Logical CPUs of an engine of a role.
ROLE_ENGINE_CPUS = 1.0
# A check takes about 0.4 ms, and an engine answers about 40 rows a second, so one checker could
# follow many more engines. The import of a checker costs about 4 s of CPU time.
WORKERS_PER_CHECKER = 4
# CPUs of a worker that uses an endpoint. The values of all actors besides the engine are small, so
# that a run fits a cluster of two CPUs.
CLIENT_CPUS = 0.25
# Tolerance in comparisons of sums of CPUs.
_ROUNDING = 1e-9

# Timeout for new nodes: a machine must start and pull an image of many gigabytes.
GROW_S = 900.0
GROW_POLL_S = 5.0

# The resources of each node, by Ray's names ("CPU", "GPU").
Nodes = Sequence[Mapping[str, float]]
# (CPUs, GPUs) that an actor or a server takes on one node.
Part = tuple[float, int]


class TooSmall(UserError):
    """Raised if the nodes do not have the resources that the run needs."""


@dataclass(frozen=True)
class Resources:
    """Resources that the run needs. CPUs and GPUs are the logical CPUs and GPUs of Ray."""

    workers: int
    """Number of workers at the start."""
    worker_cpus: float
    worker_gpus: int
    checkers: int
    sandboxes: int = 0
    server_cpus: float = 0.0
    server_gpus: int = 0
    spread: bool = False
    """Whether each engine runs on several nodes, in a placement group (`placement`)."""
    endpoint: bool = False
    """Whether the candidate is an endpoint, so that workers have no engine."""
    fewest: int = 0
    """Minimum number of workers of an elastic run; 0 if the number of workers is fixed."""
    limit: int = 0
    """Maximum number of workers of an elastic run; 0 if the number of workers is fixed."""

    @property
    def is_elastic(self) -> bool:
        """Return whether the number of workers follows the number of nodes."""
        return self.limit > 0

    @property
    def most_workers(self) -> int:
        """Maximum number of workers at the same time."""
        return self.limit or self.workers

    @property
    def cpus(self) -> float:
        small = self.checkers * CHECKER_CPUS + WRITER_CPUS + self.sandboxes * SANDBOX_CPUS
        return self.workers * self.worker_cpus + small + self.server_cpus

    @property
    def gpus(self) -> int:
        return self.workers * self.worker_gpus + self.server_gpus


def gpus_per_worker(engine: Mapping[str, Any]) -> int:
    """Return the number of GPUs of one engine: tensor times pipeline parallel size."""
    return int(engine.get("tensor_parallel_size", 1)) * int(engine.get("pipeline_parallel_size", 1))


def worker_cpus(config: RunConfig) -> float:
    """Return the logical CPUs of one engine worker."""
    return CLIENT_CPUS if config.backend == ENDPOINT else config.worker_cpus


def takes_gpus(config: RunConfig) -> bool:
    """Return whether the engines use GPUs on a cluster with GPUs. A fake engine uses GPUs only with
    a tensor or pipeline parallel size above 1."""
    fake = config.backend == "fake" and gpus_per_worker(config.engine) > 1
    return config.backend == "vllm" or fake


def max_node_gpus(cluster: Nodes) -> int:
    """Return the number of GPUs of the node with the most GPUs."""
    return int(max((node.get("GPU", 0) for node in cluster), default=0))


def nodes() -> list[dict[str, float]]:
    """Return the resources of every live node of the cluster."""
    import ray

    return [dict(node["Resources"]) for node in ray.nodes() if node["Alive"]]


def grow(gpus: Sequence[int], patience_s: float) -> None:
    """Request nodes from the autoscaler, and wait until the cluster has as many GPUs. ``gpus``:
    number of GPUs for each node.

    The wait takes at most ``patience_s`` or `GROW_S`, the shorter of both. Without a request, the
    autoscaler adds nodes only for waiting actors, but `fit` refuses a large run before that."""
    from ray.autoscaler.sdk import request_resources

    def gpu_count() -> int:
        return int(sum(node.get("GPU", 0) for node in nodes()))

    if (present := gpu_count()) >= sum(gpus):
        return
    log.info(f"waiting for GPUs: {present} of {sum(gpus)} present")
    until = time.monotonic() + min(patience_s, GROW_S)
    try:
        while gpu_count() < sum(gpus) and time.monotonic() < until:
            # Repeat the request, since the cluster keeps only the latest request of all drivers.
            request_resources(bundles=[{"GPU": count} for count in gpus])
            time.sleep(GROW_POLL_S)
    finally:
        # Withdraw the request, which would otherwise outlive this driver and keep the nodes.
        request_resources(bundles=[])


def fit(
    config: RunConfig,
    rows: int,
    cluster: Nodes,
    *,
    interactive: bool = False,
    servers: Sequence[Part] = (),
) -> Resources:
    """Compute the resources of a run with ``rows`` rows on the nodes of ``cluster``.

    The config's ``workers`` is a number, ``auto`` or a range. For ``auto``, the run gets as many
    workers as the nodes have room for, besides the run's other actors, but at most one per row.
    For a range, the number of workers is computed in the same way, but is within the range.

    Args:
        interactive: whether the run has episodes with sandboxes.
        servers: (CPUs, GPUs) of each server of a role's model. A server runs on one node.

    Raises `TooSmall` if the run does not fit the nodes, since Ray Data would wait for ever."""
    gpus = int(sum(node.get("GPU", 0) for node in cluster))
    on_gpu = takes_gpus(config) and gpus > 0
    # An engine runs on several nodes if it uses the Ray executor, or if no node has enough GPUs.
    executor = config.engine.get("distributed_executor_backend")
    too_large = gpus_per_worker(config.engine) > max(1, max_node_gpus(cluster))
    spread = on_gpu and (executor == "ray" or (executor is None and too_large))
    _check_nodes(config, gpus, cluster, servers, spread=spread)
    limits = config.worker_range
    unit = Resources(
        1,
        worker_cpus(config),
        gpus_per_worker(config.engine) if on_gpu else 0,
        1,
        sandboxes=int(interactive),
        server_cpus=sum(cpus for cpus, _ in servers),
        server_gpus=sum(gpus for _, gpus in servers),
        spread=spread,
        endpoint=config.backend == ENDPOINT,
        fewest=min(limits.min, rows) if limits else 0,
        limit=min(limits.max, rows) if limits else 0,
    )
    if limits:
        workers = max(unit.fewest, _most_workers(unit, unit.limit, servers, cluster))
    elif isinstance(config.workers, int):
        workers = config.workers
    else:
        by_gpu = (gpus - unit.server_gpus) // unit.worker_gpus if unit.worker_gpus else 1
        workers = max(1, _most_workers(unit, min(by_gpu, rows), servers, cluster))
    need = _scale(unit, workers)
    if not _holds(need, servers, cluster):
        fits = _most_workers(unit, workers - 1, servers, cluster)
        raise _too_small(need, cluster, fits, "workers.min" if limits else "workers")
    # Fewer checkers if the CPUs do not suffice.
    counts = range(math.ceil(workers / WORKERS_PER_CHECKER), 0, -1)
    needs = (replace(need, checkers=count) for count in counts)
    return next(need for need in needs if _holds(need, servers, cluster))


def _scale(unit: Resources, workers: int) -> Resources:
    """Return the resources of a run with ``workers`` workers; ``unit``: with one worker."""
    return replace(unit, workers=workers, sandboxes=unit.sandboxes * workers)


def _most_workers(unit: Resources, limit: int, servers: Sequence[Part], cluster: Nodes) -> int:
    """Return the maximum number of workers that fit the nodes, at most ``limit``."""
    # Binary search, since each check packs the whole cluster.
    counts = range(1, max(0, limit) + 1)
    return bisect_left(counts, 1, key=lambda n: not _holds(_scale(unit, n), servers, cluster))


def _holds(need: Resources, servers: Sequence[Part], cluster: Nodes) -> bool:
    """Return whether the nodes have room for all actors and servers of a run, which Ray places
    separately. Place the largest first, each on the node where the least remains free.

    Compare sizes by GPUs in a first attempt and by CPUs in a second. The result is exact if there
    are enough CPUs and each number of GPUs divides the larger numbers (1, 2, 4, 8)."""
    cpus = sum(node.get("CPU", 0.0) for node in cluster)
    if need.cpus > cpus + _ROUNDING or need.gpus > sum(node.get("GPU", 0) for node in cluster):
        return False
    engine: list[Part] = [(need.worker_cpus, need.worker_gpus)]
    if need.spread:  # a part for each GPU; the first includes the worker (`placement.bundles`)
        engine = [(need.worker_cpus, 1), *[(0.0, 1)] * (need.worker_gpus - 1)]
    small: list[Part] = [(CHECKER_CPUS, 0)] * need.checkers + [(WRITER_CPUS, 0)]
    parts = [*servers, *engine * need.workers, *small, *[(SANDBOX_CPUS, 0)] * need.sandboxes]
    return any(_can_place(parts, cluster, by_gpus=by_gpus) for by_gpus in (True, False))


def _check_nodes(
    config: RunConfig, gpus: int, cluster: Nodes, servers: Sequence[Part], *, spread: bool
) -> None:
    """Raise `TooSmall` if the installed vLLM or a served model does not fit the nodes, and
    `UserError` for a range of workers whose engines run on several nodes."""
    if config.worker_range and spread:
        problem = "'workers' is a range, which is not supported with an engine on several nodes"
        raise UserError(problem, where="workers", fix="write a number, or auto")
    if config.backend == "vllm" and not gpus and any(metadata.distributions(name="vllm")):
        problem = "the cluster has no GPU, but the installed vLLM is the GPU build"
        fix = "join a cluster with GPUs, or install ace_ray with the CPU build of vLLM (README)"
        raise TooSmall(problem, where="this cluster", fix=fix)
    for server in servers:
        if not any(places_on(node, *server) for node in cluster):
            problem = (
                f"a served model takes {server[0]:g} CPU(s) and {server[1]} GPU(s) on one node, "
                f"but the largest node has {max_node_gpus(cluster)} GPU(s)"
            )
            fix = "lower the role's engine.tensor_parallel_size, or join larger nodes"
            raise TooSmall(problem, where="the roles of benchmarks", fix=fix)


def _too_small(need: Resources, cluster: Nodes, fits: int, key: str) -> TooSmall:
    """Return the error for ``need``, which does not fit the nodes. ``fits``: number of workers that
    would fit. ``key``: the config key with the number of workers."""
    gpus = f" and {need.worker_gpus} GPU(s)" if need.worker_gpus else ""
    server_gpus = f" and {need.server_gpus} GPU(s)" if need.server_gpus else ""
    total = {name: sum(node.get(name, 0) for node in cluster) for name in ("CPU", "GPU")}
    node_limit = f", at most {max_node_gpus(cluster)} on a node" if need.worker_gpus else ""
    return TooSmall(
        f"{need.workers} worker(s) of {need.worker_cpus:g} CPU(s){gpus} each"
        f"{'' if need.spread else ' on one node'}, and "
        f"{need.cpus - need.workers * need.worker_cpus:g} CPUs{server_gpus} for other actors, do "
        f"not fit {len(cluster)} node(s) with {total['CPU']:g} CPUs and {int(total['GPU'])} GPUs "
        f"in all{node_limit}",
        where="workers",
        fix=f"set {key} to {fits} or less"
        if fits
        else "lower worker_cpus or engine.tensor_parallel_size, or join a larger cluster",
    )


def count_fits(need: Resources, fit: Callable[[Nodes], Resources], cluster: Nodes) -> int:
    """Return the number of workers that ``fit`` computes for ``cluster``; 0 if the run does not
    fit, or if a worker would have another number of GPUs than in ``need``."""
    try:
        resources = fit(cluster)
    except UserError:
        return 0
    return resources.workers if resources.worker_gpus == need.worker_gpus else 0


def _can_place(parts: Sequence[Part], cluster: Nodes, *, by_gpus: bool) -> bool:
    """Return whether all ``parts`` fit the nodes. Sizes are compared ``by_gpus`` or by CPUs."""
    step = -1 if by_gpus else 1
    free = [(node.get("CPU", 0.0), node.get("GPU", 0.0))[::step] for node in cluster]
    for part in sorted((part[::step] for part in parts), reverse=True):
        rests = [(node[0] - part[0], node[1] - part[1]) for node in free]
        fitting = [(rest, n) for n, rest in enumerate(rests) if min(rest) >= -_ROUNDING]
        if not fitting:
            return False
        rest, number = min(fitting)
        free[number] = rest
    return True


def places_on(node: Mapping[str, float], cpus: float, gpus: int) -> int:
    """Return how many actors with ``cpus`` and ``gpus`` fit the free resources of ``node``."""
    by_cpu = math.floor(node.get("CPU", 0.0) / cpus + 1e-9)
    return min(by_cpu, math.floor(node.get("GPU", 0) / gpus)) if gpus else by_cpu


def note_if_busy(need: Resources) -> None:
    """Print a line if other jobs use resources for which this run must wait."""
    import ray

    free = ray.available_resources()
    cpus, gpus = free.get("CPU", 0.0), free.get("GPU", 0.0)
    if cpus < need.cpus or gpus < need.gpus:
        log.info(
            f"waiting for resources in use by others: {cpus:g} CPUs and {gpus:g} GPUs are free, "
            f"the run needs {need.cpus:g} and {need.gpus}"
        )


def dtype_warning(config: RunConfig, gpus: float) -> str:
    """Return a warning if engines compute on this machine's CPU in a slow dtype, or "". ``gpus`` is
    the number of GPUs of the cluster."""
    dtype, info = config.engine.get("dtype", "auto"), Path("/proc/cpuinfo")
    # On other systems than Linux on x86 there are no flags.
    line = re.search(r"^flags\s*:(.*)", info.read_text(), re.M) if info.exists() else None
    flags = line[1].split() if line else []
    is_local = os.environ.get("RAY_ADDRESS", "local") == "local"
    is_slow = "avx2" in flags and "avx512f" not in flags and dtype not in ("float32", "float")
    if config.backend != "vllm" or not is_local or gpus or not is_slow:
        return ""
    # With torch 2.13 on such a CPU, matrix products ran at 0.43 (bfloat16) and 11.5 GFLOPS.
    return (
        f"engine.dtype {dtype}: this CPU has no AVX-512 and computes bfloat16 about 25 times more "
        "slowly than float32; set engine.dtype=float32"
    )
