"""A copy of the package ``bfcl_eval`` with few rows, and the mini set."""

import json
import shutil
from pathlib import Path
from typing import Any

from ace_ray.benchmarks.bfcl.benchmark import BFCL
from ace_ray.benchmarks.bfcl.data import upstream_package
from ace_ray.benchmarks.bfcl.data.loader import function_docs
from ace_ray.benchmarks.bfcl.data.upstream_package import MINI, VERSION, UpstreamPackage
from ace_ray.types import Entry

COPY = UpstreamPackage.locate("mini")
DOCS = function_docs(COPY)
"""Functions of the mini set."""


def write_copy(folder: Path, package: UpstreamPackage, version: str | None = VERSION) -> Path:
    """Write ``bfcl_eval`` into ``folder``, and its metadata if a version is given.

    It has the rows of the mini set. Everything else is of ``package``; of unused files the first
    row."""
    root = folder / "bfcl_eval"
    shutil.copytree(MINI / "data", root / "data")
    docs = root / "data" / "multi_turn_func_doc"
    (docs / "bakery.json").rename(docs / upstream_package.DOC_FILES["TicketAPI"])
    for path in (root / "data").glob("BFCL_v4_multi_turn_*.json"):
        path.write_text(path.read_text().replace("Bakery", "TicketAPI"))
    for name in upstream_package.all_files():
        if not (root / name).exists():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            content = package.read(name)
            first = content.partition(b"\n")[0]
            (root / name).write_bytes(first if "unused_datasets" in name else content)
    # An import of the package raises.
    (root / "__init__.py").write_text("raise AssertionError('bfcl_eval was imported')\n")
    if version is not None:
        info = folder / f"bfcl_eval-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: bfcl-eval\nVersion: {version}\n\nVersion: 0\n"
        )
    return folder


def edit_line(path: Path, number: int, change) -> None:
    """Change the JSON object in a line, counted from 1; a change to None takes the line away."""
    lines = path.read_text().splitlines()
    changed = change(json.loads(lines[number - 1]))
    lines[number - 1 : number] = [] if changed is None else [json.dumps(changed)]
    path.write_text("\n".join(lines) + "\n")


def bfcl(*categories: str, **options: Any) -> BFCL:
    chosen = {"categories": list(categories)} if categories else {}
    return BFCL.from_options({**chosen, **options})


def entry_of(benchmark: BFCL, category: str) -> Entry:
    return next(entry for entry in benchmark.entries() if entry.category == category)
