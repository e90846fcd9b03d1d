"""Which runs share an engine, and where and when each engine runs: longest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ace_ray.errors import UserError
from ace_ray.sweep.runs import SweepRun

GPU_MEMORY_GIB = {
    "H200": 141, "H100": 80, "B200": 192, "A100-80G": 80, "A100-40G": 40, "A100": 40, "A10G": 24,
    "L40S": 48, "L4": 24, "T4": 16, "V100": 16, "RTX-4090": 24, "MI300X": 192, "MI250": 64,
}  # fmt: skip
"""By Ray's accelerator types; the smallest where one comes in several sizes."""

ROOM = 1.2
"""Times its weights that an engine needs at least: activations, and a KV cache to work with."""

USABLE = 0.9
"""Of a GPU's memory: vLLM's default ``gpu_memory_utilization``."""

START_S = 90.0
SWAP_S = 5.0
GPU_FLOPS, CPU_FLOPS = 1e14, 2e11
"""What one GPU, or the cores of one CPU engine, sustain in batched generation: for estimates."""


@dataclass(frozen=True)
class Machine:
    """What a sweep may use. ``gpus`` 0: engines run on CPUs, ``slots`` at a time."""

    gpus: int
    memory_gib: float | None
    """Of one GPU; of the node where there is none. None: unknown."""
    slots: int = 1
    shared: bool = False
    """Whether Ray hands out the GPUs: a cluster's, not this machine's."""


@dataclass(frozen=True)
class Lane:
    """Runs that one engine holds one after another, and how many GPUs it takes."""

    runs: tuple[SweepRun, ...]
    gpus: int

    @property
    def seconds(self) -> float:
        """About how long it takes."""
        return START_S + SWAP_S * (len(self.runs) - 1) + sum(map(self._generation, self.runs))

    def _generation(self, run: SweepRun) -> float:
        flops = GPU_FLOPS * self.gpus if self.gpus else CPU_FLOPS
        return 2 * (run.parameters or 1_000_000_000) * run.tokens / flops


@dataclass(frozen=True)
class Placed:
    lane: Lane
    begins: float
    """Seconds after the sweep does."""


def check_sizes(runs: Sequence[SweepRun], machine: Machine) -> None:
    """Raise `UserError` for a model that cannot fit: its GPUs, or its weights in their memory."""
    for run in runs:
        where = f"{run.label} ({run.source})"
        if machine.gpus and run.gpus > machine.gpus:
            raise UserError(
                f"takes {run.gpus} GPUs, there are {machine.gpus}",
                where=where,
                fix="lower engine.tensor_parallel_size, join a larger cluster, or leave it out",
            )
        have = machine.memory_gib
        if run.weight_bytes is None or have is None:
            continue
        have *= run.gpus * USABLE if machine.gpus else 1.0
        need = ROOM * run.weight_bytes / 2**30
        if need > have:
            raise UserError(
                f"its weights need about {need:.1f} GiB, an engine here has {have:.1f} GiB",
                where=where,
                fix="raise engine.tensor_parallel_size, join larger nodes, or leave it out",
            )


def lanes(runs: Sequence[SweepRun], machine: Machine, *, swap: bool) -> list[Lane]:
    """Runs in lanes: kin share an engine unless ``swap`` is off; as many lanes of them side by side
    as the machine holds. The longest come first."""
    families: dict[str, list[SweepRun]] = {}
    for number, run in enumerate(runs):
        alone = not (swap and run.kin)
        families.setdefault(f"{number}" if alone else run.kin, []).append(run)
    # What an engine takes of its kind of machine: a tensor parallel size says nothing on CPUs.
    each = {key: family[0].gpus if machine.gpus else 0 for key, family in families.items()}
    work = {key: Lane(tuple(family), each[key]).seconds for key, family in families.items()}
    total = sum(work.values())
    found = []
    for key, family in families.items():
        gpus = each[key]
        room = machine.gpus // gpus if gpus else machine.slots
        wide = max(1, min(len(family), round(room * work[key] / total)))
        for part in range(wide):
            # Neighbours in training stay together.
            low, high = part * len(family) // wide, (part + 1) * len(family) // wide
            # Few models on many GPUs: each gets more than one engine.
            engines = max(1, round(room * work[key] / total) // wide) if gpus else 1
            found.append(Lane(tuple(family[low:high]), gpus * engines))
    return sorted(found, key=lambda lane: -lane.seconds)


def schedule(found: Sequence[Lane], machine: Machine) -> list[Placed]:
    """When each lane begins if all goes as estimated: the first that fits starts as room comes."""
    free: float = machine.gpus or machine.slots
    now, waiting = 0.0, list(found)
    running: list[tuple[float, int]] = []
    placed = []
    while waiting:
        for lane in list(waiting):
            if (size := lane.gpus or 1) <= free:
                waiting.remove(lane)
                free -= size
                running.append((now + lane.seconds, size))
                placed.append(Placed(lane, now))
        if waiting:
            running.sort()
            now, size = running.pop(0)
            free += size
    return placed
