"""Versions of benchmark data in the cache: landed whole, named and checked by their content."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ace_ray.benchmarks.files import read_inside, strict_json
from ace_ray.errors import UserError
from ace_ray.records import digest

_AGAIN = "remove the folder and import again"

Files = Mapping[str, bytes]
"""Contents by path relative to the version's folder."""


def sha256s(files: Files) -> dict[str, str]:
    """The SHA-256 (hex) of each file, in the order of their names."""
    return {name: _sha256(raw) for name, raw in sorted(files.items())}


def content_hash(sha256_by_file: Mapping[str, str]) -> str:
    """SHA-256 (hex) over names and hashes of the imported files."""
    return digest(sorted(sha256_by_file.items()))


def keep(files: Files, home: Path, benchmark: str, **facts: Any) -> tuple[Path, bool]:
    """Keep ``files`` as a version in the folder ``home``: (its folder, whether it is new).

    ``manifest.json`` beside them holds ``facts``, the hashes and the version, which is the first
    twelve digits of `content_hash`. Raises `UserError`, leaving nothing behind.
    """
    hashes = sha256s(files)
    content = content_hash(hashes)
    manifest = {
        "benchmark": benchmark,
        "version": content[:12],
        "content_sha256": content,
        **facts,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "files": hashes,
    }
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
    return target, new


def kept(home: Path, version: str, get_data: str) -> Path:
    """The folder of an import in ``home``; without a ``version`` of the only one.

    ``get_data`` says how to import. Raises `UserError`: there is none, or not that one.
    """
    have = sorted(path.parent.name for path in home.glob("[!.]*/manifest.json"))
    if not have:
        raise UserError(f"nothing is imported in {home}", where="data", fix=get_data)
    if version in have:
        return home / version
    if not version and len(have) == 1:
        return home / have[0]
    what = f"version {version} is not imported" if version else "several versions are imported"
    choices = " or ".join(f"imported:{one}" for one in have)
    raise UserError(what, where="data", fix=f"write {choices}")


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


def _land(files: Files, manifest: Mapping[str, Any], target: Path) -> bool:
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
