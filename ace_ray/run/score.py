"""``ace-ray score PATH --benchmark NAME``: outputs that were made elsewhere become a run.

Besides the run's own files, ``verdicts.jsonl`` has a line for each output, in the order in which
they came (docs/results.md).
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.registry import benchmark_class
from ace_ray.config import EXTERNAL
from ace_ray.errors import UserError
from ace_ray.run.storage.lease import Lease
from ace_ray.run.storage.parts import part_names, read_ledger
from ace_ray.run.storage.rows import rows_schema
from ace_ray.run.storage.stored import MANIFEST, SUMMARY, read_manifest
from ace_ray.run.summary import SUCCESS, as_json, conclude, summarize
from ace_ray.store import LocalStore, Store

VERDICTS = "verdicts.jsonl"
Say = Callable[[str], None]
_MOST_SAMPLE = 1 << 30
"""Samples with a larger number, or a name, are numbered from here, in the order of their coming."""


def score_outputs(
    path: Path,
    *,
    benchmark: str,
    data: str | None,
    model: str | None,
    output: Store,
    say: Say,
) -> tuple[int, dict[str, Any]]:
    """Judge the outputs at ``path`` and store them as a run in ``output``.

    The run declares every entry of the categories that the outputs touch, as often as their most
    frequent entry came; an output that is absent is a skipped row. Nothing is written before every
    output has been read. Returns (exit code, summary).

    Raises `UserError`: an output is none of the benchmark's, or the folder holds something else.
    """
    made = benchmark_class(benchmark).from_options({} if data is None else {"data": data})
    made.ready(named=True)
    held = output.get(MANIFEST)
    if held is not None and read_manifest(output).config.backend != EXTERNAL:
        raise UserError(
            "holds a run that was evaluated", where=output.root, fix="name another --output"
        )
    with tempfile.TemporaryDirectory(prefix="ace_ray-score-") as folder:
        scratch = LocalStore(folder)
        scored = _Scored(made, scratch)
        with open(Path(folder, VERDICTS), "w", encoding="ascii") as verdicts:
            for one in made.outputs(path):
                # dumps, not dump: only the former runs in C
                verdicts.write(json.dumps(scored.add(one)) + "\n")
        if not scored.lines:
            raise UserError("holds no outputs", where=str(path))
        scored.finish()
        manifest = _manifest(scored, path, benchmark, model or _named(path))
        lease = Lease.acquire(output, say)
        try:
            old = part_names(output)
            for name in (SUCCESS, SUMMARY):  # a summary never stands beside other rows
                if output.get(name) is not None:
                    output.delete(name)
            output.put(MANIFEST, as_json(manifest))
            for item in scratch.list("rows/"):
                output.put(item.path, _content(scratch, item.path))
            output.put(VERDICTS, _content(scratch, VERDICTS))
            for name in set(old) - {item.path for item in scratch.list("rows/")}:
                output.delete(name)
            return summarized(output, made)
        finally:
            lease.release()


def summarized(store: Store, benchmark: Benchmark) -> tuple[int, dict[str, Any]]:
    """Write the summary of a stored run of outputs made elsewhere: a run's, with the benchmark's
    own numbers and ``source`` at the top. Returns (exit code, summary)."""
    manifest = read_manifest(store)
    ledger = read_ledger(store, schema=rows_schema(manifest.all_rule_sets()))
    total = summarize(manifest.tree, {}, ledger.rows, {})
    unscored = float(manifest.config.max_unscored)
    first = (row for row in ledger.rows() if not row.repeat)
    block = benchmark.statistics(first, unscored)
    skipped = total["skipped"]
    absent = f"{skipped} rows of these categories are not in the input; they count skipped"
    source: dict[str, Any] = manifest.tree["outputs"]
    summary = {
        **total,
        "uri": store.root,
        "benchmark": benchmark.name,
        "source": source,
        "notes": [absent] if skipped else [],
        **block,
        "benchmarks": {benchmark.name: {**block, **benchmark.tables(block)}},
    }
    return conclude(store, summary), summary
