"""The rows of a stored run, whoever wrote it: no more of them than it declares."""

from __future__ import annotations

from collections.abc import Callable

from ace_ray.errors import UserError
from ace_ray.run.storage.parts import FOLDER, Ledger, read_ledger
from ace_ray.run.storage.stored import MANIFEST, Manifest
from ace_ray.store import Store


def stored_rows(
    store: Store, manifest: Manifest, say: Callable[[str], None] = lambda line: None
) -> Ledger:
    """`read_ledger` of the run with this ``manifest``. Raises `UserError` also when the run holds
    rows that it does not declare: they count in no number, and nothing bounds how many there
    are."""
    ledger = read_ledger(store, say)
    if len(ledger.ids) > manifest.declared:
        raise UserError(
            f"the run declares {manifest.declared} rows in {MANIFEST} and holds {len(ledger.ids)}",
            where=store.root,
            fix=f"remove the files in {FOLDER} that are not of this run, or name an intact run",
        )
    return ledger
