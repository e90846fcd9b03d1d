"""``ace-ray score RUN`` and ``ace-ray compact RUN``: change a stored run, without an engine."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

import ace_ray
from ace_ray.config.schema import EXTERNAL
from ace_ray.errors import COMPLETE, INCOMPLETE
from ace_ray.pipeline.actors.judging import judged
from ace_ray.pipeline.summary import finish
from ace_ray.rescoring.score import summarized
from ace_ray.rescoring.stored_benchmarks import StoredBenchmarks
from ace_ray.storage.lease import Lease
from ace_ray.storage.object_store import Store, open_store
from ace_ray.storage.parts import compact, new_session, part_names, write_parts
from ace_ray.storage.rows import AT_ONCE, CHECK_FAILED, episode_of, rows_of
from ace_ray.storage.stored import earlier_summary
from ace_ray.storage.stored_run import StoredRun
from ace_ray.types import CHECKED

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

    `StoredBenchmarks` explains ``data`` and ``named``, and which code may run.

    Row ids do not change. Rows whose check raised an exception are judged again; other rows without
    a verdict do not change. New parts are stored before old ones are deleted.

    Return (exit code, summary). Raises `UserError` if ``uri`` is not a run, another driver has its
    lease, or the benchmark's data is not the data of the run."""
    with _leased(uri, say, opens) as (run, lease):
        benchmarks = StoredBenchmarks(run, named, data)
        store, ledger = run.store, run.ledger
        benchmarks.read()
        session = new_session(part_names(store), os.urandom(3).hex())
        changed: Counter[str] = Counter()
        for table in ledger.tables(ledger.schema.names):
            done, rows = list[pa.Table](), list[dict[str, Any]]()
            for row in rows_of(table):
                if len(rows) == AT_ONCE:
                    done.append(pa.Table.from_pylist(rows, schema=ledger.schema))
                    rows = []
                if row["error_class"] == CHECK_FAILED:
                    row |= {"status": "scored", "error_class": None, "error": None}
                if row["status"] not in CHECKED:
                    rows.append(row)
                    continue
                episode_of(row)  # raises for a damaged run, which must not count as a failed check
                made, entry = benchmarks.of(row)
                new = judged(row, entry, made, log=lambda: None)
                changed.update(_changes(row, new, ledger.rule_sets))
                rows.append(new)
            done.append(pa.Table.from_pylist(rows, schema=ledger.schema))
            write_parts(store, session, pa.concat_tables(done))
        lease.check()
        for name in ledger.parts:
            store.delete(name)
        if run.manifest.config.backend == EXTERNAL:
            (made,) = benchmarks.by_name.values()
            summary = summarized(store, made)
            code = INCOMPLETE if summary["missing"] else COMPLETE
        else:
            judged_again = StoredRun(store, lambda line: None)  # printed above
            code, summary = _summarized(judged_again, benchmarks.by_name)
    for what, count in sorted(changed.items()):
        say(f"{what}: {count}")
    if not changed:
        say("no verdict changed")
    return code, summary


def compact_run(uri: str, say: Say, opens: Opens = open_store) -> None:
    """Merge the parts of a run into fewer, larger parts. Raises `UserError` if it is not a run."""
    with _leased(uri, say, opens) as (run, lease):
        store, ledger = run.store, run.ledger
        session = new_session(part_names(store), os.urandom(3).hex())
        before, after = compact(store, ledger, session, lease.check)
        say(
            f"{store.root}: {len(ledger.ids)} rows, {ledger.dominated} superseded rows dropped, "
            f"{before} parts -> {after}"
        )


@contextmanager
def _leased(uri: str, say: Say, opens: Opens) -> Iterator[tuple[StoredRun, Lease]]:
    """Yield a run and its lease. Release the lease when the context ends."""
    run = StoredRun(opens(uri), say)
    lease = Lease.acquire(run.store, say)
    try:
        yield run, lease
    finally:
        lease.release()


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


def _summarized(run: StoredRun, benchmarks: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    earlier = earlier_summary(run.store)
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
    return finish(run.store, run.manifest, benchmarks, run.ledger, timing, why=why, **more)
