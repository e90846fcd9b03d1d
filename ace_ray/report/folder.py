"""Where a report is written: a folder of its own, or ``report/`` within its run or sweep."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ace_ray.errors import UserError
from ace_ray.run.plan import REPORTS
from ace_ray.store import LocalStore, Store, open_store

MARKER = "report.json"
_MADE_BY = "ace-ray report"


def claim(folder: str) -> Store:
    """``folder``, if a report may be written there. Writes nothing.

    Raises:
        UserError: it is not local, not a folder, or holds something that is no report of ours.
    """
    if "://" in folder:
        raise UserError(
            "a report is written to a local folder", where="--out", fix="name one, e.g. report"
        )
    path = Path(folder).expanduser().absolute()
    if path.exists() and not path.is_dir():
        raise UserError("is not a folder", where=str(path), fix="name another with --out")
    store = LocalStore(str(path))
    if path.is_dir() and any(path.iterdir()):
        _must_be_ours(store)
    return store


def claim_within(uri: str) -> Store:
    """``report/`` in the run or sweep at ``uri``, if a report may be written there. Leaves nothing.

    Raises:
        UserError: it cannot be written, or holds something that is no report of ours.
    """
    store = open_store(uri).child(REPORTS)
    if store.list():
        _must_be_ours(store)
    try:
        store.check_writable()
    except UserError as error:
        raise UserError(
            error.what, where=error.where, fix="write the report elsewhere with --out DIR"
        ) from error
    return store


def _must_be_ours(store: Store) -> None:
    if _marker(store) is None:
        raise UserError(
            "holds files that are not of a report",
            where=store.root,
            fix="name an empty or new folder with --out",
        )


def write(store: Store, files: Mapping[str, bytes], facts: Mapping[str, Any]) -> None:
    """Replace the report in ``store`` by ``files``. Call `claim` or `claim_within` first.

    ``facts`` go into the marker ``report.json``, which is written before the files: what an
    interrupted report leaves is a report still, and is replaced by the next.
    """
    earlier = set((_marker(store) or {}).get("files", []))
    # Only plain names: a marker is a file that anybody can write.
    stale = {name for name in earlier - set(files) if isinstance(name, str) and "/" not in name}
    marker = {"made_by": _MADE_BY, **facts, "files": sorted({*files, *stale})}
    store.put(MARKER, _json(marker))
    for name in sorted(stale - {"", ".", "..", MARKER}):
        store.delete(name)
    for name, content in files.items():
        store.put(name, content)
    store.put(MARKER, _json({**marker, "files": sorted(files)}))


def _marker(store: Store) -> dict[str, Any] | None:
    """The marker of the report in ``store``, None if there is no report."""
    content = store.get(MARKER)
    try:
        marker = json.loads(content or b"null")
    except (ValueError, RecursionError):
        return None
    ours = isinstance(marker, dict) and marker.get("made_by") == _MADE_BY
    return marker if ours and isinstance(marker.get("files"), list) else None


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, indent=2).encode()
