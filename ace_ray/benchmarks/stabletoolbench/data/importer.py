"""Put the queries of a checkout into the cache, checked and versioned by content.

Kept under their paths in the checkout are the queries, the ids, the licence, and where they are
there the sources that hold official prompts, so that a version serves as a small checkout. An
import lands whole or not at all: it is written beside its place and renamed into it.
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

from ace_ray.benchmarks.files import read_inside, strict_json
from ace_ray.benchmarks.stabletoolbench.agent.upstream_texts import SOURCES, read_texts
from ace_ray.benchmarks.stabletoolbench.data.loader import (
    QUERIES,
    files_of,
    imports_folder,
    load,
    queries_folder,
)
from ace_ray.benchmarks.stabletoolbench.groups import BENCHMARK, GROUPS
from ace_ray.errors import UserError
from ace_ray.records import digest

OFFICIAL_COMMIT = "aa4ed9f4737ad98bd706663f01d63623c3427812"
OFFICIAL_QUERIES_SHA256 = "1e32a40b0df67aec9a74f2173f77775b9d0b3959eaa2a396716e420797dee1d6"
"""What `content_hash` gives for the queries and ids of that commit."""
LICENSE = "LICENSE"
OTHER_SOURCES = (
    "server/main.py",
    "server/main_mirrorapi.py",
    "server/main_mirrorapi_cache.py",
    "server/system_prompts.py",
    "toolbench/tooleval/fac_eval.py",
    "toolbench/tooleval/evaluators/tooleval_gpt-3.5-turbo_default/config.yaml",
    "toolbench/tooleval/evaluators/tooleval_gpt-3.5-turbo_default/template.txt",
)
"""Prompts of API simulators and judges; kept as they are, where a checkout has them."""

_AGAIN = "remove the folder and import again"
_log = logging.getLogger(__name__)


def import_queries(
    path: Path,
    *,
    cache: Path | None = None,
    say: Callable[[str], object] = _log.info,
) -> Path:
    """Import all six groups of ``path``, which is a checkout, or is or holds ``solvable_queries``;
    return the version's folder.

    Importing the same content again changes nothing. Raises `UserError`, leaving nothing behind.
    """
    path = path.expanduser().resolve()
    queries = queries_folder(path)
    # Whether queries without APIs are left out is up to each run.
    loaded = load(path, without_apis="skip")
    rows = Counter(entry.category for entry in loaded.entries)
    files = {
        f"{QUERIES}/{name}": read_inside(queries, name)
        for group in GROUPS
        for name in files_of(group)
        if (queries / name).exists()
    }
    official = content_hash(_hashes(files)) == OFFICIAL_QUERIES_SHA256
    files |= _beside(path)
    hashes = _hashes(files)
    content = content_hash(hashes)
    manifest = {
        "benchmark": BENCHMARK,
        "version": content[:12],
        "content_sha256": content,
        "official_queries": official,
        "commit": OFFICIAL_COMMIT if official else None,
        "source": {"path": str(path)},
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "rows": {group: rows[group] for group in GROUPS},
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
    counts = f"{rows.total():,} queries, version {content[:12]}"
    say(f"{'imported' if new else 'already imported, nothing to do'}: {counts} in {target}")
    for line in loaded.warnings:
        say(line)
    if not official:
        say(f"its queries are not those of commit {OFFICIAL_COMMIT[:12]}: {path}")
    if SOURCES[0] not in files:
        say(f"{path} is no checkout: official prompts are not available from it")
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


def _beside(path: Path) -> dict[str, bytes]:
    """The licence and the sources of ``path``; without the agent's prompts it is no checkout."""
    root = path.parent if path.name == QUERIES else path
    names = [LICENSE]
    if any((root / name).exists() for name in SOURCES):
        read_texts(root)  # only to find out now, rather than in a run, that they can be read
        names += [*SOURCES, *OTHER_SOURCES]
    return {name: read_inside(root, name) for name in names if (root / name).exists()}


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


def _hashes(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: _sha256(raw) for name, raw in sorted(files.items())}


def _sha256(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()
