"""``ace-ray score PATH --benchmark NAME``: outputs that were made elsewhere become a run.

Besides the run's own files, ``verdicts.jsonl`` has a line for each output, in the order in which
they came (docs/results.md).
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

import ace_ray
from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.checked import own_code
from ace_ray.benchmarks.dataset import data_hash
from ace_ray.benchmarks.diagnosis import diagnose
from ace_ray.benchmarks.headline import with_scores
from ace_ray.benchmarks.outputs import Entries, Output, Unscored
from ace_ray.benchmarks.registry import make_benchmark
from ace_ray.config import EXTERNAL, RunConfig
from ace_ray.errors import UserError
from ace_ray.records import Entry, Episode, Status, Verdict, canonical_json, digest
from ace_ray.run.actors.judging import read_again
from ace_ray.run.planning.plan import groups_of, row_id
from ace_ray.run.storage.lease import Lease
from ace_ray.run.storage.parts import FOLDER, new_session, part_names, stored_rows, write_parts
from ace_ray.run.storage.rows import (
    AT_ONCE,
    ResultRow,
    clean,
    entry_columns,
    episode_columns,
    rows_schema,
    verdict_columns,
)
from ace_ray.run.storage.stored import MANIFEST, SUMMARY, Manifest, read_manifest
from ace_ray.run.summary import SUCCESS, as_json, summarize
from ace_ray.store import LocalStore, Store

VERDICTS = "verdicts.jsonl"
_REASONS = 5
"""Outputs without a verdict that the summary names one by one."""
Say = Callable[[str], None]
_MOST_SAMPLE = 1 << 30
"""Samples of a larger number, or with a name, are numbered down from twice as much, as they come;
absent ones up from here."""


def score_outputs(
    path: Path, *, benchmark: str, data: str | None, model: str | None, store: Store, say: Say
) -> dict[str, Any]:
    """Judge the outputs at ``path`` and store them as a run in ``store``; returns its summary.

    The run declares every entry of the categories that the outputs touch, as often as their most
    frequent entry came; one that is absent is a skipped row. Nothing is written before all outputs
    have been read. ``model`` names who made them; by default the path does.

    Raises `UserError`: an output is none of the benchmark's, or the folder holds something else.
    """
    made = make_benchmark(benchmark, {} if data is None else {"data": data})
    with own_code(type(made), "ready"):
        made.ready(named=True)
    if store.get(MANIFEST) is not None and read_manifest(store).config.backend != EXTERNAL:
        raise UserError(
            "holds a run that was evaluated", where=store.root, fix="name another --output"
        )
    with tempfile.TemporaryDirectory(prefix="ace_ray-score-") as folder:
        scratch = LocalStore(folder)
        run_id = _run_id(made.name, path)
        named = model or _model_of(path)
        rows = _Rows(made, made.output_entries(), scratch, run_id, named)
        with Path(folder, VERDICTS).open("w", encoding="ascii") as verdicts:
            for output in made.outputs(path, rows.entries):
                # dumps, not dump: only the former runs in C
                verdicts.write(json.dumps(rows.add(output)) + "\n")
        if not rows.lines:
            raise UserError(
                "; ".join(["nothing in it can be scored", *rows.notes()]), where=str(path)
            )
        rows.declare_absent()
        manifest = _manifest(made, rows, path, run_id, named)
        lease = Lease.acquire(store, say)
        try:
            _replace(store, scratch, manifest)
            return summarized(store, made)
        finally:
            lease.release()


def summarized(store: Store, benchmark: Benchmark) -> dict[str, Any]:
    """Write and return the summary of a stored run of outputs made elsewhere: that of any run, and
    at its top the benchmark's own numbers and where the outputs came from."""
    manifest = read_manifest(store)
    ledger = stored_rows(store, manifest)
    total = summarize(manifest.tree, {}, ledger.rows, {})
    numbers = benchmark.statistics(ledger.rows(), manifest.config.max_unscored)
    findings = [finding.as_json() for finding in diagnose(ledger.rows())]
    if findings:
        numbers = {**numbers, "diagnosis": findings}
    absent = f"{total['skipped']} rows of these categories are not in the input; they count skipped"
    notes = [absent] if total["skipped"] else []
    outputs = manifest.tree["outputs"]
    said = outputs.get("notes") if isinstance(outputs, dict) else None
    notes += map(str, said) if isinstance(said, list) else []  # the run may be another's
    summary = {
        "benchmark": benchmark.name,
        "source": outputs,
        "notes": notes,
        **total,
        "uri": store.root,
        "benchmarks": {
            benchmark.name: with_scores(
                type(benchmark),
                {**numbers, **benchmark.tables(numbers)},
                headline=total["headline"],
            )
        },
        **numbers,
    }
    store.put(SUMMARY, as_json(summary))
    store.put(SUCCESS, b"")
    return summary


