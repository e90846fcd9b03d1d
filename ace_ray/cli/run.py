"""The commands ``evaluate``, ``sweep``, ``doctor``, ``list``, ``submit`` and ``judge check``."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Iterable, Mapping
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from ace_ray.cli.options import FULL, IDS, LIMIT, OUTPUT, OVERRIDES, cli, multi_option, run_options
from ace_ray.config.schema import COMMAND_LINE
from ace_ray.errors import COMPLETE, FAILED, INCOMPLETE, UserError
from ace_ray.util import log
from ace_ray.util.signals import run_supervised


def _values(options: dict[str, Any]) -> dict[str, Any]:
    """Return {config key: value} of the given options: output, limit, benchmarks and ids."""
    listed = {key: list(v) if isinstance(v, tuple) else v for key, v in options.items()}
    return {key: value for key, value in listed.items() if value not in (None, [])}


def _is_own_process() -> bool:
    """Return whether `main` started the command. Tests and notebooks call `cli` directly."""
    return bool(click.get_current_context().obj)


def _config_arguments(
    config: str | None, *, model: str | None = None, overrides: tuple[str, ...] = (), **options: Any
) -> tuple[str | None, tuple[str, ...], dict[str, Any]]:
    """Return the arguments of `load_config` for a command line. Raises `UserError`: it lacks a
    config, and does not name both a model and a benchmark."""
    given = {"--model": model, "--benchmark": options.get("benchmarks")}
    missing = [option for option, value in given.items() if not value]
    if config is None and missing:
        problem = f"no CONFIG and no {' and no '.join(missing)} is given"
        fix = "name a CONFIG, or both --model and --benchmark; ace-ray list shows the choices"
        raise UserError(problem, where=COMMAND_LINE, fix=fix)
    # Quoted, since a name may look like a number.
    model_overrides = () if model is None else (f"model.source={json.dumps(model)}",)
    return config, (*model_overrides, *overrides), _values(options)


@cli.command()
@run_options
@click.option(
    "--resume/--fresh",
    default=True,
    help="Continue the run (default), or delete its results and start again.",
)
@FULL
@click.option("--complete", is_flag=True, help="Evaluate all rows; ignore early stopping.")
@click.option("--plan", "only_plan", is_flag=True, help="Print the plan, and evaluate nothing.")
def evaluate(config: str | None, **options: Any) -> None:
    """Evaluate a model on benchmarks, store all rows and print a summary.

    CONFIG is a YAML file, the run.json of a run, or the name of a shipped config. It may be left
    out if --model and --benchmark are given.
    """
    sys.exit(run_evaluate(config, own_process=_is_own_process(), **options))


def run_evaluate(
    config: str | None,
    *,
    resume: bool = True,
    full: bool = False,
    complete: bool = False,
    only_plan: bool = False,
    own_process: bool = False,
    **options: Any,
) -> int:
    """Run ``ace-ray evaluate`` and return the exit code. ``options`` are those that describe a run.

    ``own_process``: this process does nothing else, so the driver may run in a child process
    (`ace_ray.util.signals`)."""
    config, overrides, values = _config_arguments(config, **options)
    overrides += ("early.stop=false",) * complete
    if only_plan:
        from ace_ray.cli.doctor import plan_lines
        from ace_ray.config.schema import load_config

        return _print_checks(plan_lines(load_config(config, overrides, values)), ("", ""))
    work = partial(_evaluate, config, overrides, values, resume, full)
    return run_supervised(work) if own_process else work()


def _print_checks(lines: Iterable[Any], verdicts: tuple[str, str]) -> int:
    """Print ``lines``, the checks of `ace_ray.cli.doctor`, and return the exit code.
    ``verdicts``: prefix of a line without a problem, prefix of a line with a problem."""
    failed = False
    for line in lines:
        failed |= line.problem
        prefix = "" if log.is_json() else f"{verdicts[line.problem]}{line.topic:10} "
        level = "error" if line.problem else "info"
        log.print_result(prefix + line.text, level=level, event="check", topic=line.topic)
    return 2 if failed else 0


def _evaluate(
    config: str | None, overrides: tuple[str, ...], values: dict[str, Any], resume: bool, full: bool
) -> int:
    began = time.monotonic()  # before imports, which take seconds
    from ace_ray.config.schema import load_config
    from ace_ray.errors import RunFailed
    from ace_ray.integrations.trackers import check_publishers
    from ace_ray.pipeline.evaluate import evaluate
    from ace_ray.reports.printed_summary import tell_results

    try:
        loaded = load_config(config, overrides, values)
        check_publishers(loaded.publish)
        code, summary = evaluate(loaded, fresh=not resume, console=Console(), began=began)
    except RunFailed as error:
        again = ["the same command continues this run"] if error.resumable else []
        log.fail(f"failed: {error}", *again)
        return INCOMPLETE if error.resumable else FAILED
    except KeyboardInterrupt as stop:  # with a text if the time limit stopped the run
        log.fail(f"{str(stop) or 'interrupted'}; the same command continues this run")
        return INCOMPLETE
    tell_results(summary, code, full=full)
    if code == INCOMPLETE:
        unscored = f"{summary['declared'] - summary['scored']} of {summary['declared']} rows"
        _tell_incomplete(f"{unscored} are not scored{_time_left(summary)}")
    if code == COMPLETE and summary["complete"]:  # and not stopped early
        from ace_ray.integrations.publisher import publish_run

        publish_run(summary["uri"], loaded)
    return code


def _tell_incomplete(remaining_work: str) -> None:
    """Print what is not evaluated (``remaining_work``), and the command that continues."""
    words = [Path(sys.argv[0]).name, *(word for word in sys.argv[1:] if word != "--fresh")]
    log.fail(f"incomplete: {remaining_work}; continue with: {shlex.join(words)}")


def _time_left(summary: Mapping[str, Any]) -> str:
    """Return how long the missing rows of a summary would take at its speed; "" if unknown."""
    from ace_ray.pipeline.end_time import format_time

    rows = summary["timing"].get("rows_evaluated")
    if not rows or not summary["missing"]:
        return ""
    seconds = summary["missing"] * summary["timing"]["generation_wall_s"] / rows
    return f" ({format_time(seconds)} at this speed)"


@cli.command()
@click.argument("config")
@click.option("--output", metavar="URI", help="Folder or s3://bucket/prefix for the sweep folders.")
@OVERRIDES
@LIMIT
@IDS
@multi_option(
    "--complete",
    metavar="LABEL",
    text="Evaluate all rows of the run LABEL; ignore early stopping. all: of every run.",
)
@click.option("--plan", "only_plan", is_flag=True, help="Print the plan, and evaluate nothing.")
def sweep(config: str, **options: Any) -> None:
    """Evaluate many models: the checkpoints of a training run, or the sizes of a family."""
    sys.exit(run_sweep(config, **options))


def run_sweep(
    config: str,
    *,
    overrides: tuple[str, ...] = (),
    complete: tuple[str, ...] = (),
    only_plan: bool = False,
    **options: Any,
) -> int:
    """Run ``ace-ray sweep`` and return the exit code."""
    began = time.monotonic()  # before imports, which take seconds
    from ace_ray.integrations.publisher import run_and_publish
    from ace_ray.integrations.trackers import check_publishers
    from ace_ray.reports.report import make_report
    from ace_ray.sweep.config import load_sweep
    from ace_ray.sweep.show import print_plan, remaining_line, tell_ledger
    from ace_ray.sweep.sweep import Sweep

    console = Console()
    loaded = load_sweep(config, overrides, _values(options))
    check_publishers(loaded.any_run.publish)
    sweep = Sweep(loaded, complete, preview=only_plan, began=began)
    if only_plan:
        print_plan(sweep, console)
        return 0
    code = run_and_publish(sweep)
    tell_ledger(sweep, code)
    if not sweep.has_time:
        log.warning(f"no time is left for a report; make it with: ace-ray report {sweep.uri}")
    elif sweep.has_results:
        try:
            # Tables are text, so they are not part of JSON output.
            report_console = Console(quiet=True) if log.is_json() else console
            make_report([sweep.uri], console=report_console, opens=lambda uri: sweep.store)
        except UserError as error:
            log.warning(f"report not written: {error}")  # the runs are complete without it
    if code == INCOMPLETE:
        _tell_incomplete(remaining_line(sweep))
    return code


@cli.command()
@run_options
def doctor(config: str | None, **options: Any) -> None:
    """Check a config and this machine, without loading the model.

    CONFIG and options are the same as for evaluate. For a sweep, sweep --plan checks each model.
    """
    from ace_ray.cli.doctor import examine
    from ace_ray.config.schema import RunConfig, load_config, read_tree

    arguments = _config_arguments(config, **options)

    def load() -> RunConfig:
        if {"models", "checkpoints"} & {*read_tree(config)}:
            fix = "ace-ray sweep CONFIG --plan checks each of its models"
            raise UserError("is the config of a sweep", where=str(config), fix=fix)
        return load_config(*arguments)

    sys.exit(_print_checks(examine(load), ("ok    ", "FAIL  ")))


@cli.command("list")
@click.argument(
    "kind",
    type=click.Choice(["benchmarks", "categories", "configs", "parsers", "sql"]),
    default="benchmarks",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_kinds(kind: str, as_json: bool) -> None:
    """List the names that a config can use: benchmarks, categories, shipped configs, parsers.

    "sql" prints a DuckDB macro that reads the rows of a run (docs/recipes.md).
    """
    from ace_ray.cli.doctor import list_kind, listed_lines

    if kind == "sql":
        click.echo(files("ace_ray.viewer").joinpath("rows.sql").read_bytes(), nl=False)
        return
    listing = list_kind(kind)
    for line in [json.dumps(listing, indent=2)] if as_json else listed_lines(kind, listing):
        click.echo(line)


@cli.command()
@click.argument("config")
@click.option(
    "--address", metavar="URL", help="URL of the cluster's dashboard, e.g. http://HEAD:8265."
)
@click.option("--output", metavar="URI", help="s3://bucket/prefix for the run folders.")
@OVERRIDES
@LIMIT
@IDS
@click.option(
    "--job",
    type=click.Choice(["evaluate", "sweep"]),
    default="evaluate",
    show_default=True,
    help="Command that the job runs with the config.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Print the ray job submit command and keep its zip; submit nothing.",
)
@click.option("--follow/--no-follow", default=True, help="Print the job's log until it ends.")
def submit(
    config: str,
    address: str | None,
    overrides: tuple[str, ...],
    job: str,
    dry_run: bool,
    follow: bool,
    **options: Any,
) -> None:
    """Send a config to a Ray cluster as a job, and print its log. Exits with the job's code."""
    from ace_ray.cluster.submit import make_submission
    from ace_ray.cluster.submit import submit as send

    if job == "sweep":
        from ace_ray.sweep.config import load_sweep

        # Report mistakes here, before the job starts on the cluster.
        load_sweep(config, overrides, _values(options))
    submission = make_submission(job, config, overrides=overrides, values=_values(options))
    if dry_run:
        click.echo(submission.command(address))
        return

    sys.exit(send(submission, address=address, follow=follow))


@cli.group()
def judge() -> None:
    """Check models that judge answers."""


@judge.command("check")
@click.argument("labels", type=click.Path(path_type=Path))
@click.option("--config", required=True, help="Config of a run whose model is the judge.")
@click.option(
    "--votes",
    type=click.IntRange(1, 32),
    default=1,
    show_default=True,
    help="Votes of the judge on each answer.",
)
@click.option(
    "--upstream",
    type=click.Path(path_type=Path),
    help="Checkout of StableToolBench whose judge prompts are used.",
)
@OUTPUT
@OVERRIDES
def judge_check(
    labels: Path,
    config: str,
    votes: int,
    upstream: Path | None,
    overrides: tuple[str, ...],
    **options: Any,
) -> None:
    """Measure how well a judge agrees with people. LABELS has one judged answer per line."""
    folder = {} if upstream is None else {"upstream": str(upstream.absolute())}
    benchmark = {"name": "stabletoolbench_judge", "votes": votes, "labels": str(labels.absolute())}
    benchmark |= folder
    only = (*overrides, f"benchmarks={json.dumps([benchmark])}")
    sys.exit(run_evaluate(config, overrides=only, own_process=_is_own_process(), **options))
