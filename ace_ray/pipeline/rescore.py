"""``ace-ray score RUN`` and ``ace-ray compact RUN``: change a stored run, without an engine."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

import ace_ray
from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.dataset import data_hash
from ace_ray.benchmarks.registry import is_local
from ace_ray.config.schema import EXTERNAL, RunConfig, validated
from ace_ray.errors import COMPLETE, UserError
from ace_ray.pipeline.actors.judging import judged
from ace_ray.pipeline.planning.preflight import make_benchmarks
from ace_ray.pipeline.score import summarized
from ace_ray.pipeline.summary import finish
from ace_ray.storage.lease import Lease
from ace_ray.storage.object_store import Store, open_store
from ace_ray.storage.parts import Ledger, compact, new_session, part_names, stored_rows, write_parts
from ace_ray.storage.rows import AT_ONCE, CHECK_FAILED, ResultRow, episode_of, rows_of
from ace_ray.storage.stored import MANIFEST, Manifest, earlier_summary, read_manifest
from ace_ray.types import CHECKED, Entry

Say = Callable[[str], None]
# Opens a URI. The S3 endpoint comes from the command or the environment, never from a run's config.
Opens = Callable[[str], Store]


def rescore(
    uri: str,
    say: Say,
    opens: Opens = open_store,
    *,
    data: str | None = None,
    named: Sequence[str] = (),
) -> tuple[int, dict[str, Any]]:
    """Judge the stored episodes of a run again with this version's checks. Replace the verdicts.

    The entries come from the data that the run's config names. If ``data`` is given, it replaces
    this data for one benchmark: the only one in ``named``, or else the only one of the run.
    ``named`` has the benchmarks that the user named in the command.

    Code that only a stored run names is not trusted. If such code is in a benchmark's data, it is
    executed only if its hash is known. A local benchmark file is executed only if ``named``
    contains it.

    Row ids do not change. Rows whose check raised an exception are judged again; other rows without
    a verdict do not change. New parts are stored before old ones are deleted.

    Return (exit code, summary). Raises `UserError` if ``uri`` is not a run, another driver has its
    lease, or the benchmark's data is not the data of the run."""
    with _leased(uri, say, opens) as (store, manifest, lease):
        config = validated(RunConfig, manifest.tree["config"], where=f"{store.root}/{MANIFEST}")
        config = _with_named_code(config, named, store)
        owner = ""
        if data is not None:
            config, owner = _with_data(config, data, named, store)
        benchmarks = {b.name: b for b in make_benchmarks(config)}
        for name, made in benchmarks.items():
            if made.rule_sets != manifest.rule_sets_of(name):
                raise UserError(
                    f"the rule sets of {name} have changed since this run "
                    f"({', '.join(manifest.rule_sets_of(name))})",
                    where=store.root,
                    fix="evaluate the run again",
                )
        entries: dict[tuple[str, str, str, str], Entry] = {}
        ledger = stored_rows(store, manifest, say)
        for name, made in benchmarks.items():
            own = run_entries(made, manifest, ledger.rows(), store)
            entries |= {(name, e.category, e.language, e.id): e for e in own}
            made.ready(named=name == owner)
        session = new_session(part_names(store), os.urandom(3).hex())
        changed: Counter[str] = Counter()
        for table in ledger.tables(ledger.schema.names):
            done, rows = list[pa.Table](), list[dict[str, Any]]()
            for row in rows_of(table):
                if len(rows) == AT_ONCE:
                    done.append(pa.Table.from_pylist(rows, schema=ledger.schema))
                    rows = []
                key = (row["benchmark"], row["category"], row["language"], row["id"])
                if row["error_class"] == CHECK_FAILED:
                    row |= {"status": "scored", "error_class": None, "error": None}
                if row["status"] not in CHECKED:
                    rows.append(row)
                    continue
                episode_of(row)  # raises for a damaged run, which must not count as a failed check
                if key not in entries:
                    raise UserError(
                        f"the data does not contain the entry {key} of a row",
                        where=store.root,
                        fix="name the data with which the run was evaluated",
                    )
                new = judged(row, entries[key], benchmarks[row["benchmark"]], log=lambda: None)
                changed.update(_changes(row, new, ledger.rule_sets))
                rows.append(new)
            done.append(pa.Table.from_pylist(rows, schema=ledger.schema))
            write_parts(store, session, pa.concat_tables(done))
        lease.check()
        for name in ledger.parts:
            store.delete(name)
        if manifest.config.backend == EXTERNAL:
            (made,) = benchmarks.values()
            code, summary = COMPLETE, summarized(store, made)
        else:
            ledger = stored_rows(store, manifest, say=lambda line: None)  # printed above
            code, summary = _summarized(store, manifest, benchmarks, ledger)
    for what, count in sorted(changed.items()):
        say(f"{what}: {count}")
    if not changed:
        say("no verdict changed")
    return code, summary


