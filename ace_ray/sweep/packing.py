"""Which runs share an engine, and where and when each engine runs: longest first."""

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


@dataclass(frozen=True)
class Placed:
    lane: Lane
    begins: float
    """Seconds after the sweep does."""


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


def schedule(lanes: Sequence[Lane], machine: Machine) -> list[Placed]:
    """When each lane begins if all goes as estimated: the first that fits starts as room comes."""
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
