"""Put a copy of ``bfcl-eval`` into the cache, checked and versioned by content.

Kept are the data, the prompts and the tool classes, as they are in the package. An import lands
whole or not at all: it is written beside its place and renamed into it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ace_ray.benchmarks.bfcl.categories import CATEGORIES
from ace_ray.benchmarks.bfcl.data.copy import (
    OFFICIAL_DATA_SHA256,
    Copy,
    files_sha256,
    imports_folder,
)
from ace_ray.benchmarks.bfcl.data.layout import all_files, data_files
from ace_ray.benchmarks.bfcl.data.loader import function_docs, load, prerequisites
from ace_ray.benchmarks.bfcl.data.upstream_texts import read_texts
from ace_ray.benchmarks.files import read_inside, strict_json
from ace_ray.errors import UserError
from ace_ray.records import digest

_AGAIN = "remove the folder and import again"

_log = logging.getLogger(__name__)


def import_copy(
    path: Path | None,
    *,
    cache: Path | None = None,
    say: Callable[[str], object] = _log.info,
) -> Path:
    """Import the copy at ``path`` (a folder or a wheel), or the installed one if that is None;
    return the version's folder.

    Importing the same content again changes nothing. Raises `UserError`, leaving nothing behind.
    """
    if path is None:
        copy = Copy.locate("installed")
    else:
        path = path.expanduser()
        if not path.exists():
            raise UserError("no such file or folder", where=str(path))
        copy = Copy.locate(str(path.resolve()))
    files = {name: copy.read(name) for name in all_files()}
    rows = Counter(entry.category for entry in load(copy))
    # read only to find out now, rather than in a run, that they can be
    function_docs(copy), prerequisites(copy), read_texts(copy)
    hashes = {name: _sha256(raw) for name, raw in sorted(files.items())}
    content = content_hash(hashes)
    data = files_sha256({name: files[name] for name in data_files()})
    manifest = {
        "benchmark": "bfcl",
        "version": content[:12],
        "content_sha256": content,
        "upstream_version": copy.version,
        "official_data": data == OFFICIAL_DATA_SHA256,
        "source": {"path": str(copy.root)},
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "rows": {category: rows[category] for category in CATEGORIES},
        "files": hashes,
    }
    home = imports_folder(cache)
    target = home / content[:12]
    try:
        new = not target.exists() and _land(files, manifest, target)
    except OSError as error:
        raise UserError(
            f"cannot be written ({error.strerror})",
            where=str(home),
            fix="set ACE_RAY_CACHE to a folder you can write to",
        ) from error
    verify(target)
    counts = f"{rows.total():,} rows, version {content[:12]}"
    say(f"{'imported' if new else 'already imported, nothing to do'}: {counts} in {target}")
    if data != OFFICIAL_DATA_SHA256:
        say(f"its data are not those of the published package: {copy.root}")
    return target


def content_hash(sha256_by_file: Mapping[str, str]) -> str:
    """SHA-256 (hex) over names and hashes of the imported files."""
    return digest(sorted(sha256_by_file.items()))


def verify(folder: Path) -> None:
    """Raise `UserError` when an imported version is not what its manifest says."""
    try:
        manifest = strict_json(read_inside(folder, "manifest.json").decode())
        files: dict[str, str] = manifest["files"]
        good = content_hash(files) == manifest["content_sha256"]
        changed = "manifest.json" if not good else ""
        changed = changed or next(
            (name for name, sha in files.items() if _sha256(read_inside(folder, name)) != sha), ""
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError("has no readable manifest.json", where=str(folder), fix=_AGAIN) from error
    if changed:
        raise UserError(f"{changed} was changed after the import", where=str(folder), fix=_AGAIN)


def _land(files: Mapping[str, bytes], manifest: Mapping[str, Any], target: Path) -> bool:
    """Write a version; False when another process was first."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".import-", dir=target.parent) as scratch:
        folder = Path(scratch) / target.name
        for name, raw in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(raw)
        (folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
        try:
            folder.rename(target)
        except OSError:
            if not target.exists():
                raise
            return False
    return True


def _sha256(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()
