"""The folder a report is written to: an empty one, a new one, or an earlier report's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ace_ray.errors import UserError
from ace_ray.store import LocalStore

MARKER = "report.json"
_MADE_BY = "ace-ray report"


def claim(folder: str) -> Path:
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
    if path.is_dir() and any(path.iterdir()) and _marker(path) is None:
        raise UserError(
            "holds files that are not of a report",
            where=str(path),
            fix="name an empty or new folder with --out",
        )
    return path


def write(path: Path, files: Mapping[str, bytes], facts: Mapping[str, Any]) -> None:
    """Replace the report in ``path`` by ``files``. Call `claim` first.

    ``facts`` go into the marker ``report.json``, which is written before the files: what an
    interrupted report leaves is a report still, and is replaced by the next.
    """
    store = LocalStore(str(path))
    earlier = set((_marker(path) or {}).get("files", []))
    # Only plain names: a marker is a file that anybody can write.
    stale = {name for name in earlier - set(files) if isinstance(name, str) and "/" not in name}
    marker = {"made_by": _MADE_BY, **facts, "files": sorted({*files, *stale})}
    store.put(MARKER, _json(marker))
    for name in sorted(stale - {"", ".", "..", MARKER}):
        store.delete(name)
    for name, content in files.items():
        store.put(name, content)
    store.put(MARKER, _json({**marker, "files": sorted(files)}))


def _marker(path: Path) -> dict[str, Any] | None:
    """The marker of the report in ``path``, None if there is no report."""
    content = LocalStore(str(path)).get(MARKER)
    try:
        marker = json.loads(content or b"null")
    except (ValueError, RecursionError):
        return None
    ours = isinstance(marker, dict) and marker.get("made_by") == _MADE_BY
    return marker if ours and isinstance(marker.get("files"), list) else None


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, indent=2).encode()
