"""Commands that read results: score, show, view, export, publish, compact, report, compare."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from ace_ray.cli.group import cli, echo_result
from ace_ray.cli.options import (
    FULL,
    placed,
)
from ace_ray.errors import COMPLETE, UserError
from ace_ray.util import log


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
        from ace_ray.pipeline.rescore import rescore
        from ace_ray.reports.printed_summary import tell_results

        code, rescored = rescore(path, log.say_on(), opens, data=data, named=benchmarks)
        tell_results(rescored, code, full=full)
        sys.exit(code)
    if len(benchmarks) != 1:
        raise UserError(
            "it is not clear what these are outputs of",
            where=path,
            fix="name one benchmark with --benchmark; to score a run again, leave --output out",
        )
    from ace_ray.pipeline.score import score_outputs
    from ace_ray.reports.printed_summary import tell_results

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
    from ace_ray.viewer.select import Filter, StoredRun
    from ace_ray.viewer.show import show as show_rows

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
    from ace_ray.viewer.server import serve
    from ace_ray.viewer.table import tables_of

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
    from ace_ray.integrations.inspect_log import export_inspect
    from ace_ray.integrations.result_files import export_hub, export_lm_eval
    from ace_ray.viewer.select import StoredRun

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
        echo_result(f"{target.root}/{name}")


@cli.command()
@click.argument("run", metavar="RUN|SWEEP")
@click.option("--to", required=True, help="tensorboard, trackio, wandb or mlflow.")
@click.option(
    "--option", "options", multiple=True, metavar="KEY=VALUE", help="Of the tracker (YAML value)."
)
@placed
def publish(run: str, to: str, options: tuple[str, ...], opens: Any) -> None:
    """Send the numbers of a run or sweep (folder or s3:// URI) to a tracker, each of them once."""
    from ace_ray.integrations.publish import options_of
    from ace_ray.integrations.publish import publish as send

    send(opens(run), to, options_of(options), echo_result)


@cli.command()
@click.argument("run")
@placed
def compact(run: str, opens: Any) -> None:
    """Merge the Parquet parts of a run (folder or s3:// URI) into few large ones."""
    from ace_ray.pipeline.rescore import compact_run

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
