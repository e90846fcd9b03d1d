"""``ace-ray score`` and ``ace-ray compact RUN``: change a stored run, without an engine."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

import ace_ray
from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.context import RoleModel
from ace_ray.config.roles import EndpointRole
from ace_ray.config.schema import EXTERNAL, validate_tree, yaml_file
from ace_ray.errors import COMPLETE, INCOMPLETE, RowError, UserError
from ace_ray.models.endpoint import EndpointModel
from ace_ray.models.sampling import fill_defaults
from ace_ray.pipeline.actors.verdicts import judge_row, log_traceback
from ace_ray.pipeline.roles import role_identity
from ace_ray.pipeline.summary import finish
from ace_ray.rescoring.import_outputs import VERDICTS, score_outputs, write_imported_summary
from ace_ray.rescoring.stored_benchmarks import StoredBenchmarks
from ace_ray.storage.lease import Lease
from ace_ray.storage.object_store import Store, open_store
from ace_ray.storage.parts import Ledger, compact, new_session, part_names, write_parts
from ace_ray.storage.rows import AT_ONCE, CHECK_FAILED, episode_of, readable_json
from ace_ray.storage.stored import (
    MANIFEST,
    Manifest,
    as_json,
    differences,
    earlier_summary,
    read_manifest,
)
from ace_ray.storage.stored_run import StoredRun
from ace_ray.types import CHECKED, Sampling
from ace_ray.util import log

Row = dict[str, Any]
_T = TypeVar("_T")
# Rows that are stored together. An interrupted command loses at most a judge's answers to them.
JUDGED_TOGETHER = 256
# Opens a URI. The S3 endpoint comes from the command or the environment, never from a run's config.
Opens = Callable[[str], Store]


def score(
    path: str, benchmarks: Sequence[str], output: str | None, judge: str | None, **options: Any
) -> tuple[int, dict[str, Any]]:
    """Score the run ``path`` again or, with ``output``, score outputs at ``path`` into a new run.
    ``judge``: config file of a judge, who then judges answers without a judge's verdict.
    ``options``: ``opens`` and the options of `score_outputs`.

    Return (exit code, summary). Raises `UserError` if the run, the outputs or the judge cannot be
    used (`rejudge_run`, `score_outputs`, `Judge`)."""
    opened, opens = Judge(judge) if judge else None, options.pop("opens")
    given = {**(options.get("options") or {}), "data": options["data"]}
    changes = {key: value for key, value in given.items() if value is not None}
    again: dict[str, Any] = {"changes": changes, "choices": benchmarks, "judge": opened}
    if output is None:
        return rejudge_run(path, opens, **again)
    if len(benchmarks) != 1:
        fix = "name the benchmark of the outputs; to score a stored run again, name no output"
        raise UserError("external outputs need exactly one benchmark", where=path, fix=fix)
    store = opens(output)
    summary = score_outputs(Path(path), benchmark=benchmarks[0], store=store, **options)
    if opened or read_manifest(store).judging:
        return rejudge_run(output, opens, **again)
    return COMPLETE, summary


def rejudge_run(
    uri: str,
    opens: Opens = open_store,
    *,
    changes: Mapping[str, Any] | None = None,
    choices: Sequence[str] = (),
    judge: Judge | None = None,
) -> tuple[int, dict[str, Any]]:
    """Judge the stored episodes of a run again with this version's checks. Replace the verdicts.

    `StoredBenchmarks` explains ``changes`` and ``choices``, and which code may run. Before the
    checks, ``judge`` is asked about the rows that no judge saw.

    Row ids do not change. Rows whose check raised an exception are judged again; other rows without
    a verdict do not change. New parts are stored before old ones are deleted.

    Return (exit code, summary). Raises `UserError` if ``uri`` is not a run, another process
    changes the run, or the benchmark's data is not the data of the run."""
    run = StoredRun(opens(uri))
    with Lease.acquire(run.store) as lease:
        benchmarks = StoredBenchmarks(run, choices, changes)
        store, ledger, manifest = run.store, run.ledger, run.manifest
        benchmarks.read()
        changed: Counter[str] = Counter()

        def rejudge_rows(rows: list[Row]) -> list[Row]:
            rows = judge.judge_rows(manifest, benchmarks, rows) if judge else rows
            new = [_rejudge_row(row, benchmarks) for row in rows]
            for before, after in zip(rows, new, strict=True):
                changed.update(_changes(before, after, ledger.rule_sets))
            if judge and judge.judging.keys() - read_manifest(store).judging:
                lease.renew()
                judging = {**manifest.tree.get("judging", {}), **judge.judging}
                store.put(MANIFEST, as_json({**manifest.tree, "judging": judging}))
                store.delete(VERDICTS)  # they are older; the rows have the new ones
            return new

        rewrite_rows(ledger, store, rejudge_rows, part_rows=JUDGED_TOGETHER if judge else None)
        lease.renew()
        for name in ledger.parts:
            store.delete(name)
        if run.manifest.config.backend == EXTERNAL:
            (benchmark,) = benchmarks.by_name.values()
            summary = write_imported_summary(store, benchmark)
            code = INCOMPLETE if summary["missing"] else COMPLETE
        else:
            again = StoredRun(store, lambda line: None)  # printed above
            code, summary = _write_summary(again, benchmarks.by_name)
        if judge is not None and summary["not_judged"]:
            code = INCOMPLETE
    for change, count in sorted(changed.items()):
        log.info(f"{change}: {count}")
    if not changed:
        log.info("no verdict changed")
    return code, summary


