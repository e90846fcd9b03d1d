"""What a sweep runs on, and which runs share an engine. The longest lane comes first."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ace_ray.cluster import connection, resources
from ace_ray.cluster.resources import Resources, TooSmall, fit, largest
from ace_ray.config.schema import RunConfig
from ace_ray.errors import UserError
from ace_ray.sweep.runs import SweepRun

START_S = 90.0
SWAP_S = 5.0
GPU_FLOPS, CPU_FLOPS = 1e14, 2e11
"""What one GPU, or the cores of one CPU engine, sustain in batched generation: for estimates."""


GUESS = 1_000_000_000
"""Parameters of a model of which nothing is known; `--plan` says where."""


@dataclass(frozen=True)
class Machine:
    """What a sweep may use. ``gpus`` 0: engines run on CPUs, ``slots`` at a time."""

    gpus: int
    slots: int = 1
    shared: bool = False
    """Whether Ray assigns the GPUs: a cluster's, not this machine's."""
    nodes: tuple[Mapping[str, float], ...] = field(default=(), compare=False)
    """Of a cluster, as they were counted: later there may be fewer for a while. Else this machine,
    none where nothing is held against it."""


def find_machine(cpus: float) -> Machine:
    """The GPUs of the cluster, or of this machine where there is none.

    ``cpus`` is what one lane takes on a cluster without GPUs. Raises `UserError`: the cluster
    cannot be joined.
    """
    if connection.running_cluster() == "local":
        gpus = _local_gpus()
        # Not those that this process may use: the Ray of a lane may count more, never above this.
        node = {"CPU": float(os.cpu_count() or 1), "GPU": float(gpus)}
        return Machine(gpus, nodes=(node,))  # without GPUs one engine takes all cores
    connection.connect()
    try:
        import ray

        nodes = resources.nodes()
    finally:
        ray.shutdown()
    if gpus := int(sum(node.get("GPU", 0) for node in nodes)):
        return Machine(gpus, shared=True, nodes=tuple(nodes))
    slots = sum(int(node.get("CPU", 0) // cpus) for node in nodes)
    return Machine(0, max(1, slots), shared=True, nodes=tuple(nodes))


def device_names(devices: Sequence[int]) -> str:
    """What ``CUDA_VISIBLE_DEVICES`` is to be for these of the GPUs that this process may see."""
    visible = _visible()
    return ",".join(str(device) if visible is None else visible[device] for device in devices)


def _visible() -> list[str] | None:
    """The GPUs that this process was given; None for all."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return None if named is None else [name.strip() for name in named.split(",") if name.strip()]


def _local_gpus() -> int:
    """Count the GPUs that this process may see."""
    visible = _visible()
    if visible is not None:
        return 0 if visible[:1] == ["-1"] else len(visible)
    command = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return sum(line.strip().isdigit() for line in done.stdout.splitlines())


