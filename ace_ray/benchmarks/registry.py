"""Benchmarks by name, from the entry-point group ``ace_ray.benchmarks``."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from pkgutil import resolve_name
from typing import Any

from ace_ray.benchmarks.protocol import Benchmark
from ace_ray.errors import UserError

GROUP = "ace_ray.benchmarks"
BUILT_IN = {
    "acebench": "ace_ray.benchmarks.acebench.benchmark:ACEBench.from_options",
    "bfcl": "ace_ray.benchmarks.bfcl.benchmark:BFCL.from_options",
    "stabletoolbench": "ace_ray.benchmarks.stabletoolbench.benchmark:StableToolBench.from_options",
    "stabletoolbench_judge": (
        "ace_ray.benchmarks.stabletoolbench.judge_check:JudgeCheck.from_options"
    ),
}
"""A checkout shipped with `ray job submit --working-dir` has no installed metadata."""


def make_benchmark(name: str, options: Mapping[str, Any]) -> Benchmark:
    """The benchmark ``name``, configured. Raises `UserError` for an unknown name or option."""
    makers = BUILT_IN | {point.name: point.value for point in entry_points(group=GROUP)}
    if name not in makers:
        raise UserError(
            f"no benchmark is called {name!r}",
            where="benchmarks",
            fix=f"installed: {', '.join(sorted(makers))}",
        )
    benchmark: Benchmark = resolve_name(makers[name])(options)
    return benchmark
