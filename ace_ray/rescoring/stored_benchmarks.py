"""Load the benchmarks of a stored run without trusting its ``run.json``, which may be a stranger's.

Commands that judge stored rows use installed benchmarks, and local files that the command names.
They use no model, adapter, template, store, endpoint, role or tracker of the stored config."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.dataset import data_hash
from ace_ray.benchmarks.registry import is_local
from ace_ray.config.schema import EXTERNAL, BenchmarkConfig, RunConfig, validate_tree
from ace_ray.errors import UserError
from ace_ray.pipeline.planning.preflight import make_benchmarks
from ace_ray.storage.object_store import Store
from ace_ray.storage.stored import MANIFEST
from ace_ray.storage.stored_run import StoredRun
from ace_ray.types import Entry


class StoredBenchmarks:
    """The benchmarks of the stored ``run``, with the entries of its rows.

    ``choices``: the benchmarks that the command names. A local file is executed only if it is among
    them. ``changes`` are new values of options, such as ``data``, of one benchmark: the only one in
    ``choices``, or else in the run. Code in other data is executed only if its hash is known.

    Raises `UserError`: the command must name code or data, the benchmarks have changed, or
    ``changes`` would change what the run measured."""

    def __init__(
        self, run: StoredRun, choices: Sequence[str], changes: Mapping[str, Any] | None = None
    ) -> None:
        self._run, manifest, store = run, run.manifest, run.store
        config = validate_tree(RunConfig, manifest.tree["config"], where=f"{store.root}/{MANIFEST}")
        sections = [_use_trusted_file(section, choices, store) for section in config.benchmarks]
        names = [section.name for section in sections]
        # Name of the benchmark whose data or options the user named.
        self._owner = _owner_of(changes, names, choices, store) if changes else ""
        sections = [
            _change_options(section, changes or {}, store)
            if section.name == self._owner
            else section
            for section in sections
        ]
        config = config.model_copy(update={"benchmarks": sections})
        self.by_name = {benchmark.name: benchmark for benchmark in make_benchmarks(config)}
        if config.backend == EXTERNAL and len(self.by_name) != 1:
            problem = "outputs of another program have one benchmark, this run has several"
            raise UserError(problem, where=store.root, fix="name an intact run")
        for name, benchmark in self.by_name.items():
            if benchmark.rule_sets != manifest.rule_sets_of(name):
                raise UserError(
                    f"the rule sets of {name} have changed since this run "
                    f"({', '.join(manifest.rule_sets_of(name))})",
                    where=store.root,
                    fix="evaluate the run again",
                )
        self._entries: dict[tuple[str, str, str, str], Entry] = {}

    def read(self) -> None:
        """Read the entries from which the rows were made, and load the code of their tools.
        Raises `UserError` if the data is not the data of the run, or lacks a row's entry."""
        for name, benchmark in self.by_name.items():
            entries = run_entries(benchmark, self._run)
            self._entries |= {(name, *entry.key): entry for entry in entries}
            benchmark.ready(named=name == self._owner)
        for row in self._run.ledger.rows():  # rows that are not judged have statistics too
            self._entry(row.path)

    def find_entry(self, row: Mapping[str, Any]) -> tuple[Benchmark, Entry]:
        """Return the benchmark and the entry of a row."""
        key = (row["benchmark"], row["language"], row["category"], row["id"])
        return self.by_name[row["benchmark"]], self._entry(key)

    def _entry(self, key: tuple[str, str, str, str]) -> Entry:
        if key not in self._entries:
            problem = f"the data does not contain the entry {key} of a row"
            fix = "name the data with which the run was evaluated"
            raise UserError(problem, where=self._run.uri, fix=fix)
        return self._entries[key]


def _use_trusted_file(
    section: BenchmarkConfig, choices: Sequence[str], store: Store
) -> BenchmarkConfig:
    """Return ``section``, with its local benchmark file replaced by the file in ``choices``. Raises
    `UserError` if ``choices`` lacks the file: a file that only the run names is not trusted."""
    if not is_local(section.name):
        return section
    files = {name.rpartition(":")[2]: name for name in choices if is_local(name)}
    trusted = files.get(section.name.rpartition(":")[2])
    if trusted is None:
        problem = f"the run's checks are in a local file, {section.name}"
        fix = "if you trust that code, name it with --benchmark FILE.py:CLASS"
        raise UserError(problem, where=store.root, fix=fix)
    return section.model_copy(update={"name": trusted})


def _change_options(
    section: BenchmarkConfig, changes: Mapping[str, Any], store: Store
) -> BenchmarkConfig:
    """Return ``section`` with ``changes``. Raises `UserError` if an option other than ``data`` has
    another value than in the run, and is not an existing file."""
    for key, value in changes.items():
        may_move = key == "data" or (isinstance(value, str) and os.path.exists(value))
        if not may_move and section.options.get(key, value) != value:
            problem = f"the run was made with {key} = {section.options[key]!r:.100}"
            fix = f"name only files that have moved; for another {key}, evaluate again"
            raise UserError(problem, where=store.root, fix=fix)
    return section.model_copy(update=changes)


def _owner_of(
    changes: Mapping[str, Any], names: Sequence[str], choices: Sequence[str], store: Store
) -> str:
    """Return the one of ``names``, the run's benchmarks, whose options are ``changes``."""
    (name,) = choices if len(choices) == 1 else names if len(names) == 1 else ("",)
    if name not in names:
        which = f"no benchmark {name!r}" if name else "several benchmarks"
        fix = f"name the one of {', '.join(changes)} with --benchmark: {' or '.join(names)}"
        raise UserError(f"the run has {which}", where=store.root, fix=fix)
    return name


def run_entries(benchmark: Benchmark, run: StoredRun) -> Sequence[Entry]:
    """Return the entries from which a stored run selected its entries by ``ids`` and ``limit``.

    For outputs of another program these are all entries of the answered categories, and other
    entries that its rows name, such as tau2-bench's tasks outside the base split. Raises
    `UserError` if the run was made with other entries."""
    name, manifest = benchmark.name, run.manifest
    if manifest.config.backend == EXTERNAL:
        every = benchmark.output_entries()
        for row in run.ledger.rows():
            every.get(row.language, row.category, row.id)  # adds an entry that `find_entry` lacks
        groups = [every.entries_of(*key).values() for key in manifest.outputs.categories]
        entries: Sequence[Entry] = [entry for group in groups for entry in group]
        # This hash covers all entries of the answered categories, even those without an answer.
        sha256 = manifest.identity.benchmarks.get(name, {}).get("data_sha256")
    else:
        entries, sha256 = benchmark.dataset(), manifest.entries.get(name)
    if sha256 is not None and sha256 != data_hash(entries):
        problem = f"the data of {name} differs from the data of this run"
        fix = "restore the data (its hash is in run.json), or evaluate the run again"
        raise UserError(problem, where=run.uri, fix=fix)
    return entries
