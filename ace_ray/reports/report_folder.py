"""Check and write the folder of a report: a named folder, or ``report/`` in a run or sweep."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ace_ray
from ace_ray.errors import UserError
from ace_ray.pipeline.evaluate import check_output
from ace_ray.reports.runs import ScoredRun
from ace_ray.storage.object_store import Store, open_store
from ace_ray.storage.run_files import REPORTS
from ace_ray.util.safe_loading import InvalidContent, json_tree

MARKER = "report.json"
PAGE = "report.html"
_MADE_BY = "ace-ray report"


def claim(uri: str, opens: Callable[[str], Store] = open_store) -> Store:
    """Open the folder or ``s3://`` prefix ``uri`` for a report. Writes nothing.

    Raises `UserError` when the folder is not writable, contains other files, or is a relative path
    in a Ray job, whose working directory is temporary."""
    check_output(uri, "--output")
    return _check_claim(opens(uri))


def claim_within(store: Store) -> Store:
    """Open the subfolder ``report/`` of a run or sweep for a report. ``store`` is the folder of the
    run or sweep. Writes nothing. Raises `UserError` as `claim` does."""
    return _check_claim(store.child(REPORTS))


def _check_claim(store: Store) -> Store:
    try:
        has_files = bool(store.list())
        store.check_writable()
    except UserError as error:
        fix = "choose another folder with --output"
        raise UserError(error.what, where=error.where, fix=fix) from error
    if has_files and _marker(store) is None:
        fix = "name an empty or new folder with --output"
        raise UserError("contains files that do not belong to a report", where=store.root, fix=fix)
    return store


def write(
    store: Store, files: Mapping[str, str | bytes], runs: Sequence[ScoredRun], facts: dict[str, Any]
) -> None:
    """Replace the report in ``store`` by ``files``. Call `claim` or `claim_within` first.

    ``facts`` and ``runs`` are stored in ``report.json``, which marks the folder as a report. This
    file is written first, so that the next report can replace a report that was interrupted."""
    listed = (_marker(store) or {}).get("files", [])
    # Only plain names: the marker is untrusted, and a path could point elsewhere.
    earlier = {name for name in listed if isinstance(name, str) and not {"/", "\0"} & {*name}}
    stale = earlier - set(files)
    names = [{"uri": r.uri, "run_id": r.manifest.run_id, "label": r.label} for r in runs]
    facts = {**facts, "ace_ray_version": ace_ray.__version__, "runs": names}
    marker = {"made_by": _MADE_BY, **facts, "files": sorted({*files, *stale})}
    store.put(MARKER, json.dumps(marker, indent=2).encode())
    for name in sorted(stale - {"", ".", "..", MARKER}):
        store.delete(name)
    for name, content in files.items():
        store.put(name, content.encode("utf-8", "replace") if isinstance(content, str) else content)
    marker["files"] = sorted(files)
    store.put(MARKER, json.dumps(marker, indent=2).encode())


def _marker(store: Store) -> dict[str, Any] | None:
    """Read ``report.json``, which marks a report's folder. Returns None if it is not valid."""
    content = store.get(MARKER)
    try:
        marker = json_tree(content or b"null")
    except InvalidContent:
        return None
    ours = isinstance(marker, dict) and marker.get("made_by") == _MADE_BY
    return marker if ours and isinstance(marker.get("files"), list) else None
