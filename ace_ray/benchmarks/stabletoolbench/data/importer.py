"""Put the queries of a checkout into the cache, checked and versioned by content.

Kept under their paths in the checkout are the queries, the ids, the licence, and where they are
there the sources that hold official prompts, so that a version serves as a small checkout. An
import lands whole or not at all: it is written beside its place and renamed into it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from ace_ray.benchmarks.dataset import files_hash, keep, read_inside
from ace_ray.benchmarks.stabletoolbench.data.loader import (
    QUERIES,
    files_of,
    load,
    queries_folder,
)
from ace_ray.benchmarks.stabletoolbench.groups import BENCHMARK, GROUPS
from ace_ray.benchmarks.stabletoolbench.prompts import SOURCES, read_texts
from ace_ray.local_files import folder_of

OFFICIAL_COMMIT = "aa4ed9f4737ad98bd706663f01d63623c3427812"
OFFICIAL_QUERIES_SHA256 = "1e32a40b0df67aec9a74f2173f77775b9d0b3959eaa2a396716e420797dee1d6"
"""What `files_hash` gives for the queries and ids of that commit."""
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
    path = folder_of(path, "data").resolve()
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
    official = files_hash(files) == OFFICIAL_QUERIES_SHA256
    files |= _beside(path)
    target = keep(
        files,
        BENCHMARK,
        cache=cache,
        counted=f"{rows.total():,} queries",
        say=say,
        official_queries=official,
        commit=OFFICIAL_COMMIT if official else None,
        source={"path": str(path)},
        rows={group: rows[group] for group in GROUPS},
    )
    for line in loaded.warnings:
        say(line)
    if not official:
        say(f"its queries are not those of commit {OFFICIAL_COMMIT[:12]}: {path}")
    if SOURCES[0] not in files:
        say(f"{path} is no checkout: official prompts are not available from it")
    return target


def _beside(path: Path) -> dict[str, bytes]:
    """The licence and the sources of ``path``; without the agent's prompts it is no checkout."""
    root = path.parent if path.name == QUERIES else path
    names = [LICENSE]
    if any((root / name).exists() for name in SOURCES):
        read_texts(root)  # only to find out now, rather than in a run, that they can be read
        names += [*SOURCES, *OTHER_SOURCES]
    return {name: read_inside(root, name) for name in names if (root / name).exists()}
