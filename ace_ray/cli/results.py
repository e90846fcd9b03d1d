"""Commands that read stored results, such as ``score``, ``show``, ``report`` and ``compare``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from ace_ray.cli.options import FULL, cli, echo_result, multi_option, store_options
from ace_ray.errors import UserError
from ace_ray.util import log


@cli.command()
@click.argument("path")
@multi_option(
    "--benchmark",
    "benchmarks",
    metavar="NAME|FILE.py:CLASS",
    text="Benchmark of external outputs; for a run: the benchmark that --data belongs to, "
    "or a benchmark in a local file whose code may run.",
)
@click.option("--data", help="Data folder, mini, or imported[:VERSION].")
@multi_option(
    "--option", "options", metavar="KEY=VALUE", text="Option of the benchmark (the value is YAML)."
)
@click.option("--output", metavar="URI", help="Folder or s3:// prefix for the new run.")
@click.option("--model", help="Name of the model that made the outputs. Default: the name of PATH.")
@click.option("--fresh", is_flag=True, help="Replace the scored run of other outputs at --output.")
@click.option(
    "--judge",
    metavar="FILE",
    help="Config file with endpoint and sampling of a judge, for answers that lack its verdict.",
)
@FULL
@store_options
def score(
    path: str, benchmarks: tuple[str, ...], options: tuple[str, ...], full: bool, **more: Any
) -> None:
    """Score a stored run again, or score external outputs, without an engine.

    PATH is a run (folder or s3:// URI) or external outputs. Stored episodes of a run are judged
    again in place. External outputs are JSON lines or a benchmark's official result folder. They
    need --benchmark and --output, --data if the benchmark has data, and --option for other keys
    of its section of a config. They become a run that
    report and compare can read.

    A run is scored with the data that it names. Code in the data runs only if it belongs to a known
    version of the benchmark, or if --data names the data (with --benchmark, if the run has several
    benchmarks). Code in a local file runs only if --benchmark names it.
    """
    if more["output"] is None and more["fresh"]:
        raise UserError("--fresh needs --output", where=path, fix="name the folder with --output")
    from ace_ray.integrations.publisher import options_of
    from ace_ray.reports.printed_summary import tell_results
    from ace_ray.rescoring.rejudge import score as score_path

    code, summary = score_path(path, benchmarks, options=options_of(options), **more)
    tell_results(summary, code, full=full)
    sys.exit(code)


@cli.command()
@click.argument("run")
@click.argument("entry", default="", metavar="[ID]")
@click.option("--benchmark", default="", help="Show only rows of this benchmark.")
@click.option("--category", default="", help="Show only rows of this category.")
@click.option("--language", default="", help="Show only rows of this language.")
@click.option("--sample", type=click.IntRange(min=0), help="Show only rows of this sample.")
@click.option("--status", default="", help="Show only rows with this status, e.g. infra_error.")
@click.option(
    "--rules",
    default="",
    help="Rule set used by --valid and --wrong. Default: the benchmark's first.",
)
@click.option(
    "--valid/--wrong", "valid", default=None, help="Show only right rows, or only wrong rows."
)
@click.option("--error-type", default="", help="Show only wrong rows with this error type.")
@click.option(
    "--changed",
    default="",
    metavar="RUN",
    help="Show only rows that have another verdict in the run RUN.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    help="Maximum rows to show (0 = all; default 20, or all with --json).",
)
@click.option("--json", "as_json", is_flag=True, help="Print whole rows as JSON, one per line.")
@click.option(
    "--log", "logs", is_flag=True, help="Print the log of all sessions, with engines that crashed."
)
@store_options
def show(
    run: str, changed: str, limit: int | None, as_json: bool, logs: bool, opens: Any, **filters: Any
) -> None:
    """List rows of a run, show one row, or print the log of a run or sweep.

    ID is an entry's id or the beginning of a row's id. A row is shown with its prompt, answers,
    calls and their results, gold answer, verdicts with reasons, and sandbox changes.
    """
    from ace_ray.storage.session_log import log_text, read_logs
    from ace_ray.storage.stored_run import StoredRun
    from ace_ray.viewer.row_filter import Filter
    from ace_ray.viewer.show import show as show_rows

    if logs:
        for line in read_logs(opens(run)):
            for text in [line] if as_json else log_text(line):
                echo_result(text)
        return
    limit = (0 if as_json else 20) if limit is None else limit
    base = StoredRun(opens(changed)) if changed else None
    show_rows(StoredRun(opens(run)), Filter(**filters), base=base, limit=limit, as_json=as_json)


@cli.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...|SWEEP")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Port on this machine (0 = any free port). Default: 8642, or the next free port.",
)
@store_options
def view(runs: tuple[str, ...], port: int | None, opens: Any) -> None:
    """Browse runs (folders or s3:// URIs) in a browser, also while they are running.

    The pages list all rows with filters and search, give every row its own URL, and show the same
    entry of two runs side by side. Only this machine can reach the pages, and only with the token
    in the printed URL.
    """
    from ace_ray.viewer.server import serve
    from ace_ray.viewer.table import tables_of

    serve(tables_of([opens(uri) for uri in runs]), port)


@cli.command()
@click.argument("run")
@click.option(
    "--to",
    "form",
    type=click.Choice(["inspect", "lm-eval", "hf"]),
    required=True,
    help="Format: Inspect's .eval logs, lm-eval's result files, or evaluation results "
    "for the Hugging Face Hub.",
)
@click.option(
    "--output",
    metavar="URI",
    help="Folder or s3:// prefix. Default: export/inspect, export/lm-eval or export/hf in the run.",
)
@multi_option(
    "--dataset",
    "datasets",
    metavar="[BENCHMARK=]ID",
    text="Hub id of the benchmark's dataset, required with --to hf.",
)
@store_options
def export(run: str, form: str, output: str | None, datasets: tuple[str, ...], opens: Any) -> None:
    """Export a run (folder or s3:// URI) to the file formats of other tools."""
    from ace_ray.integrations.result_files import export_run

    for uri in export_run(opens(run), form, opens(output) if output else None, datasets):
        echo_result(uri)


@cli.command()
@click.argument("run", metavar="RUN|SWEEP")
@click.option("--to", required=True, help="Tracker: tensorboard, trackio, wandb or mlflow.")
@multi_option(
    "--option", "options", metavar="KEY=VALUE", text="Option of the tracker (the value is YAML)."
)
@store_options
def publish(run: str, to: str, options: tuple[str, ...], opens: Any) -> None:
    """Send the numbers of a run or sweep (folder or s3:// URI) to a tracker, each only once."""
    from ace_ray.integrations.publisher import options_of
    from ace_ray.integrations.publisher import publish as send

    send(opens(run), to, options_of(options))


@cli.command()
@click.argument("policy")
@click.argument("run")
@click.option("--against", metavar="RUN", help="Baseline run.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
@click.option("--junit", metavar="FILE", help="Also write the checks as JUnit XML.")
@store_options
def gate(
    policy: str, run: str, against: str | None, as_json: bool, junit: str | None, opens: Any
) -> None:
    """Decide with a POLICY file whether a run is good enough: GO, NO-GO or INCONCLUSIVE.

    Exit codes: 0 GO, 3 NO-GO, 4 INCONCLUSIVE, 75 incomplete run.
    """
    from ace_ray.reports.gate import gate as decide

    if junit and "://" in junit:
        raise UserError("is not a local file", where=f"--junit {junit}", fix="name a local file")
    decision = decide(policy, run, against, opens)
    if junit:
        file = Path(junit).absolute()
        opens(str(file.parent)).put(file.name, decision.as_junit().encode())
    if as_json:
        click.echo(json.dumps(decision.as_json()))
    else:
        for check in decision.checks:
            echo_result(f"{check.answer:<12} {check.name}: {check.reason}")
        echo_result("incomplete" if decision.incomplete else decision.answer)
    sys.exit(decision.exit_code)


@cli.command()
@click.argument("run")
@click.option("--tool-parser", metavar="NAME", help="vLLM tool parser. Default: the run's.")
@click.option(
    "--reasoning-parser", metavar="NAME", help="vLLM reasoning parser. Default: the run's."
)
@click.option("--plugin", "plugins", multiple=True, metavar="FILE", help="File with parsers.")
@click.option("--python", metavar="PATH", help="Python of another environment with vLLM.")
@click.option("--tokenizer", metavar="MODEL", help="Model of the run, or a folder with its files.")
@multi_option(
    "--benchmark",
    "benchmarks",
    metavar="FILE.py:CLASS",
    text="Benchmark of the run in a local file whose code may run.",
)
@click.option("--output", metavar="URI", help="Folder of the new run. Default: beside the run.")
@store_options
def reread(run: str, opens: Any, **options: Any) -> None:
    """Read a run's stored answers again with another parser or another vLLM, without an engine.

    Writes a run (reread-...) for report, compare, show and view. Answers that are read differently
    are checked again. A row has no verdict if its episode would have continued differently.
    """
    from ace_ray.reports.explain import print_reparse
    from ace_ray.rescoring.reparse import reparse_run as read_again

    print_reparse(read_again(run, opens=opens, **options), opens, Console())


@cli.command()
@click.argument("run")
@store_options
def compact(run: str, opens: Any) -> None:
    """Merge the Parquet parts of a run (folder or s3:// URI) into a few large parts."""
    from ace_ray.rescoring.rejudge import compact_run

    compact_run(run, opens)


@cli.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...|SWEEP")
@click.option("--paper", is_flag=True, help="Print the tables of the benchmark's paper too.")
@click.option(
    "--output",
    "--out",
    "out",
    metavar="URI",
    help="Folder or s3:// prefix for the report. Default: report/ in the run or "
    "sweep, if there is only one.",
)
@click.option("--rules", help="Rule set to show first. Default: each benchmark's first.")
@click.option(
    "--wrong",
    type=click.IntRange(min=0),
    default=5,
    show_default=True,
    help="Number of wrong answers to show in report.html per run, language and category.",
)
@store_options
def report(runs: tuple[str, ...], **options: Any) -> None:
    """Write report.html, CSV and SVG files for runs or a sweep (folders or s3:// URIs)."""
    from ace_ray.reports.report import make_report

    make_report(runs, console=Console(), **options)


@cli.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN_A RUN_B...")
@click.option(
    "--rules",
    default="both",
    show_default=True,
    help="Rule set to compare under; both: all rule sets.",
)
@click.option(
    "--output",
    "--out",
    "out",
    metavar="URI",
    help="Folder or s3:// prefix for report.html, CSV and SVG files. Default: write no files.",
)
@click.option(
    "--reference",
    metavar="LABEL|RUN",
    help="Run that all others are compared with. Default: RUN_A; for checkpoints, the "
    "previous step.",
)
@multi_option(
    "--group",
    "groups",
    metavar="TEXT",
    text="Compare only this group of categories, chosen before looking at results.",
)
@multi_option("--across", metavar="sampling", text="Compare runs that differ in sampling.")
@click.option("--allow-different", is_flag=True, help="Compare even if settings differ.")
@click.option(
    "--margin",
    type=click.FloatRange(0, 100),
    default=1.0,
    show_default=True,
    help="Points by which a run may be worse than the run that it is compared with.",
)
@click.option("--full", is_flag=True, help="Print all tables, not only the first 40 lines.")
@click.option(
    "--flips",
    "with_flips",
    is_flag=True,
    help="Show which rows turned from right to wrong and from wrong to right.",
)
@click.option(
    "--explain",
    "with_causes",
    is_flag=True,
    help="Show the first cause of each differing row; implies --allow-different.",
)
@multi_option(
    "--tokenizer",
    "tokenizers",
    metavar="MODEL",
    text="Model of a run, or a folder with its files, to number the first differing token of "
    "prompts with --explain.",
)
@store_options
def compare(runs: tuple[str, ...], tokenizers: tuple[str, ...], opens: Any, **options: Any) -> None:
    """Compare finished runs (folders or s3:// URIs) with each other, entry by entry."""
    from ace_ray.reports.compare import compare as compare_runs
    from ace_ray.reports.compared_runs import NotComparable
    from ace_ray.rescoring.prompts import FirstPrompts

    try:
        prompts = FirstPrompts(tokenizers, opens) if tokenizers else None
        compare_runs(runs, prompts=prompts, opens=opens, console=Console(), **options)
    except NotComparable as error:
        for line in error.lines[1:]:  # the error has the first
            log.complain(line)
        raise
