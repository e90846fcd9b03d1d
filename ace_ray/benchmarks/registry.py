"""Benchmarks by name, from the entry-point group ``ace_ray.benchmarks``."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from ace_ray.benchmarks.protocol import Benchmark
from ace_ray.errors import UserError

GROUP = "ace_ray.benchmarks"


def make_benchmark(name: str, options: Mapping[str, Any]) -> Benchmark:
    """The benchmark ``name``, configured. Raises `UserError` for an unknown name or option."""
    points = {point.name: point for point in entry_points(group=GROUP)}
    # A checkout shipped with `ray job submit --working-dir` has no installed metadata.
    if name not in points and name == "acebench":
        from ace_ray.benchmarks.acebench.benchmark import ACEBench

        return ACEBench.from_options(options)
    if name not in points:
        raise UserError(
            f"no benchmark is called {name!r}",
            where="benchmarks",
            fix=f"installed: {', '.join(sorted(points)) or 'none'}",
        )
    benchmark: Benchmark = points[name].load()(options)
    return benchmark