def rewrite_rows(
    ledger: Ledger,
    target: Store,
    change: Callable[[list[Row]], list[Row]],
    *,
    part_rows: int | None = None,
) -> None:
    """Write all rows of ``ledger``, changed by ``change`` in batches, to new Parquet parts of
    ``target``.

    ``part_rows``: maximum rows of a part, which limits what an interrupted command loses. If None,
    a new part has as many rows as the stored part."""
    session = new_session(part_names(target), os.urandom(3).hex())
    for table in ledger.tables(ledger.schema.names):
        size = part_rows or max(1, len(table))
        for start in range(0, len(table), size):
            part, tables = table.slice(start, size), []
            for first in range(0, len(part), AT_ONCE):
                rows = change(part.slice(first, AT_ONCE).to_pylist())
                tables.append(pa.Table.from_pylist(rows, schema=ledger.schema))
            write_parts(target, session, pa.concat_tables(tables))


def _rejudge_row(row: Row, benchmarks: StoredBenchmarks) -> Row:
    if row["error_class"] == CHECK_FAILED:
        row = {**row, "status": "scored", "error_class": None, "error": None}
    if row["status"] not in CHECKED:
        return row
    episode_of(row)  # raises for a damaged run, which must not count as a failed check
    benchmark, entry = benchmarks.find_entry(row)
    return judge_row(row, entry, benchmark, log=lambda: None)


def compact_run(uri: str, opens: Opens = open_store) -> None:
    """Merge the Parquet parts of a run into larger parts. Raises `UserError` if there is no run."""
    run = StoredRun(opens(uri))
    with Lease.acquire(run.store) as lease:
        store, ledger = run.store, run.ledger
        session = new_session(part_names(store), os.urandom(3).hex())
        before, after = compact(store, ledger, session, lease.renew)
        log.info(
            f"{store.root}: {len(ledger.ids)} rows, {ledger.dominated} superseded rows dropped, "
            f"{before} parts -> {after}"
        )


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


