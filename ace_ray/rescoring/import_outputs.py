"""``ace-ray score PATH --benchmark NAME``: turn outputs that another program generated into a run.

The run also has ``verdicts.jsonl``, a line for each output in input order (docs/results.md). The
file is deleted when a judge gives verdicts later.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

import ace_ray
from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.dataset import data_hash
from ace_ray.benchmarks.diagnosis import diagnose
from ace_ray.benchmarks.external_outputs import Entries, Output, UnscoredOutput
from ace_ray.benchmarks.headline import with_scores
from ace_ray.benchmarks.registry import make_benchmark
from ace_ray.benchmarks.validation import user_code
from ace_ray.config.schema import EXTERNAL, RunConfig
from ace_ray.errors import UserError
from ace_ray.pipeline.actors.verdicts import reparse, status_columns
from ace_ray.pipeline.planning.manifest import groups_of
from ace_ray.pipeline.planning.plan import row_id
from ace_ray.pipeline.summary import summarize
from ace_ray.storage.lease import Lease
from ace_ray.storage.object_store import LocalStore, Store
from ace_ray.storage.parts import FOLDER, new_session, part_names, write_parts
from ace_ray.storage.rows import (
    AT_ONCE,
    TIMES,
    TOKENS,
    entry_columns,
    episode_columns,
    rows_schema,
    verdict_columns,
)
from ace_ray.storage.stored import MANIFEST, SUCCESS, SUMMARY, Manifest, as_json, read_manifest
from ace_ray.storage.stored_run import StoredRun
from ace_ray.types import Entry, Episode, Verdict, canonical_json, digest
from ace_ray.util.sanitizing import replace_surrogates

VERDICTS = "verdicts.jsonl"
# Maximum number of outputs without a verdict that the summary names.
_REASONS = 5
# Smallest sample number that is not the input's own. Absent turns count upwards from it. Outputs
# whose sample is a string or too large count downwards from its double, in input order.
_MOST_SAMPLE = 1 << 30


def score_outputs(
    path: Path,
    *,
    benchmark: str,
    data: str | None,
    model: str | None,
    store: Store,
    fresh: bool = False,
    options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Judge the outputs at ``path`` and store them as a run in ``store``. Return its summary.

    The run declares a row for each output, and a skipped row for each missing turn of a dialogue.
    If the outputs cover only some entries, the run counts as limited, as with ``evaluate --limit``.
    All outputs are read before anything is written. ``options`` are the benchmark's, beside
    ``data``. ``model`` is the name of the outputs' model;
    the default is the name of the file or folder. With ``fresh``, the run may replace the run of
    other outputs.

    Raises `UserError` if an output is not of this benchmark, or ``store`` has another run."""
    given = {} if data is None else {"data": data}
    instance = make_benchmark(benchmark, {**(options or {}), **given})
    with user_code(type(instance), "ready"):
        instance.ready(named=True)
    run_id = f"{instance.name}-{digest(str(path.absolute()))[:10]}"
    model_name = model or (path.stem if path.is_file() else path.absolute().name)
    _read_manifest(store, run_id, model_name, fresh)
    with tempfile.TemporaryDirectory(prefix="ace_ray-score-") as folder:
        scratch = LocalStore(folder)
        rows = _Rows(instance, instance.output_entries(), scratch, run_id, model_name)
        with Path(folder, VERDICTS).open("w", encoding="ascii") as verdicts:
            for output in instance.outputs(path, rows.entries):
                # Not `json.dump`, which does not use the C encoder.
                verdicts.write(json.dumps(rows.add(output)) + "\n")
        if not rows.lines:
            problems = ["it contains nothing that can be scored", *rows.notes()]
            raise UserError("; ".join(problems), where=str(path))
        rows.declare_absent_turns()
        manifest = _manifest(rows, path)
        with Lease.acquire(store):
            # Another process may have stored a run since the first check.
            stored = _read_manifest(store, run_id, model_name, fresh)
            if fresh or stored is None or not stored.judging:
                _replace(store, scratch, manifest)
            elif stored.tree["identity"]["rows"] != manifest["identity"]["rows"]:
                problem = "contains a judge's verdicts on earlier outputs of this model"
                fix = "name another --output, or replace the run with --fresh"
                raise UserError(problem, where=store.root, fix=fix)
            return write_imported_summary(store, instance)


def _read_manifest(store: Store, run_id: str, model: str, fresh: bool) -> Manifest | None:
    """Return the manifest of the run in ``store``; None if there is no run. Raises `UserError` if
    ace_ray evaluated the run, or, without ``fresh``, if ``run_id`` or ``model`` differ: then the
    run has other outputs, which must not be replaced."""
    if store.get(MANIFEST) is None:
        return None
    stored = read_manifest(store)
    if stored.config.backend != EXTERNAL:
        problem = "contains a run that ace_ray evaluated, not a run made from external outputs"
        raise UserError(problem, where=store.root, fix="name another --output")
    if not fresh and (stored.run_id, stored.model.source) != (run_id, model):
        problem = f"contains the run of other outputs (model {stored.model.source!r})"
        fix = "name another --output, or replace the run with --fresh"
        raise UserError(problem, where=store.root, fix=fix)
    return stored