@dataclass(frozen=True)
class Lane:
    """Runs that one set of engines holds one after another, and how many GPUs it takes: those of
    the engines, and of what is served beside them."""

    runs: tuple[SweepRun, ...]
    gpus: int

    @property
    def engines(self) -> int:
        """How many fit its GPUs; 1 where there are none."""
        first = self.runs[0]
        return max(1, (self.gpus - first.server_gpus) // max(1, first.gpus))

    @property
    def on_nodes(self) -> list[int]:
        """Its GPUs as they have to lie on one node each; of the servers that is not known here."""
        first = self.runs[0]
        if not self.gpus:
            return []
        return [first.gpus] * (self.engines if first.gpus else 0) + [1] * first.server_gpus

    @property
    def seconds(self) -> float:
        """About how long it takes."""
        return START_S + SWAP_S * (len(self.runs) - 1) + sum(map(self._generation, self.runs))

    @property
    def lock_keys(self) -> frozenset[str]:
        """What no other lane may have meanwhile."""
        return frozenset[str]().union(*(run.lock_keys for run in self.runs))

    def _generation(self, run: SweepRun) -> float:
        if not run.gpus:
            return 0.0  # it takes none of this machine's
        flops = GPU_FLOPS * self.engines * run.gpus if self.gpus else CPU_FLOPS
        size = run.parameters or GUESS
        return 2 * size * run.tokens / flops


def check_sizes(runs: Sequence[SweepRun], machine: Machine) -> None:
    """Raise `UserError` for a model whose engines and servers cannot fit the nodes."""
    for run in runs:
        where = f"{run.label} ({run.source})"
        if machine.gpus and run.least_gpus > machine.gpus:
            on_nodes = f", at most {largest(machine.nodes)} on a node" * machine.shared
            beside = f", {run.server_gpus} of them for served models" if run.server_gpus else ""
            raise UserError(
                f"takes {run.least_gpus} GPUs{beside}, there are {machine.gpus}{on_nodes}",
                where=where,
                fix="lower engine.tensor_parallel_size or workers, join a larger cluster, or leave "
                "it out",
            )
        try:
            _alone(run, machine)
        except TooSmall as error:
            raise UserError(error.what, where=f"{where}: {error.where}", fix=error.fix) from error


def _alone(run: SweepRun, machine: Machine) -> Resources | None:
    """How ``run`` sits on the nodes with nothing beside it; None where they are not known. Raises
    `TooSmall`."""
    if run.plan is None or not machine.nodes:
        return None
    return fit(
        run.plan.config,
        len(run.plan.rows),
        machine.nodes,
        interactive=bool(run.plan.rows.interactive.any()),
        servers=[(cpus, gpus if machine.gpus else 0) for cpus, gpus in run.servers],
    )


def lanes(runs: Sequence[SweepRun], machine: Machine, *, swap: bool) -> list[Lane]:
    """Runs in lanes: those of a swap group share an engine unless ``swap`` is off; as many lanes of
    them side by side as the machine holds. The longest come first."""
    groups: dict[str, list[SweepRun]] = {}
    for number, run in enumerate(runs):
        alone = not (swap and run.swap_group)
        groups.setdefault(f"{number}" if alone else run.swap_group, []).append(run)
    # What a lane takes of its kind of machine: a tensor parallel size says nothing on CPUs.
    each = {key: group[0].least_gpus if machine.gpus else 0 for key, group in groups.items()}
    work = {key: Lane(tuple(group), each[key]).seconds for key, group in groups.items()}
    total = sum(work.values())
    packed = []
    for key, group in groups.items():
        share, gpus = work[key] / total, each[key]
        room = machine.gpus // gpus if gpus else machine.slots
        wide = max(1, min(len(group), round(room * share)))
        if gpus and group[0].gpus and group[0].workers is None:
            # Few models on many GPUs: each gets more than one engine.
            more = round(machine.gpus * share) // wide - gpus
            gpus += max(0, more) // group[0].gpus * group[0].gpus
        for part in range(wide):
            # Neighbours in training stay together.
            low, high = part * len(group) // wide, (part + 1) * len(group) // wide
            packed.append(Lane(tuple(group[low:high]), gpus))
    return sorted(packed, key=lambda lane: -lane.seconds)


def resolved(run: SweepRun, lane: Lane, machine: Machine) -> dict[str, Any]:
    """The config that the lane's process reads.

    A lane that sees no GPUs but its own, or has all of them, finds out by itself how many engines
    they hold; of a cluster's it must leave some to other lanes."""
    assert run.plan is not None  # only planned runs are in lanes
    config: RunConfig = run.plan.config
    if config.workers == "auto" and machine.shared and 0 < lane.gpus < machine.gpus:
        workers = min(lane.engines, len(run.plan.rows))
        if alone := _alone(run, machine):
            # Its GPUs may lie so that no node has enough of them for the last engines.
            workers = min(workers, alone.workers)
        config = config.model_copy(update={"workers": workers})
    return config.model_dump(mode="json")
