"""The ``ace-ray`` command: each subcommand a few lines on the package's API.

Exit codes: 0 complete, 1 failed, 2 the user's mistake (one line, no traceback), 75 incomplete, run
the same command again. Heavy imports happen inside the commands that need them.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console

import ace_ray
from ace_ray import log
from ace_ray.clean import printed
from ace_ray.config import COMMAND_LINE
from ace_ray.errors import COMPLETE, FAILED, INCOMPLETE, UserError
from ace_ray.options import (
    BENCHMARKS,
    FULL,
    IDS,
    LIMIT,
    MODEL,
    OUTPUT,
    OVERRIDES,
    Group,
    placed,
)
from ace_ray.run.health.supervise import supervised


@click.group(
    cls=Group,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(ace_ray.__version__, prog_name="ace-ray")
def cli() -> None:
    """Distributed batch evaluation of LLM tool use, on Ray and vLLM."""


def _show(line: str) -> None:
    """Print a result that may hold text from outside."""
    click.echo(printed(line))


def _given(
    output: str | None,
    limit: int | None = None,
    benchmarks: tuple[str, ...] = (),
    ids: tuple[str, ...] = (),
) -> dict[str, Any]:
    asked = {
        "output": output,
        "limit": limit,
        "benchmarks": benchmarks or None,
        "ids": list(ids) or None,
    }
    return {key: value for key, value in asked.items() if value is not None}


def _of_model(model: str | None) -> tuple[str, ...]:
    """``--model`` as an override, quoted: a name may look like a number."""
    return () if model is None else (f"model.source={json.dumps(model)}",)


def _check_config(config: str | None, model: str | None, benchmarks: tuple[str, ...]) -> None:
    if config is None and not (model and benchmarks):
        raise UserError(
            "it is not clear what to evaluate",
            where=COMMAND_LINE,
            fix="name a CONFIG, or both --model and --benchmark; ace-ray list shows what there is",
        )


def _is_own_process() -> bool:
    """Whether the command came through `main`; tests and notebooks call `cli` itself."""
    return bool(click.get_current_context().obj)


@cli.command()
@click.argument("config", required=False)
@MODEL
@BENCHMARKS
@OUTPUT
@OVERRIDES
@LIMIT
@IDS
@click.option("--resume/--fresh", default=True, help="Continue (default), or remove and restart.")
@FULL
@click.option("--complete", is_flag=True, help="All rows, though the comparison is decided early.")
@click.option("--plan", "only_plan", is_flag=True, help="Print what would run where, and stop.")
def evaluate(config: str | None, **options: Any) -> None:
    """Evaluate a model: plan, run, write, summarize.

    CONFIG is a YAML file, the run.json of a run, or the name of a shipped config. With --model and
    --benchmark none is needed.
    """
    sys.exit(run_evaluate(config, own_process=_is_own_process(), **options))


def run_evaluate(
    config: str | None,
    *,
    model: str | None = None,
    benchmarks: tuple[str, ...] = (),
    output: str | None = None,
    overrides: tuple[str, ...] = (),
    limit: int | None = None,
    ids: tuple[str, ...] = (),
    resume: bool = True,
    full: bool = False,
    complete: bool = False,
    only_plan: bool = False,
    own_process: bool = False,
) -> int:
    """``ace-ray evaluate`` as a function; returns the exit code.

    ``own_process``: this process is there for nothing else, so the driver may be its child
    (`ace_ray.run.health.supervise`).
    """
    _check_config(config, model, benchmarks)
    asked = (*_of_model(model), *overrides, *(["early.stop=false"] if complete else []))
    values = _given(output, limit, benchmarks, ids)
    if only_plan:
        return _show_plan(config, asked, values)
    work = partial(_evaluate, config, asked, values, resume, full)
    return supervised(work) if own_process else work()


def _show_plan(config: str | None, overrides: tuple[str, ...], values: dict[str, Any]) -> int:
    from ace_ray.run.doctor import planned
    from ace_ray.run.planning.asked import asked_run

    failed = 0
    for line in planned(asked_run(config, overrides, values)):
        failed += line.problem
        _found(line, "")
    return 2 if failed else 0


def _found(line: Any, verdict: str) -> None:
    """Print a line of `ace_ray.run.doctor`."""
    text = line.text if log.is_json() else f"{verdict}{line.topic:10} {line.text}"
    level = "error" if line.problem else "info"
    log.result(text, level=level, event="check", topic=line.topic)


def _evaluate(
    config: str | None,
    overrides: tuple[str, ...],
    values: dict[str, Any],
    resume: bool,
    full: bool,
) -> int:
    from ace_ray.reports.printed_summary import tell_results
    from ace_ray.run.evaluate import evaluate
    from ace_ray.run.health.interrupts import RunFailed
    from ace_ray.run.planning.asked import asked_run

    try:
        loaded = asked_run(config, overrides, values)
        code, summary = evaluate(loaded, fresh=not resume, console=Console())
    except RunFailed as error:
        again = ["the same command continues this run"] if error.resumable else []
        log.fail(f"failed: {error}", *again)
        return INCOMPLETE if error.resumable else FAILED
    except KeyboardInterrupt:
        log.fail("interrupted; the same command continues this run")
        return INCOMPLETE
    tell_results(summary, code, full=full)
    if code == COMPLETE and summary["complete"]:  # and not stopped early
        from ace_ray.track.publish import publish_run

        publish_run(summary["uri"], loaded, log.say)
    return code


@cli.command()
@click.argument("config")
@click.option("--output", metavar="URI", help="Folder or s3://bucket/prefix of the sweep folders.")
@OVERRIDES
@LIMIT
@IDS
@click.option(
    "--complete",
    multiple=True,
    metavar="LABEL",
    help="Evaluate all rows of this run though its comparison is decided; all: of every run.",
)
@click.option("--plan", "only_plan", is_flag=True, help="Print what would run where, and stop.")
def sweep(config: str, **options: Any) -> None:
    """Evaluate many models: checkpoints of a training run, sizes of a family."""
    sys.exit(run_sweep(config, **options))


def run_sweep(
    config: str,
    *,
    output: str | None = None,
    overrides: tuple[str, ...] = (),
    limit: int | None = None,
    ids: tuple[str, ...] = (),
    complete: tuple[str, ...] = (),
    only_plan: bool = False,
) -> int:
    """``ace-ray sweep`` as a function; returns the exit code."""
    from ace_ray.reports.report import make_report
    from ace_ray.sweeps.config import load_sweep
    from ace_ray.sweeps.show import print_plan, tell_ledger
    from ace_ray.sweeps.sweep import Sweep
    from ace_ray.track.publish import run_published

    console = Console()
    say = log.say_on(console)
    values = _given(output, limit, ids=ids)
    sweep = Sweep(load_sweep(config, overrides, values), say, complete, preview=only_plan)
    if only_plan:
        print_plan(sweep, console)
        return 0
    code = run_published(sweep, say)
    tell_ledger(sweep, code)
    if sweep.has_results:
        try:
            # Its tables are text.
            shown = Console(quiet=True) if log.is_json() else console
            make_report(
                [sweep.uri], paper=False, out=None, rules=None, console=shown, store=sweep.store
            )
        except UserError as error:
            say(log.warning(f"no report: {error}"))  # the runs are whole all the same
    return code


@cli.command()
@click.argument("config", required=False)
@MODEL
@BENCHMARKS
@OUTPUT
@OVERRIDES
@LIMIT
@IDS
def doctor(
    config: str | None,
    model: str | None,
    benchmarks: tuple[str, ...],
    output: str | None,
    overrides: tuple[str, ...],
    limit: int | None,
    ids: tuple[str, ...],
) -> None:
    """Check a config and this machine, without loading the model.

    CONFIG and options as of evaluate. Of a sweep, sweep --plan checks each model.
    """
    from ace_ray.config import load_config, read_tree
    from ace_ray.run.doctor import examine, tried
    from ace_ray.run.planning.asked import asked_run

    _check_config(config, model, benchmarks)
    tree, _ = tried(lambda: read_tree(config))
    if {"models", "checkpoints"} & {*(tree or ())}:
        raise UserError(
            "is the config of a sweep",
            where=str(config),
            fix="ace-ray sweep CONFIG --plan checks each of its models",
        )
    asked, values = (*_of_model(model), *overrides), _given(output, limit, benchmarks, ids)
    lines = examine(
        lambda: load_config(config, asked, values), lambda: asked_run(config, asked, values)
    )
    failed = 0
    for line in lines:
        failed += line.problem
        _found(line, "FAIL  " if line.problem else "ok    ")
    sys.exit(2 if failed else 0)


@cli.command("list")
@click.argument(
    "kind",
    type=click.Choice(["benchmarks", "categories", "configs", "parsers", "sql"]),
    default="benchmarks",
)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def list_kinds(kind: str, as_json: bool) -> None:
    """List what a config can name: benchmarks, their categories, shipped configs, parsers.

    sql prints a DuckDB macro that reads the rows of a run (docs/recipes.md).
    """
    from ace_ray.run.listing import lines, listed
    from ace_ray.view.sql import run_rows

    if kind == "sql":
        click.echo(run_rows(), nl=False)
        return
    found = listed(kind)
    for line in [json.dumps(found, indent=2)] if as_json else lines(kind, found):
        click.echo(line)


@cli.command()
@click.argument("path")
@click.option(
    "--benchmark",
    "benchmarks",
    multiple=True,
    metavar="NAME|FILE.py:CLASS",
    help="Of outputs made elsewhere; of a run, whose data --data is, or all whose code is trusted.",
)
@click.option("--data", help="Data folder, mini, or imported[:VERSION].")
@click.option("--output", metavar="URI", help="Of outputs made elsewhere: the folder of their run.")
@click.option("--model", help="Who made the outputs. Default: the name of PATH.")
@FULL
@placed
def score(
    path: str,
    benchmarks: tuple[str, ...],
    data: str | None,
    output: str | None,
    model: str | None,
    full: bool,
    opens: Any,
) -> None:
    """Score without an engine.

    PATH is a run (folder or s3:// URI), whose stored episodes are judged again in place; or outputs
    made elsewhere, JSON lines or a benchmark's official result folder, with --benchmark and
    --output, and --data where the benchmark has any. They become a run, which report and compare
    take.

    A run is scored with the data that it names. Code in it runs only if it is that of a known
    version of the benchmark, or --data names the data (with --benchmark, if the run has several);
    code in a local file only if --benchmark names it.
    """
    if output is None:
        from ace_ray.reports.printed_summary import tell_results
        from ace_ray.run.rescore import rescore

        code, rescored = rescore(path, log.say_on(), opens, data=data, named=benchmarks)
        tell_results(rescored, code, full=full)
        sys.exit(code)
    if len(benchmarks) != 1:
        raise UserError(
            "it is not clear what these are outputs of",
            where=path,
            fix="name one benchmark with --benchmark; to score a run again, leave --output out",
        )
    from ace_ray.reports.printed_summary import tell_results
    from ace_ray.run.score import score_outputs

    summary = score_outputs(
        Path(path),
        benchmark=benchmarks[0],
        data=data,
        model=model,
        store=opens(output),
        say=log.say_on(),
    )
    tell_results(summary, COMPLETE, full=full)


@cli.command()
@click.argument("run")
@click.argument("entry", default="", metavar="[ID]")
@click.option("--benchmark", default="", help="Only rows of this benchmark.")
@click.option("--category", default="", help="Only rows of this category.")
@click.option("--language", default="", help="Only rows of this language.")
@click.option("--sample", type=click.IntRange(min=0), help="Only this sample.")
@click.option("--status", default="", help="Only rows of this status, e.g. infra_error.")
@click.option("--rules", default="", help="Whose verdict counts. Default: the benchmark's first.")
@click.option("--valid/--wrong", "valid", default=None, help="Only right rows, or only wrong ones.")
@click.option("--error-type", default="", help="Only rows that are wrong in this way.")
@click.option("--changed", metavar="RUN", help="Only rows with another verdict than in RUN.")
@click.option(
    "--limit", type=click.IntRange(min=0), help="Most rows; 0: all. Default: 20, of --json all."
)
@click.option("--json", "as_json", is_flag=True, help="Whole rows as JSON, one a line.")
@placed
def show(
    run: str, changed: str | None, limit: int | None, as_json: bool, opens: Any, **wanted: Any
) -> None:
    """List rows of a run, or show one whole.

    ID is an entry's id, or the beginning of a row's: its prompt, answers, calls with what came
    back, gold answer, verdicts with reasons, and what changed in the sandbox.
    """
    from ace_ray.view.select import Filter, StoredRun
    from ace_ray.view.show import show as show_rows

    show_rows(
        StoredRun(opens(run)),
        Filter(**wanted),
        click.echo,
        other=StoredRun(opens(changed)) if changed else None,
        limit=(0 if as_json else 20) if limit is None else limit,
        as_json=as_json,
    )


@cli.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...|SWEEP")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Of this machine. Default: 8642, or the next that is free; 0: any.",
)
@placed
def view(runs: tuple[str, ...], port: int | None, opens: Any) -> None:
    """Look at runs (folders or s3:// URIs) in a browser, also while they are running.

    All rows with filters and search, every row with an address of its own, and the same entry in
    two runs side by side. Only this machine can reach the page, and it answers only
    with the token of the printed address.
    """
    from ace_ray.view.server import serve
    from ace_ray.view.table import tables_of

    serve(tables_of([opens(uri) for uri in runs]), port, click.echo)  # the token unmasked


@cli.command()
@click.argument("run")
@click.option(
    "--to",
    "form",
    type=click.Choice(["inspect", "lm-eval", "hf"]),
    required=True,
    help="Inspect's .eval logs, lm-eval's result files, or evaluation results of the hub.",
)
@click.option(
    "--output",
    metavar="URI",
    help="Folder or s3:// prefix. Default: export/inspect, export/lm-eval or export/hf in the run.",
)
@click.option("--dataset", help="Of --to hf: the id of the benchmark's dataset on the hub.")
@placed
def export(run: str, form: str, output: str | None, dataset: str | None, opens: Any) -> None:
    """Write a run (folder or s3:// URI) as files of other tools."""
    from ace_ray.export.inspect_log import export_inspect
    from ace_ray.export.result_files import export_hub, export_lm_eval
    from ace_ray.view.select import StoredRun

    if form == "hf" and dataset is None:
        raise UserError(
            "is needed for the hub", where="--dataset", fix="name the benchmark's, e.g. org/name"
        )
    if form != "hf" and dataset is not None:
        raise UserError("is of --to hf only", where="--dataset", fix="leave it out")
    store = opens(run)
    stored = StoredRun(store)
    target = opens(output) if output else store.child(f"export/{form}")
    target.check_writable()
    if form == "inspect":
        names = export_inspect(stored, target)
    elif form == "lm-eval":
        names = export_lm_eval(stored, target)
    else:
        names = export_hub(stored, target, str(dataset))
    for name in names:
        _show(f"{target.root}/{name}")


@cli.command()
@click.argument("run", metavar="RUN|SWEEP")
@click.option("--to", required=True, help="tensorboard, trackio, wandb or mlflow.")
@click.option(
    "--option", "options", multiple=True, metavar="KEY=VALUE", help="Of the tracker (YAML value)."
)
@placed
def publish(run: str, to: str, options: tuple[str, ...], opens: Any) -> None:
    """Send the numbers of a run or sweep (folder or s3:// URI) to a tracker, each of them once."""
    from ace_ray.track.publish import options_of
    from ace_ray.track.publish import publish as send

    send(opens(run), to, options_of(options), _show)


@cli.command()
@click.argument("run")
@placed
def compact(run: str, opens: Any) -> None:
    """Merge the Parquet parts of a run (folder or s3:// URI) into few large ones."""
    from ace_ray.run.rescore import compact_run

    compact_run(run, log.say_on(), opens)


@cli.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...|SWEEP")
@click.option("--paper", is_flag=True, help="Print the tables of the benchmark's paper too.")
@click.option(
    "--output",
    "--out",
    "out",
    metavar="URI",
    help="Folder or s3:// prefix. Default: report/ in the one run or sweep.",
)
@click.option("--rules", help="The rule set that comes first. Default: each benchmark's first.")
@click.option(
    "--wrong",
    type=click.IntRange(min=0),
    default=5,
    show_default=True,
    help="Wrong answers in report.html, per run, language and category.",
)
@placed
def report(runs: tuple[str, ...], **options: Any) -> None:
    """Report on runs or a sweep (folders or s3:// URIs): report.html and CSV files."""
    from ace_ray.reports.report import make_report

    make_report(runs, console=Console(), **options)


@cli.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN_A RUN_B...")
@click.option("--rules", default="both", show_default=True, help="A rule set; both: all of them.")
@click.option(
    "--output", "--out", "out", metavar="URI", help="Write report.html and CSV files there."
)
@click.option(
    "--baseline",
    metavar="RUN",
    help="What all others are compared with. Default: RUN_A; of checkpoints the step before.",
)
@click.option("--group", "groups", multiple=True, help="Only these groups, chosen beforehand.")
@click.option("--allow-different", is_flag=True, help="Compare also what does not compare.")
@click.option("--flips", is_flag=True, help="Which rows turned from right to wrong, and back.")
@placed
def compare(runs: tuple[str, ...], flips: bool, **options: Any) -> None:
    """Compare finished runs (folders or s3:// URIs) with each other, entry by entry."""
    from ace_ray.reports.compare import compare as compare_runs
    from ace_ray.reports.compared_runs import NotComparable

    try:
        compare_runs(
            runs,
            with_flips=flips,
            console=Console(),
            **options,
        )
    except NotComparable as error:
        for line in error.lines:
            log.complain(line)
        raise


@cli.command()
@click.argument("config")
@click.option("--address", metavar="URL", help="Of the cluster's dashboard, e.g. http://HEAD:8265.")
@click.option("--output", metavar="URI", help="s3://bucket/prefix of the run folders.")
@OVERRIDES
@LIMIT
@IDS
@click.option(
    "--job",
    type=click.Choice(["evaluate", "sweep"]),
    default="evaluate",
    show_default=True,
    help="What to do with the config.",
)
@click.option("--dry-run", is_flag=True, help="Print the ray job submit line, and send nothing.")
@click.option("--follow/--no-follow", default=True, help="Print the job's log until it ends.")
def submit(
    config: str,
    address: str | None,
    output: str | None,
    overrides: tuple[str, ...],
    limit: int | None,
    ids: tuple[str, ...],
    job: str,
    dry_run: bool,
    follow: bool,
) -> None:
    """Send a config to a Ray cluster as a job, and follow it; ends with the job's exit code."""
    from ace_ray.run.submission import make_submission
    from ace_ray.run.submit import submit as send

    if job == "sweep":
        from ace_ray.sweeps.config import load_sweep

        # Refused here, not on the cluster.
        load_sweep(config, overrides, _given(output, limit, ids=ids))
    submission = make_submission(
        job, config, overrides=overrides, output=output, limit=limit, ids=ids
    )
    if dry_run:
        click.echo(submission.command(address))
        return

    say = log.say_on()

    def told(text: str, nl: bool = True) -> None:
        if nl:
            say(text.strip("\n"))
        else:  # of the job's log
            click.echo(text, nl=False)

    sys.exit(send(submission, address=address, follow=follow, say=told))


@cli.group()
def judge() -> None:
    """Models that judge answers."""


@judge.command("check")
@click.argument("labels", type=click.Path(path_type=Path))
@click.option("--config", required=True, help="Of a run whose model is the judge.")
@click.option("--benchmark", help="Whose answers are judged. Default: the one that has a judge.")
@click.option("--votes", type=click.IntRange(1, 32), default=1, show_default=True)
@click.option(
    "--temperature", type=click.FloatRange(0, 2), help="Of the judge; default as in runs."
)
@click.option("--upstream", type=click.Path(path_type=Path), help="A checkout: its prompts.")
@OUTPUT
@OVERRIDES
def judge_check(
    labels: Path,
    config: str,
    benchmark: str | None,
    votes: int,
    temperature: float | None,
    upstream: Path | None,
    overrides: tuple[str, ...],
    **options: Any,
) -> None:
    """How far a judge agrees with people: LABELS has a judged answer a line."""
    from ace_ray.benchmarks.registry import judge_benchmark

    asked: dict[str, Any] = {
        "name": judge_benchmark(benchmark),
        "labels": str(labels.absolute()),
        "votes": votes,
    }
    if temperature is not None:
        asked["temperature"] = temperature
    if upstream is not None:
        asked["upstream"] = str(upstream.absolute())
    only = (*overrides, f"benchmarks={json.dumps([asked])}")
    sys.exit(run_evaluate(config, overrides=only, own_process=_is_own_process(), **options))


@cli.group()
def data() -> None:
    """Benchmark data: import, pull, check. A benchmark says what it offers."""


@data.command("import")
@click.argument("benchmark")
@click.argument("path", type=click.Path(path_type=Path), required=False)
@click.option("--from-installed", is_flag=True, help="From the benchmark's installed package.")
def data_import(benchmark: str, path: Path | None, from_installed: bool) -> None:
    """Import data into the cache.

    PATH is what the benchmark's page says: a checkout of its repository, or a folder.
    """
    from ace_ray.benchmarks.registry import benchmark_class

    chosen = benchmark_class(benchmark)
    if (path is None) != from_installed:
        raise UserError(
            "it is not clear from where",
            where=f"data import {benchmark}",
            fix="give PATH, or --from-installed if the benchmark is an installed package",
        )
    chosen.import_data(path, log.say_on())


@data.command("pull")
@click.argument("benchmark")
@click.option("--url", help="Another address of the same archive (a mirror).")
@click.option("--sha256", help="Expected SHA-256 of the archive.")
def data_pull(benchmark: str, url: str | None, sha256: str | None) -> None:
    """Download a benchmark's data at its pinned version, check it, import it."""
    from ace_ray.benchmarks.registry import benchmark_class

    benchmark_class(benchmark).pull_data(url, sha256, log.say_on())


@data.command("check")
@click.argument("benchmark")
@click.option("--data", "folder", required=True, help="Data folder, mini, or imported[:VERSION].")
def data_check(benchmark: str, folder: str) -> None:
    """Put every gold answer, and a wrong copy of it, through all rule sets."""
    from ace_ray.benchmarks.registry import benchmark_class

    sys.exit(0 if benchmark_class(benchmark).check_data(folder, _show) else 1)


def main(arguments: list[str] | None = None) -> None:
    """Entry point: a `UserError` anywhere becomes one line and exit code 2.

    ``arguments``: in place of the command line's own.
    """
    try:
        code = cli(
            arguments,
            prog_name="ace-ray",
            standalone_mode=False,
            obj=True,
            auto_envvar_prefix="ACE_RAY",
        )
        sys.exit(code if isinstance(code, int) else 0)
    except UserError as error:
        log.fail(str(error))
        sys.exit(error.exit_code)
    except click.ClickException as error:
        if log.is_json():
            log.fail(error.format_message())
        else:
            error.show()
        sys.exit(error.exit_code)
    except click.Abort:  # Ctrl-C
        sys.exit(FAILED)


if __name__ == "__main__":
    main()
