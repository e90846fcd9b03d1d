"""tau2 on the installed copy."""

from typing import Any

from ace_ray.benchmarks.tau2.benchmark import Tau2
from ace_ray.types import Entry


def build(**options: Any) -> Tau2:
    return Tau2.from_options({"data": "installed", **options})


def entry_of(benchmark: Tau2, category: str, entry_id: str = "") -> Entry:
    """Return the entry with this id, or the first of a category."""
    entries = (entry for entry in benchmark.dataset() if entry.category == category)
    return next(entry for entry in entries if entry_id in ("", entry.id))