def write_imported_summary(store: Store, benchmark: Benchmark) -> dict[str, Any]:
    """Write and return the summary of a stored run of outputs that another program generated.

    It has the keys of a run's summary, the benchmark's numbers, and facts on the outputs."""
    run = StoredRun(store, lambda line: None)
    manifest, ledger = run.manifest, run.ledger
    total = summarize(manifest.tree, {}, ledger.rows, {})
    numbers = benchmark.statistics(ledger.rows(), manifest.config.max_unscored_fraction)
    if findings := diagnose(ledger.rows()):
        numbers = {**numbers, "diagnosis": findings}
    tables = benchmark.tables(numbers)
    block = with_scores(type(benchmark), {**numbers, **tables}, headline=total["headline"])
    summary = {
        "benchmark": benchmark.name,
        "source": manifest.tree.get("outputs", {}),
        "notes": list(_notes(manifest, benchmark.name, total["skipped"])),
        **numbers,
        **total,
        "uri": store.root,
        "ignored_files": ledger.ignored,
        "benchmarks": {benchmark.name: block},
    }
    store.put(SUMMARY, as_json(summary))
    if not total["missing"]:  # otherwise the scoring of the outputs was interrupted
        store.put(SUCCESS, b"")
    return summary


def _notes(manifest: Manifest, benchmark: str, skipped: int) -> Iterator[str]:
    """Yield notes: which part of the entries is answered, and how many turns are missing."""
    if words := manifest.restriction(benchmark).description:
        yield f"{words}; a sample of the benchmark, not its score"
    yield from manifest.outputs.notes
    low, high = manifest.outputs.samples
    if low < high:
        yield f"entries have {low} to {high} outputs"
    if skipped:
        yield (
            f"{skipped} turns of dialogues are not in the input: "
            "these rows are skipped, and their dialogues are not judged"
        )


