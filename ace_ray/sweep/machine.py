"""Find the resources of a sweep: the cluster that it joins, or this machine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from ace_ray.cluster import connection
from ace_ray.cluster import resources as cluster
from ace_ray.sweep.packing import Machine


def find_machine(cpus: float) -> Machine:
    """Return the GPUs of the cluster, or of this machine without a cluster.

    ``cpus``: CPUs of one lane on a cluster without GPUs. Raises `UserError`: the cluster cannot be
    joined.
    """
    if connection.running_cluster() == "local":
        gpus = _local_gpus()
        # Not those that this process may use: the Ray of a lane may count more, never above this.
        node = {"CPU": float(os.cpu_count() or 1), "GPU": float(gpus)}
        return Machine(gpus, nodes=(node,))  # without GPUs one engine takes all cores
    connection.connect()
    try:
        import ray

        nodes = cluster.nodes()
    finally:
        ray.shutdown()
    if gpus := int(sum(node.get("GPU", 0) for node in nodes)):
        return Machine(gpus, shared=True, nodes=tuple(nodes))
    slots = sum(int(node.get("CPU", 0) // cpus) for node in nodes)
    return Machine(0, max(1, slots), shared=True, nodes=tuple(nodes))


def device_names(devices: Sequence[int]) -> str:
    """Return the value of ``CUDA_VISIBLE_DEVICES`` for these GPUs, as positions among the visible
    ones."""
    visible = _visible()
    return ",".join(str(device) if visible is None else visible[device] for device in devices)


def _visible() -> list[str] | None:
    """Return the GPUs assigned to this process; None for all."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return None if named is None else [name.strip() for name in named.split(",") if name.strip()]


def _local_gpus() -> int:
    """Count the GPUs visible to this process."""
    visible = _visible()
    if visible is not None:
        return 0 if visible[:1] == ["-1"] else len(visible)
    command = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return sum(line.strip().isdigit() for line in done.stdout.splitlines())
