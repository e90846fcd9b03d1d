"""Which runs are looked at: those that are named, and all of a sweep."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ace_ray.errors import UserError
from ace_ray.reports.sweeps import run_folders
from ace_ray.store import Store
from ace_ray.view.table import RunTable


def tables_of(stores: Sequence[Store]) -> list[RunTable]:
    """Raises `UserError`: one is no run and no sweep, or none has a run yet."""
    tables = [RunTable(store) for named in stores for store in _runs(named)]
    if not tables:
        raise UserError(
            "no model of the sweep has begun", where=stores[0].root, fix="wait a little"
        )
    return tables


def _runs(named: Store) -> Iterator[Store]:
    folders = run_folders(named)
    yield from [named] if folders is None else [named.child(folder) for folder in folders]
