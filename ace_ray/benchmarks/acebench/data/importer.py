"""Put a checkout of the official repository into the cache, checked and versioned by content.

An import lands whole or not at all: it is written beside its place and renamed into it.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ace_ray.benchmarks.acebench.categories import CATEGORIES, LANGUAGES
from ace_ray.benchmarks.acebench.data.loader import BENCHMARK, files_of, load
from ace_ray.benchmarks.acebench.data.upstream import read_app_specs, read_prompts
from ace_ray.benchmarks.dataset import files_hash, json_value, keep, read_inside
from ace_ray.errors import UserError
from ace_ray.util.local_files import folder_of

OFFICIAL_COMMIT = "56dd66cf6439b0d9655ee1b353e4cd745c6f664e"
OFFICIAL_CONTENT_SHA256 = "6b5e4c952a90436d7916dd53e7ca0cf9c1922add0302bcbdadb03a7d529c3eb8"
"""What `files_hash` gives for an import of that commit."""

PROMPTS, APP_SPECS, LICENSE = "upstream/prompts.json", "upstream/worlds.json", "LICENSE.md"

Files = dict[str, bytes]
"""Contents by path relative to the version's folder."""

_log = logging.getLogger(__name__)


def import_checkout(
    path: Path,
    *,
    cache: Path | None = None,
    source: Mapping[str, Any] | None = None,
    expect_sha256: str | None = None,
    say: Callable[[str], object] = _log.info,
) -> Path:
    """Import all rows, the prompts and the app specifications; return the version's folder.

    ``path`` is a checkout, or a folder with ``data_en`` and ``data_zh`` at its top (and
    ``upstream/*.json`` where it has official prompts). Importing the same content again changes
    nothing. ``source`` is noted in the manifest instead of the path; ``expect_sha256`` is the only
    `files_hash` accepted. Raises `UserError`, leaving nothing behind.
    """
    path = folder_of(path, "data").resolve()
    files = _collect(path)
    content = files_hash(files)
    if expect_sha256 is not None and content != expect_sha256:
        raise UserError(
            f"its contents have the hash {content}, not the expected {expect_sha256}",
            where=str((source or {}).get("url", path)),
            fix="import a checkout of your own to use other contents",
        )
    rows = Counter((e.language, e.category) for e in load(_rows_folder(path)))
    target = keep(
        files,
        BENCHMARK,
        cache=cache,
        counted=f"{rows.total():,} rows",
        say=say,
        commit=OFFICIAL_COMMIT if content == OFFICIAL_CONTENT_SHA256 else None,
        source=dict(source or {"path": str(path)}),
        rows={lang: {c: rows[lang, c] for c in CATEGORIES} for lang in LANGUAGES},
    )
    if PROMPTS not in files:
        say(f"{path} has no {PROMPTS}: official prompts and apps are not available from it")
    return target


def _collect(path: Path) -> Files:
    rows_folder = _rows_folder(path)
    prefix = "data_all/" if rows_folder != path else ""
    files = {
        name: read_inside(path, prefix + name)
        for language in LANGUAGES
        for category in CATEGORIES
        for name in files_of(language, category)
    }
    if prefix:
        files[PROMPTS] = _json_bytes(read_prompts(path), path)
        files[APP_SPECS] = _json_bytes(read_app_specs(path), path)
    elif (path / PROMPTS).exists() or (path / APP_SPECS).exists():
        files[PROMPTS] = _reread(path, PROMPTS)
        files[APP_SPECS] = _reread(path, APP_SPECS)
    if (path / LICENSE).exists():
        files[LICENSE] = read_inside(path, LICENSE)
    return files


def _rows_folder(path: Path) -> Path:
    if (path / "data_all").is_dir():
        return path / "data_all"
    if (path / "data_en").is_dir():
        return path
    if path.is_file():
        raise UserError("is a file", where=str(path), fix="unpack it and import the folder")
    raise UserError(
        "has neither data_all nor data_en in it" if path.is_dir() else "no such folder",
        where=str(path),
        fix="give the top folder of a checkout of the official repository",
    )


def _reread(path: Path, name: str) -> bytes:
    value = json_value(read_inside(path, name), path / name)
    if not isinstance(value, dict) or not value:
        raise UserError("is not an object with texts in it", where=str(path / name))
    return _json_bytes(value, path / name)


def _json_bytes(value: Any, where: Path) -> bytes:
    """One spelling for equal values, so that the version does not depend on who wrote the file."""
    try:
        text = json.dumps(value, ensure_ascii=False, indent=1, allow_nan=False)
        return text.encode("utf-8")
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(f"holds literals that JSON cannot: {error}", where=str(where)) from error
