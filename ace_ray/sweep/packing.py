"""Find the machine or cluster of a sweep, and pack its runs into lanes, longest lane first."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ace_ray.cluster import connection, resources
from ace_ray.cluster.resources import Resources, TooSmall, fit
from ace_ray.config.schema import RunConfig
from ace_ray.errors import UserError
from ace_ray.sweep.runs import SweepEntry

# Assumed seconds of an engine start, and of a swap of weights.
START_S, SWAP_S = 90.0, 5.0
# Assumed FLOPS of one GPU, and of one engine on CPUs, during batched generation.
GPU_FLOPS, CPU_FLOPS = 1e14, 2e11

# Assumed parameters of a model of unknown size; `--plan` names these models.
GUESS = 1_000_000_000


@dataclass(frozen=True)
class Machine:
    """Resources of a sweep. If ``gpus`` is 0, engines run on CPUs, at most ``slots`` at a time."""

    gpus: int
    slots: int = 1
    shared: bool = False
    """True for a cluster, where Ray assigns the GPUs."""
    nodes: tuple[Mapping[str, float], ...] = field(default=(), compare=False)
    """Resources of each node when the sweep began; if empty, `check_sizes` does not check nodes."""


def find_machine(cpus: float) -> Machine:
    """Find the resources of the running cluster, or of this machine if there is no cluster.

    ``cpus`` is the number of CPUs that one lane needs on a cluster without GPUs. Raises
    `UserError` if the cluster cannot be joined."""
    if connection.running_cluster() == "local":
        gpus = _local_gpus()
        # Count all CPUs of the machine. A lane's Ray may count more CPUs than this process may use.
        node = {"CPU": float(os.cpu_count() or 1), "GPU": float(gpus)}
        return Machine(gpus, nodes=(node,))  # without GPUs, one engine uses all cores
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
    """Return ``CUDA_VISIBLE_DEVICES`` for ``devices``, indices of the GPUs of this process."""
    visible = _visible_gpus()
    return ",".join(str(device) if visible is None else visible[device] for device in devices)


def _visible_gpus() -> list[str] | None:
    """Return the GPUs that ``CUDA_VISIBLE_DEVICES`` lists; None if it is not set."""
    text = os.environ.get("CUDA_VISIBLE_DEVICES")
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _local_gpus() -> int:
    visible = _visible_gpus()
    if visible is not None:
        return 0 if visible[:1] == ["-1"] else len(visible)
    command = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return sum(line.strip().isdigit() for line in result.stdout.splitlines())


@dataclass(frozen=True)
class Lane:
    """Runs that one set of engines evaluates one after another. ``gpus`` is the number of GPUs of
    the engines and of the served models."""

    runs: tuple[SweepEntry, ...]
    gpus: int

    @property
    def engines(self) -> int:
        """Number of engines that fit on the lane's GPUs; 1 if the lane has no GPUs."""
        first = self.runs[0]
        return max(1, (self.gpus - first.server_gpus) // max(1, first.gpus))

    @property
    def gpu_bundles(self) -> list[int]:
        """GPU counts: one count per engine, whose GPUs must be on one node, and a 1 for each GPU of
        the served models, whose sizes are not known here."""
        first = self.runs[0]
        if not self.gpus:
            return []
        return [first.gpus] * (self.engines if first.gpus else 0) + [1] * first.server_gpus

    @property
    def seconds(self) -> float:
        """Estimated duration of the lane."""
        return START_S + SWAP_S * (len(self.runs) - 1) + sum(map(self._generation, self.runs))

    @property
    def endpoint(self) -> str:
        """Host of the endpoint of the lane's only run; "" if its runs need engines."""
        return self.runs[0].endpoint

    def _generation(self, run: SweepEntry) -> float:
        if not run.gpus:
            return 0.0  # an endpoint generates
        flops = GPU_FLOPS * self.engines * run.gpus if self.gpus else CPU_FLOPS
        size = run.parameters or GUESS
        return 2 * size * run.tokens / flops


def check_sizes(runs: Sequence[SweepEntry], machine: Machine) -> None:
    """Raise `UserError` if the engines and servers of a run do not fit on the nodes."""
    for run in runs:
        try:
            _run_resources(run, machine)
        except TooSmall as error:
            location = f"{run.label} ({run.source}): {error.where}"
            raise UserError(error.what, where=location, fix=error.fix) from error


def _run_resources(run: SweepEntry, machine: Machine) -> Resources | None:
    """Return the resources that ``run`` gets if it runs alone; None if the nodes are unknown.
    Raises `TooSmall` if the run does not fit on the nodes."""
    if run.plan is None or not machine.nodes:
        return None
    return fit(
        run.plan.config,
        len(run.plan.rows),
        machine.nodes,
        interactive=bool(run.plan.rows.interactive.any()),
        servers=[(cpus, gpus if machine.gpus else 0) for cpus, gpus in run.servers],
    )


def lanes(runs: Sequence[SweepEntry], machine: Machine, *, swap: bool) -> list[Lane]:
    """Pack runs into lanes, sorted from longest to shortest. Runs of a swap group (models whose
    weights one engine can swap) share engines unless ``swap`` is false. The more work a group has,
    the more lanes it gets."""
    groups: dict[str, list[SweepEntry]] = {}
    for number, run in enumerate(runs):
        alone = not (swap and run.swap_group)
        groups.setdefault(f"{number}" if alone else run.swap_group, []).append(run)
    # GPUs of a lane. On CPUs, the tensor parallel size has no effect.
    lane_gpus = {key: group[0].min_gpus if machine.gpus else 0 for key, group in groups.items()}
    work = {key: Lane(tuple(group), lane_gpus[key]).seconds for key, group in groups.items()}
    total = sum(work.values())
    packed = []
    for key, group in groups.items():
        share, gpus = work[key] / total, lane_gpus[key]
        room = machine.gpus // gpus if gpus else machine.slots
        wide = max(1, min(len(group), round(room * share)))
        if gpus and group[0].gpus and group[0].workers is None:
            # With few models on many GPUs, a lane gets several engines.
            more = round(machine.gpus * share) // wide - gpus
            gpus += max(0, more) // group[0].gpus * group[0].gpus
        for part in range(wide):
            # Keep runs that are adjacent in training in the same lane.
            low, high = part * len(group) // wide, (part + 1) * len(group) // wide
            packed.append(Lane(tuple(group[low:high]), gpus))
    return sorted(packed, key=lambda lane: -lane.seconds)


def time_share(lane: Lane, peers: Sequence[Lane], machine: Machine) -> float:
    """Return the share of the remaining time that ``lane`` gets if all runs get equal times.

    ``peers``: the other running and waiting lanes. ``lane`` and the lanes that compete for the same
    GPUs are distributed over the slots in which lanes run. The time of a run is the remaining time
    divided by the number of runs in the fullest slot."""
    slots = machine.gpus // lane.gpus if lane.gpus else machine.slots
    if machine.gpus:  # GPUs and endpoints are used side by side
        at = lane.endpoint
        peers = [o for o in peers if (o.gpus and lane.gpus) or (at and o.endpoint == at)]
    run_counts = [0] * (1 if lane.endpoint else max(1, slots))
    for runs in sorted((len(peer.runs) for peer in (lane, *peers)), reverse=True):
        run_counts[run_counts.index(min(run_counts))] += runs
    return len(lane.runs) / max(run_counts)


def resolve_config(run: SweepEntry, lane: Lane, machine: Machine) -> dict[str, Any]:
    """Return the config of ``run`` for the lane's process.

    On a cluster, this config sets the number of workers, so that other lanes have GPUs too. On one
    machine, the process can use only the lane's GPUs, and counts them itself."""
    assert run.plan is not None  # only planned runs are in lanes
    config: RunConfig = run.plan.config
    if config.workers == "auto" and machine.shared and 0 < lane.gpus < machine.gpus:
        workers = min(lane.engines, len(run.plan.rows))
        if alone := _run_resources(run, machine):
            # The free GPUs may be on different nodes, so that fewer engines fit.
            workers = min(workers, alone.workers)
        config = config.model_copy(update={"workers": workers})
    return config.model_dump(mode="json")
