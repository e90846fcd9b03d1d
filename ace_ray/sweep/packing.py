"""Choose which runs share an engine, and where and when each engine runs: longest first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ace_ray.cluster.resources import Resources, TooSmall, fit, largest
from ace_ray.config.schema import RunConfig
from ace_ray.errors import UserError
from ace_ray.sweep.runs import SweepRun

START_S = 90.0
SWAP_S = 5.0
GPU_FLOPS, CPU_FLOPS = 1e14, 2e11
"""Estimated speed in batched generation: of one GPU, and of the cores of one CPU engine."""


GUESS = 1_000_000_000
"""Assumed number of parameters of a model of unknown size; `--plan` says so."""


@dataclass(frozen=True)
class Machine:
    """Resources of a sweep. ``gpus`` 0: engines run on CPUs, ``slots`` at a time."""

    gpus: int
    slots: int = 1
    shared: bool = False
    """Whether Ray assigns the GPUs (in a cluster, not on this machine)."""
    nodes: tuple[Mapping[str, float], ...] = field(default=(), compare=False)
    """Resources of each node of a cluster, as first counted: later there may be fewer for a while.
    On this machine one node, or none if nothing is checked against it."""


@dataclass(frozen=True)
class Lane:
    """Runs that one set of engines evaluates one after another. ``gpus`` counts the GPUs of the
    engines and of the models served beside them."""

    runs: tuple[SweepRun, ...]
    gpus: int

    @property
    def engines(self) -> int:
        """Number of engines that fit on the lane's GPUs; 1 without GPUs."""
        first = self.runs[0]
        return max(1, (self.gpus - first.server_gpus) // max(1, first.gpus))

    @property
    def on_nodes(self) -> list[int]:
        """GPUs that must be on one node, for each engine. The nodes of the servers are not known
        here."""
        first = self.runs[0]
        if not self.gpus:
            return []
        return [first.gpus] * (self.engines if first.gpus else 0) + [1] * first.server_gpus

    @property
    def seconds(self) -> float:
        """Estimated duration in seconds."""
        return START_S + SWAP_S * (len(self.runs) - 1) + sum(map(self._generation, self.runs))

    @property
    def lock_keys(self) -> frozenset[str]:
        """Resources that only one lane may use at a time."""
        return frozenset[str]().union(*(run.lock_keys for run in self.runs))

    def _generation(self, run: SweepRun) -> float:
        if not run.gpus:
            return 0.0  # it takes none of this machine's
        flops = GPU_FLOPS * self.engines * run.gpus if self.gpus else CPU_FLOPS
        size = run.parameters or GUESS
        return 2 * size * run.tokens / flops


@dataclass(frozen=True)
class Placed:
    lane: Lane
    begins: float
    """Seconds after the start of the sweep."""


def check_sizes(runs: Sequence[SweepRun], machine: Machine) -> None:
    """Raise `UserError` for a model whose engines and servers cannot fit the nodes."""
    for run in runs:
        where = f"{run.label} ({run.source})"
        if machine.gpus and run.least_gpus > machine.gpus:
            on_nodes = f", at most {largest(machine.nodes)} on a node" * machine.shared
            beside = f", {run.server_gpus} of them for served models" if run.server_gpus else ""
            raise UserError(
                f"needs {run.least_gpus} GPUs{beside}, but there are {machine.gpus}{on_nodes}",
                where=where,
                fix="lower engine.tensor_parallel_size or workers, use a larger cluster, "
                "or leave the model out",
            )
        try:
            _alone(run, machine)
        except TooSmall as error:
            raise UserError(error.what, where=f"{where}: {error.where}", fix=error.fix) from error


def _alone(run: SweepRun, machine: Machine) -> Resources | None:
    """Return the placement of ``run`` alone on the nodes; None if the nodes are unknown. Raises
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
    """Return the runs in lanes, longest first. Runs of a swap group share an engine unless ``swap``
    is off. There are as many lanes per group as fit side by side on the machine."""
    groups: dict[str, list[SweepRun]] = {}
    for number, run in enumerate(runs):
        alone = not (swap and run.swap_group)
        groups.setdefault(f"{number}" if alone else run.swap_group, []).append(run)
    # Share of the machine that a lane takes. A tensor parallel size means nothing on CPUs.
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
    """Return the config that the lane's process reads.

    A lane that sees only its own GPUs, or has all of them, counts the engines that fit by itself.
    In a cluster it must leave GPUs to other lanes.
    """
    assert run.plan is not None  # only planned runs are in lanes
    config: RunConfig = run.plan.config
    if config.workers == "auto" and machine.shared and 0 < lane.gpus < machine.gpus:
        workers = min(lane.engines, len(run.plan.rows))
        if alone := _alone(run, machine):
            # The GPUs may be spread so that no node has enough of them for the last engines.
            workers = min(workers, alone.workers)
        config = config.model_copy(update={"workers": workers})
    return config.model_dump(mode="json")


def schedule(lanes: Sequence[Lane], machine: Machine) -> list[Placed]:
    """Return the estimated start of each lane: the first lane that fits starts when there is
    room."""
    free: float = machine.gpus or machine.slots
    now, waiting = 0.0, list(lanes)
    running: list[Placed] = []
    placed: list[Placed] = []
    while waiting:
        for lane in list(waiting):
            apart = all(other.lane.lock_keys.isdisjoint(lane.lock_keys) for other in running)
            if apart and (lane.gpus or 1) <= free:
                waiting.remove(lane)
                free -= lane.gpus or 1
                running.append(Placed(lane, now))
                placed.append(running[-1])
        if waiting:
            running.sort(key=lambda one: one.begins + one.lane.seconds)
            ended = running.pop(0)
            now = ended.begins + ended.lane.seconds
            free += ended.lane.gpus or 1
    return placed