class _Rows:
    """Collects the rows of a run, and writes them to ``scratch`` in batches."""

    def __init__(
        self, benchmark: Benchmark, entries: Entries, scratch: Store, run_id: str, model: str
    ) -> None:
        self.entries = entries
        self.lines = self.declared = self.unscored = self.absent_turns = 0
        # Hash of all row ids and outputs, in order.
        self.content = hashlib.sha256()
        self.benchmark, self._scratch = benchmark, scratch
        self.run_id, self.model = run_id, model
        self._schema = rows_schema(benchmark.rule_sets)
        self._session = new_session([], os.urandom(3).hex())
        self._waiting: list[dict[str, Any]] = []
        # (language, category) -> entry id -> number of outputs of this entry.
        self.counts: dict[tuple[str, str], Counter[str]] = {}
        self.declared_entries: dict[tuple[str, str, str], Entry] = {}
        # Reasons of the first outputs without a verdict.
        self._reasons: list[str] = []
        self._samples: dict[str, int] = {}

    def add(self, output: Output | UnscoredOutput) -> dict[str, Any]:
        """Add the row of an output. Return the output's line of ``verdicts.jsonl``."""
        entry, benchmark = output.entry, self.benchmark
        line = {name: getattr(entry, name, None) for name in ("language", "category", "id")}
        line["sample"] = output.sample
        if entry is not None:
            self.counts.setdefault(entry.category_key, Counter())[entry.id] += 1
        if isinstance(output, UnscoredOutput):
            self.unscored += 1
            if self.unscored <= _REASONS:
                self._reasons.append(f"{output.location}: {output.reason}")
            if entry is not None:
                status = {"status": "infra_error", "error": replace_surrogates(output.reason)}
                self._add(entry, self._sample_number(output.sample), status, Episode(), {})
            line |= dict.fromkeys(benchmark.rule_sets)
            return {**line, "where": output.location, "not_scored": output.reason}
        entry, episode = output.entry, output.episode
        with user_code(type(benchmark), f"check of entry {entry.id!r}"):
            verdicts = benchmark.verdicts(entry, episode)
        again = reparse(benchmark, entry, episode)
        number, status = self._sample_number(output.sample), status_columns(verdicts)
        self._add(entry, number, status, episode, verdicts, again)
        self.lines += 1
        for rules, verdict in verdicts.items():
            outcome = {name: getattr(verdict, name) for name in ("valid", "error_type", "error")}
            line[rules] = {**outcome, **verdict.metrics}
        return line

    def notes(self) -> list[str]:
        """Return the remarks about the input, and a line about outputs without a verdict."""
        notes = [f"{remark}: {count:,}" for remark, count in self.entries.remarks.items()]
        if not self.unscored:
            return notes
        more = self.unscored - len(self._reasons)
        reasons = [*self._reasons, *([f"and {more} more, see {VERDICTS}"] if more else [])]
        return [*notes, f"not scored: {self.unscored} of the input ({'; '.join(reasons)})"]

    def declare_absent_turns(self) -> None:
        """Add skipped rows for missing turns of answered dialogues, and write the waiting rows.

        Otherwise a dialogue would count as correct if all its answered turns are correct."""
        absent = {"status": "skipped", "error": "not in the input"}
        for (language, category), times in self.counts.items():
            every = self.entries.entries_of(language, category)
            turn_counts: Counter[str] = Counter()
            for entry_id, count in times.items():
                group = every[entry_id].group or entry_id
                turn_counts[group] = max(turn_counts[group], count)
            for entry in every.values():
                # An entry outside a dialogue is a group of one entry, in which none is missing.
                for missing in range(turn_counts[entry.group or entry.id] - times[entry.id]):
                    self._add(entry, _MOST_SAMPLE + missing, absent, Episode(), {})
                    self.absent_turns += 1
        self._write()

    def _sample_number(self, sample: int | str) -> int:
        if isinstance(sample, int) and 0 <= sample < _MOST_SAMPLE:
            return sample
        number = 2 * _MOST_SAMPLE - 1 - len(self._samples)
        return self._samples.setdefault(json.dumps(sample), number)

    def _add(
        self,
        entry: Entry,
        sample: int,
        status: Mapping[str, Any],
        episode: Episode,
        verdicts: Mapping[str, Verdict],
        second_reading: str | None = None,
    ) -> None:
        self.declared += 1
        self.declared_entries[entry.key] = entry
        content = digest(entry.benchmark, entry.content_hash())
        row = {
            "row_id": row_id(content, f"{status['status']} {sample}"),
            "run_id": self.run_id,
            "model": self.model,
            **entry_columns(entry),
            "sample": sample,
            "repeat": 0,
            **status,
            "attempts": 1,
            **episode_columns(episode),
            # The formats contain neither token counts nor times.
            **dict.fromkeys((*TOKENS, *TIMES)),
            **verdict_columns(verdicts, self.benchmark.rule_sets),
            "second_reading": second_reading,
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


def _manifest(rows: _Rows, path: Path) -> dict[str, Any]:
    benchmark, name, run_id = rows.benchmark, rows.benchmark.name, rows.run_id
    section = {"name": benchmark.source or name, **benchmark.resolved()}
    every = [entry for key in rows.counts for entry in rows.entries.entries_of(*key).values()]
    counts = [count for times in rows.counts.values() for count in times.values()]
    model = {"source": rows.model}
    tree: dict[str, Any] = {"model": model, "benchmarks": [section], "backend": EXTERNAL}
    if len(counts) < len(every):
        tree["limit"] = len(counts)
    if rows.absent_turns:
        # Absent turns cannot arrive later, so they must not withhold the headline.
        tree["max_unscored_fraction"] = 1.0
    config = RunConfig.model_validate(tree)
    content = rows.content.hexdigest()
    return {
        "schema_version": 1,
        "run_id": run_id,
        "ace_ray_version": ace_ray.__version__,
        "declared": rows.declared,
        "rule_sets": {name: list(benchmark.rule_sets)},
        "groups": {name: groups_of(benchmark)},
        "entries": {name: data_hash(rows.declared_entries.values())},
        "config": config.model_dump(mode="json") | {"run_id": run_id},
        "model": {**model, "kind": EXTERNAL, "revision": content},
        "identity": {
            "model": content,
            "backend": EXTERNAL,
            "benchmarks": {name: {"data_sha256": data_hash(every)}},
            # The sampling of the outputs is unknown.
            "sampling": [{}],
            "rows": content,
        },
        "outputs": {
            "path": str(path),
            "format": "jsonl" if path.is_file() and path.suffix == ".jsonl" else "official",
            "lines": rows.lines,
            "not_scored": rows.unscored,
            "notes": rows.notes(),
            "of": len(every),
            "samples": [min(counts), max(counts)],
            "categories": list(map(list, rows.counts)),
        },
    }


def _replace(store: Store, scratch: Store, manifest: Mapping[str, Any]) -> None:
    """Replace the run in ``store`` with ``manifest`` and the rows and verdicts in ``scratch``."""
    # If this is interrupted, no rows or numbers of the old run must be beside the new manifest.
    for name in (SUCCESS, SUMMARY, *part_names(store)):
        store.delete(name)
    store.put(MANIFEST, as_json(manifest))
    for name in (*(item.path for item in scratch.list(FOLDER)), VERDICTS):
        content = scratch.get(name)
        assert content is not None  # `_Rows` and `score_outputs` have written it
        store.put(name, content)
