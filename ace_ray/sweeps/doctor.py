"""``ace-ray doctor`` of a sweep: what would stop it, and each of its models."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ace_ray.errors import UserError
from ace_ray.run.doctor import Line, machine, tried
from ace_ray.sweeps.config import SweepConfig
from ace_ray.sweeps.packing import schedule
from ace_ray.sweeps.sweep import Sweep


def examine_sweep(load: Callable[[], SweepConfig]) -> Iterator[Line]:
    """Check everything that a sweep checks before it starts; nothing is written that stays."""
    yield from machine()
    config, failure = tried(load)
    if config is None:
        yield Line("config", failure, problem=True)
        return
    sweep, failure = tried(lambda: Sweep(config, lambda line: None, preview=True))
    if sweep is None:
        yield Line("sweep", failure, problem=True)
        return
    for run in sweep.runs:
        told = run.refused or run.awaited
        if run.plan is not None:
            told = f"{run.plan.run_id}, {len(run.plan.rows)} rows"
        yield Line("model", f"{run.label}: {told}", problem=bool(run.refused))
    placements, failure = tried(lambda: schedule(sweep.lanes(), sweep.machine))
    lanes = 0 if placements is None else len(placements)
    yield Line("lanes", failure or f"{lanes}, as sweep --plan shows them", problem=bool(failure))
    _, failure = tried(sweep.store.check_writable)
    yield Line("output", failure or f"{sweep.uri} can be written", problem=bool(failure))


def is_sweep(tree: object) -> bool:
    """Whether the mapping of a config file is a sweep's."""
    return isinstance(tree, dict) and bool({"models", "checkpoints"} & tree.keys())


def names_a_sweep(config: str, read: Callable[[str], object]) -> bool:
    """Whether the file ``config`` is one; not where it cannot be read: whoever loads it says so."""
    try:
        return is_sweep(read(config))
    except UserError:
        return False