def declared_entries(
    benchmark: Benchmark, manifest: Manifest, rows: Iterable[ResultRow]
) -> Sequence[Entry]:
    """The entries that a stored run declares; of outputs made elsewhere those of the categories
    that they touch."""
    if manifest.config.backend != EXTERNAL:
        return benchmark.dataset()
    entries = benchmark.output_entries()
    touched: dict[tuple[str, str], None] = {}
    for row in rows:
        entries.get(row.language, row.category, row.id)  # may be one that `of` lacks
        touched[row.language, row.category] = None
    return [entry for key in touched for entry in entries.of(*key).values()]


class _Rows:
    """The rows of a run, written to ``scratch`` as they come; few are held at a time."""

    def __init__(
        self, benchmark: Benchmark, entries: Entries, scratch: Store, run_id: str, model: str
    ) -> None:
        self.entries = entries
        self.lines = self.declared = self.unscored = 0
        self.content = hashlib.sha256()
        """Of all rows' ids and outputs, in order."""
        self._benchmark, self._scratch = benchmark, scratch
        self._run_id, self._model = run_id, model
        self._schema = rows_schema(benchmark.rule_sets)
        self._session = new_session([], os.urandom(3).hex())
        self._waiting: list[dict[str, Any]] = []
        self._came: dict[tuple[str, str], Counter[str]] = {}
        self._reasons: list[str] = []
        """Why the first outputs got no verdict."""
        self._samples: dict[str, int] = {}

    def add(self, output: Output | Unscored) -> dict[str, Any]:
        """Add an output's row; returns the line of ``verdicts.jsonl``."""
        if isinstance(output, Unscored):
            return self._leave_out(output)
        entry, episode = output.entry, output.episode
        with own_code(type(self._benchmark), f"check of entry {entry.id!r}"):
            verdicts = self._benchmark.verdicts(entry, episode)
        self._came.setdefault((entry.language, entry.category), Counter())[entry.id] += 1
        again = read_again(self._benchmark, entry, episode)
        self._add(entry, self._number(output.sample), "scored", episode, verdicts, again)
        self.lines += 1
        return {
            "language": entry.language,
            "category": entry.category,
            "id": entry.id,
            "sample": output.sample,
            **{
                rules: {
                    "valid": verdict.valid,
                    "error_type": verdict.error_type,
                    "error": verdict.error,
                    **verdict.metrics,
                }
                for rules, verdict in verdicts.items()
            },
        }

    def _leave_out(self, output: Unscored) -> dict[str, Any]:
        self.unscored += 1
        if self.unscored <= _REASONS:
            self._reasons.append(f"{output.where}: {output.reason}")
        entry = output.entry
        if entry is not None:
            self._came.setdefault((entry.language, entry.category), Counter())[entry.id] += 1
            self._add(
                entry, output.sample, "infra_error", Episode(), {}, error=clean(output.reason)
            )
        return {
            "language": entry.language if entry else None,
            "category": entry.category if entry else None,
            "id": entry.id if entry else None,
            "sample": output.sample,
            **dict.fromkeys(self._benchmark.rule_sets),
            "where": output.where,
            "not_scored": output.reason,
        }

    def notes(self) -> list[str]:
        """Return one line about the outputs without a verdict, if there are any."""
        if not self.unscored:
            return []
        more = self.unscored - len(self._reasons)
        named = [*self._reasons, *([f"and {more} more, see {VERDICTS}"] if more else [])]
        return [f"not scored: {self.unscored} of the input ({'; '.join(named)})"]

    def declare_absent(self) -> None:
        """Add what a complete file would hold beyond what came, and write what waits."""
        for (language, category), times in self._came.items():
            most = max(times.values())
            for entry in self.entries.of(language, category).values():
                for missing in range(most - times[entry.id]):
                    self._add(entry, _MOST_SAMPLE + missing, "skipped", Episode(), {})
        self._write()

    def touched(self) -> Iterator[Entry]:
        """Every entry of the categories that outputs answer."""
        for language, category in self._came:
            yield from self.entries.of(language, category).values()

    def _number(self, sample: int | str) -> int:
        if isinstance(sample, int) and 0 <= sample < _MOST_SAMPLE:
            return sample
        return self._samples.setdefault(
            json.dumps(sample), 2 * _MOST_SAMPLE - 1 - len(self._samples)
        )

    def _add(
        self,
        entry: Entry,
        sample: int,
        status: Status,
        episode: Episode,
        verdicts: Mapping[str, Verdict],
        second_reading: str | None = None,
        error: str | None = None,
    ) -> None:
        self.declared += 1
        row = {
            "row_id": row_id(digest(entry.benchmark, entry.content_hash()), f"{status} {sample}"),
            "run_id": self._run_id,
            "model": self._model,
            **entry_columns(entry),
            "sample": sample,
            "repeat": 0,
            "status": status,
            "attempts": 1,
            "duration_s": 0.0,
            **episode_columns(episode),
            **verdict_columns(verdicts, self._benchmark.rule_sets),
            "second_reading": second_reading,
            "error": error,
        }
        state = None if episode.state is None else canonical_json(episode.state)
        self.content.update(digest(row["row_id"], row["output"], state).encode())
        self._waiting.append(row)
        if len(self._waiting) == AT_ONCE:
            self._write()

    def _write(self) -> None:
        if self._waiting:
            table = pa.Table.from_pylist(self._waiting, schema=self._schema)
            write_parts(self._scratch, self._session, table)
            self._waiting = []


