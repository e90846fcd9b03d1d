"""``ace-ray evaluate``: plan a run, evaluate it, and write the results and the summary."""

from __future__ import annotations

import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from rich.console import Console

from ace_ray.cluster import connection
from ace_ray.cluster.resources import gpus_per_worker
from ace_ray.config.schema import RunConfig, SamplingConfig
from ace_ray.errors import RunFailed, UserError
from ace_ray.models.engine_check import ask_vllm
from ace_ray.models.sources import ModelRef
from ace_ray.pipeline.end_time import ends_at, rows_end_at
from ace_ray.pipeline.planning.plan import Plan, make_plan
from ace_ray.pipeline.planning.preflight import check_engine, make_benchmarks, resolve_model
from ace_ray.pipeline.run_folder import assign_run_id, open_folder, output_store
from ace_ray.pipeline.session import Session, preload
from ace_ray.storage.object_store import is_relative
from ace_ray.storage.stored import SUCCESS, read_manifest
from ace_ray.util import log
from ace_ray.util.signals import Interrupts


def plan_run(config: RunConfig) -> Plan:
    """Plan a run, with all checks that work without Ray, and find the stored run that it continues.
    Raises `UserError` if a check fails."""
    benchmarks = make_benchmarks(config)
    model, files = resolve_model(config)
    plan = make_plan(config, model, benchmarks, files)
    if refused := plan.hazards.get("quantised-dtype"):  # an engine would say so after its start
        raise UserError(refused, where="engine.dtype")
    return assign_run_id(plan)


def check_config(config: RunConfig) -> None:
    """Raise `UserError` if ``config`` has a mistake that does not depend on the model."""
    check_engine(config)
    # Do not check parsers and sampling defaults, which depend on the model's files.
    sampling = config.sampling if config.sampling.is_complete else SamplingConfig()
    trial = config.model_copy(update={"backend": "fake", "sampling": sampling})
    make_plan(trial, ModelRef("any", "fake", "any", "any"), make_benchmarks(config))


def evaluate(
    config: RunConfig, *, fresh: bool, console: Console, began: float | None = None
) -> tuple[int, dict[str, Any]]:
    """Evaluate the run of ``config``. Return (exit code, summary).

    By default a stored run is continued: rows with a verdict are not evaluated again. In the main
    thread, the first SIGINT or SIGTERM lets rows in flight end; a second one stops the run at once.
    ``began``: time at which the command began (`time.monotonic`; default: now).

    Raises:
        UserError: the run cannot be started with this config; nothing was written.
        RunFailed: the cluster or the engines failed; stored rows stay.
        KeyboardInterrupt: the run was stopped at once."""
    began = began or time.monotonic()
    with Interrupts() as interrupts, log.use_console(console):
        check_output(config.output)
        plan = plan_run(config)
        limit = plan.config.time_limit
        has_time = (end := ends_at(limit, began)) is None or end > began
        # A complete run does not need Ray, and one without time must not start it.
        store = output_store(plan)
        grows = store.get(SUCCESS) is None or read_manifest(store).declared < len(plan.rows)
        begins = has_time and (fresh or grows)
        if begins:
            interrupts.abort_at(rows_end_at(limit, began))
            if plan.model.kind in ("hub", "s3"):  # ask before the weights are fetched
                gpus = gpus_per_worker(plan.config.engine)
                ask_vllm(plan.config, plan.model, plan.files, gpus=gpus, on_gpu=None)
            preload()
        with (
            log.common_fields(run_id=plan.run_id),
            connection.connect_early() if begins else nullcontext(),
            open_folder(plan, fresh=fresh, began=began) as run,
        ):
            if run.looks is not None:
                run.looks.check_reference(must_exist=True)
            pending = run.announce()
            if plan.parser_line:
                log.info(plan.parser_line)
            interrupts.abort_at(None)  # until a pass begins: a complete run has its result
            rows_end = rows_end_at(limit, began) if pending else None
            Session([run], interrupts, rows_end_at=rows_end).run()
            if run.result is None:
                raise RunFailed(run.broken)
            return run.result


def check_output(output: str, option: str = "--output") -> None:
    """Raise `UserError` if ``output`` is relative in a Ray job: Ray deletes the job's folder."""
    if is_relative(output) and "working_dir_files" in Path.cwd().parts:
        raise UserError(
            f"the output {output!r} is relative, but this job's folder is temporary",
            where="output",
            fix=f"pass {option} s3://bucket/prefix or an absolute path",
        )
