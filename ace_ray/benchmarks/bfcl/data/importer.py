"""Put a copy of ``bfcl-eval`` into the cache, checked and versioned by content.

Kept are the data, the prompts and the tool classes, as they are in the package. An import lands
whole or not at all: it is written beside its place and renamed into it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ace_ray.benchmarks.bfcl.categories import CATEGORIES
from ace_ray.benchmarks.bfcl.data.loader import function_docs, load, prerequisites
from ace_ray.benchmarks.bfcl.data.upstream_package import (
    OFFICIAL_DATA_SHA256,
    TOOL_MODULES,
    UPSTREAM,
    UpstreamPackage,
    all_files,
    data_files,
)
from ace_ray.benchmarks.bfcl.data.upstream_texts import read_texts
from ace_ray.benchmarks.bfcl.tools.limited import load_classes
from ace_ray.benchmarks.bfcl.tools.sources import tool_sources
from ace_ray.benchmarks.dataset import files_hash, keep
from ace_ray.errors import UserError
from ace_ray.local_files import folder_of

_log = logging.getLogger(__name__)


def import_copy(path: Path | None, *, say: Callable[[str], object] = _log.info) -> Path:
    """Import the copy at ``path`` (a folder or a wheel), or the installed one if that is None;
    return the version's folder.

    Importing the same content again changes nothing. Raises `UserError`, leaving nothing behind.
    """
    if path is None:
        package = UpstreamPackage.locate("installed")
    else:
        path = folder_of(path, "data")
        if not path.exists():
            raise UserError("no such file or folder", where=str(path))
        package = UpstreamPackage.locate(str(path.resolve()))
    files = {name: package.read(name) for name in all_files()}
    rows = Counter(entry.category for entry in load(package))
    # read only to find out now, rather than in a run, that they can be
    function_docs(package), prerequisites(package), read_texts(package)
    load_classes(replace(tool_sources(package), named=True), list(TOOL_MODULES))
    data = files_hash({name: files[name] for name in data_files()})
    target = keep(
        files,
        UPSTREAM.benchmark,
        counted=f"{rows.total():,} rows",
        say=say,
        upstream_version=package.version,
        official_data=data == OFFICIAL_DATA_SHA256,
        source={"path": str(package.root)},
        rows={category: rows[category] for category in CATEGORIES},
    )
    if data != OFFICIAL_DATA_SHA256:
        say(f"its data are not those of the published package: {package.root}")
    return target