def _write_summary(run: StoredRun, benchmarks: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    earlier, why = earlier_summary(run.store), ""
    timestamp = datetime.now(UTC).isoformat(timespec="seconds")
    more: dict[str, Any] = {"rescored": {"at": timestamp, "ace_ray_version": ace_ray.__version__}}
    if (early := earlier.early) is not None:
        more["early"] = {**early.model_dump(), "stale": True}
        if early.stopped:
            why = "stopped early, and its verdicts have changed: "
            why += "evaluate it again to update the decision"
    timing = earlier.timing.model_dump(exclude_unset=True)
    return finish(run.store, run.manifest, benchmarks, run.ledger, timing, why=why, **more)


class Judge:
    """The judge's endpoint, from a config ``file``; it has answered a test request. The file is
    the command's: a stored run, which may be a stranger's, names no judge. ``judging``: benchmark
    -> facts on the judge for the manifest, from the first verdict on. Raises `UserError` if the
    file does not describe an endpoint, or the endpoint does not answer."""

    def __init__(self, file: str) -> None:
        tree = yaml_file(file)
        if not isinstance(tree, Mapping) or "endpoint" not in tree:
            fix = "write endpoint: {url: ..., model: ...}; `vllm serve` serves a model of your own"
            raise UserError("only an endpoint can judge stored answers", where=file, fix=fix)
        self._role = validate_tree(EndpointRole, tree, where=file)
        self._location = f"{file}: endpoint"
        self._sampling: Sampling | None = None
        if (block := self._role.sampling) is not None:
            self._sampling = fill_defaults(block, None, {}, location=f"{file}: sampling").sampling()
        self.judging: dict[str, Any] = {}
        request, drawn = [{"role": "user", "content": "Say yes."}], Sampling(max_tokens=16)
        try:
            self._run(lambda model: model.chat(request, self._sampling or drawn))
        except RowError as error:
            fix = "check the server, url, model and api_key_env"
            raise UserError(str(error), where=self._location, fix=fix) from error

    def judge_rows(
        self, manifest: Manifest, benchmarks: StoredBenchmarks, rows: Sequence[Row]
    ) -> list[Row]:
        """Ask the judge about rows with the status ``not_judged``. Return all ``rows``; the judge's
        answers are in their column ``state``.

        Raises `UserError` if no benchmark of the run asks a judge, or the run has verdicts of
        another judge."""
        models = {
            name: (benchmark.role_sampling("judge"), self._facts(benchmark, manifest))
            for name, benchmark in benchmarks.by_name.items()
            if type(benchmark).judge is not Benchmark.judge
        }
        if not models:
            raise UserError("no benchmark of the run asks a judge", "--judge", "leave it out")

        async def ask(row: Row, model: EndpointModel) -> Row:
            if row["status"] != "not_judged" or row["benchmark"] not in models:
                return row
            benchmark, entry = benchmarks.find_entry(row)
            default, facts = models[benchmark.name]
            sampling = (self._sampling or default).with_row_seed(row["sample"], *entry.path)
            try:
                episode = episode_of(row)
                if await benchmark.judge(entry, episode, RoleModel(model, sampling, facts["role"])):
                    self.judging[benchmark.name] = facts
                return {**row, "state": readable_json(episode.state)}
            except Exception:  # noqa: BLE001 - a damaged state, which the following check reports
                log_traceback()
                return row

        async def ask_all(model: EndpointModel) -> list[Row]:
            return await asyncio.gather(*(ask(row, model) for row in rows))

        return self._run(ask_all)

    def _facts(self, benchmark: Benchmark, manifest: Manifest) -> dict[str, Any]:
        sampling = self._sampling or benchmark.role_sampling("judge")
        role = role_identity(self._role, None, sampling) | {"sampling": sampling.identity()}
        facts = {"role": role, "questions": dict(benchmark.judging())}
        roles = manifest.identity.roles.get(benchmark.name, {})
        stored = {"role": roles.get("judge", role), "questions": facts["questions"]}
        if paths := differences(stored | manifest.judging.get(benchmark.name, {}), facts):
            problem = f"the run has verdicts of another judge ({', '.join(paths)} differ)"
            fix = "name the same judge; another judge needs a separate run"
            raise UserError(problem, where="--judge", fix=fix)
        return facts

    def _run(self, work: Callable[[EndpointModel], Awaitable[_T]]) -> _T:
        """Run ``work`` with the endpoint, in a new thread if this thread runs an event loop, as in
        a notebook. Return its result."""

        async def run() -> _T:
            model = EndpointModel(self._role.endpoint, location=self._location)
            try:
                return await work(model)
            finally:
                await model.close()

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(run())
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, run()).result()
