"""What a sweep has to run on: the cluster it joins, or this machine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from ace_ray.models.memory import total_bytes
from ace_ray.run import connection
from ace_ray.run.planning import cluster
from ace_ray.sweeps.packing import GPU_MEMORY_GIB, Machine


def find_machine(cpus: float, gpu_memory_gib: float | None) -> Machine:
    """The GPUs of the cluster, or of this machine where there is none.

    ``cpus`` is what one lane takes on a cluster without GPUs; ``gpu_memory_gib`` overrides what
    Ray's accelerator types tell. Raises `UserError`: the cluster cannot be joined.
    """
    if connection.running_cluster() == "local":
        gpus, memory = _local_gpus()
        # Not those that this process may use: the Ray of a lane may count more, never above this.
        node = {"CPU": float(os.cpu_count() or 1), "GPU": float(gpus)}
        if gpus:
            return Machine(gpus, gpu_memory_gib or memory, nodes=(node,))
        # One engine takes all cores of a machine.
        return Machine(0, total_bytes() / 2**30, nodes=(node,))
    connection.connect()
    try:
        import ray

        nodes, total = cluster.nodes(), ray.cluster_resources()
    finally:
        ray.shutdown()
    gpus = int(sum(node.get("GPU", 0) for node in nodes))
    if gpus:
        kinds = [name.split(":", 1)[1] for name in total if name.startswith("accelerator_type:")]
        memories = [GPU_MEMORY_GIB[kind] for kind in kinds if kind in GPU_MEMORY_GIB]
        least = min(memories) if memories and len(memories) == len(kinds) else None
        return Machine(gpus, gpu_memory_gib or least, shared=True, nodes=tuple(nodes))
    slots = sum(int(node.get("CPU", 0) // cpus) for node in nodes)
    memory = max(node.get("memory", 0) for node in nodes) / 2**30
    return Machine(0, memory, max(1, slots), shared=True, nodes=tuple(nodes))


def device_names(devices: Sequence[int]) -> str:
    """What ``CUDA_VISIBLE_DEVICES`` is to be for these of the GPUs that this process may see."""
    visible = _visible()
    return ",".join(str(device) if visible is None else visible[device] for device in devices)


def _visible() -> list[str] | None:
    """The GPUs that this process was given; None for all."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return None if named is None else [name.strip() for name in named.split(",") if name.strip()]


def _local_gpus() -> tuple[int, float | None]:
    """How many, and the memory of the smallest in GiB."""
    visible = _visible()
    if visible is not None and visible[:1] in ([], ["-1"]):
        return 0, None
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    if visible is not None:
        command.append(f"--id={','.join(visible)}")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0, None
    sizes = [float(line) for line in done.stdout.split() if line.replace(".", "").isdigit()]
    return len(sizes), min(sizes) / 1024 if sizes else None