def _manifest(
    benchmark: Benchmark, rows: _Rows, path: Path, run_id: str, model: str
) -> dict[str, Any]:
    name = benchmark.name
    section = {"name": benchmark.source or name, **benchmark.resolved()}
    config = RunConfig.model_validate(
        {"model": {"source": model}, "benchmarks": [section], "backend": EXTERNAL}
    )
    content = rows.content.hexdigest()
    touched = list(rows.touched())
    return {
        "schema_version": 1,
        "run_id": run_id,
        "ace_ray_version": ace_ray.__version__,
        "declared": rows.declared,
        "rule_sets": {name: list(benchmark.rule_sets)},
        "groups": {name: groups_of(benchmark)},
        "entries": {name: data_hash(touched)},
        "config": config.model_dump(mode="json") | {"run_id": run_id},
        "model": {"source": model, "kind": EXTERNAL, "revision": content},
        "identity": {
            "model": content,
            "backend": EXTERNAL,
            "benchmarks": {name: {"data_sha256": data_hash(touched)}},
            # Nothing is known of how the outputs were drawn.
            "sampling": [{}],
            "rows": content,
        },
        "outputs": {
            "path": str(path),
            "format": "jsonl" if path.is_file() and path.suffix == ".jsonl" else "official",
            "lines": rows.lines,
            "not_scored": rows.unscored,
            "notes": rows.notes(),
        },
    }


def _replace(store: Store, scratch: Store, manifest: Mapping[str, Any]) -> None:
    """Make the folder of ``store`` the run that lies in ``scratch``."""
    for name in (SUCCESS, SUMMARY):  # a summary never stands beside rows of another run
        if store.get(name) is not None:
            store.delete(name)
    old = set(part_names(store))
    store.put(MANIFEST, as_json(manifest))
    new = [item.path for item in scratch.list(FOLDER)]
    for name in (*new, VERDICTS):
        content = scratch.get(name)
        assert content is not None  # written above
        store.put(name, content)
    for name in old - set(new):
        store.delete(name)


def _run_id(benchmark: str, path: Path) -> str:
    return f"{benchmark}-{digest(str(path.absolute()))[:10]}"


def _model_of(path: Path) -> str:
    return path.stem if path.is_file() else path.absolute().name