def compact_run(uri: str, say: Say, opens: Opens = open_store) -> None:
    """Merge the parts of a run into fewer, larger parts. Raises `UserError` if it is not a run."""
    with _leased(uri, say, opens) as (store, manifest, lease):
        ledger = stored_rows(store, manifest, say)
        session = new_session(part_names(store), os.urandom(3).hex())
        before, after = compact(store, ledger, session, lease.check)
        say(
            f"{store.root}: {len(ledger.ids)} rows, {ledger.dominated} superseded rows dropped, "
            f"{before} parts -> {after}"
        )


@contextmanager
def _leased(uri: str, say: Say, opens: Opens) -> Iterator[tuple[Store, Manifest, Lease]]:
    """Yield the store, the manifest and the lease of a run. Release the lease when the context
    ends."""
    store = opens(uri)
    manifest = read_manifest(store)
    lease = Lease.acquire(store, say)
    try:
        yield store, manifest, lease
    finally:
        lease.release()


def _with_named_code(config: RunConfig, named: Sequence[str], store: Store) -> RunConfig:
    """Return ``config`` with its local benchmark files replaced by the files in ``named``. Raises
    `UserError` if ``named`` lacks one of them: a file that only the run names is not trusted."""
    files = {name.rpartition(":")[2]: name for name in named if is_local(name)}
    sections = []
    for section in config.benchmarks:
        if is_local(section.name):
            trusted = files.get(section.name.rpartition(":")[2])
            if trusted is None:
                raise UserError(
                    f"the run's checks are in a local file, {section.name}",
                    where=store.root,
                    fix="if you trust that code, name it with --benchmark FILE.py:CLASS",
                )
            section = section.model_copy(update={"name": trusted})
        sections.append(section)
    return config.model_copy(update={"benchmarks": sections})


def _with_data(
    config: RunConfig, data: str, named: Sequence[str], store: Store
) -> tuple[RunConfig, str]:
    """Return ``config`` with ``data`` as the data of one benchmark, and the benchmark's name."""
    have = [section.name for section in config.benchmarks]
    (name,) = named if len(named) == 1 else have if len(have) == 1 else ("",)
    if name not in have:
        which = f"no benchmark {name!r}" if name else "several benchmarks"
        raise UserError(
            f"the run has {which}",
            where=store.root,
            fix=f"name the benchmark of the data {data!r} with --benchmark: {' or '.join(have)}",
        )
    sections = [
        section.model_copy(update={"data": data}) if section.name == name else section
        for section in config.benchmarks
    ]
    return config.model_copy(update={"benchmarks": sections}), name


def run_entries(
    benchmark: Benchmark, manifest: Manifest, rows: Iterable[ResultRow], store: Store
) -> Sequence[Entry]:
    """Return the entries from which a stored run selected its entries by ``ids`` and ``limit``.

    For outputs of another program these are all entries of the answered categories, and other
    entries that ``rows`` name, such as tau2-bench's tasks outside the base split. Raises
    `UserError` if the run was made with other entries."""
    name = benchmark.name
    if manifest.config.backend == EXTERNAL:
        every = benchmark.output_entries()
        for row in rows:
            every.get(row.language, row.category, row.id)  # adds an entry that `of` lacks
        entries: Sequence[Entry] = [
            e for key in manifest.outputs.categories for e in every.of(*key).values()
        ]
        # This hash covers all entries of the answered categories, even those without an answer.
        sha256 = manifest.identity.benchmarks.get(name, {}).get("data_sha256")
    else:
        entries, sha256 = benchmark.dataset(), manifest.entries.get(name)
    if sha256 is not None and sha256 != data_hash(entries):
        raise UserError(
            f"the data of {name} differs from the data of this run",
            where=store.root,
            fix="restore the data (its hash is in run.json), or evaluate the run again",
        )
    return entries


def _changes(
    old: Mapping[str, Any], new: Mapping[str, Any], rule_sets: Sequence[str]
) -> Iterator[str]:
    for rules in rule_sets:
        before, after = old[f"{rules}_valid"], new.get(f"{rules}_valid")
        if before != after:
            words = {True: "valid", False: "invalid", None: "not judged"}
            yield f"{rules} {words[before]} -> {words[after]}"
        elif old[f"{rules}_error_type"] != new.get(f"{rules}_error_type"):
            yield f"{rules} error type only"


def _summarized(
    store: Store, manifest: Manifest, benchmarks: Mapping[str, Any], ledger: Ledger
) -> tuple[int, dict[str, Any]]:
    earlier = earlier_summary(store)
    early, why = earlier.early, ""
    if early is not None and early.stopped:
        why = (
            "stopped early, and its verdicts have changed: evaluate it again to update the decision"
        )
    timing = earlier.timing.model_dump(exclude_unset=True)
    more: dict[str, Any] = {
        "rescored": {
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "ace_ray_version": ace_ray.__version__,
        },
    }
    if early is not None:
        more["early"] = {**early.model_dump(), "stale": True}
    return finish(store, manifest, benchmarks, ledger, timing, why=why, **more)
