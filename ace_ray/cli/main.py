"""The ``ace-ray`` command. Each subcommand is a few lines that call the package.

Exit codes: 0 complete; 1 failed; 2 a user's mistake (one line, no traceback); 75 incomplete, run
the same command again. Commands import slow modules in their functions.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from ace_ray.cli import results, run  # noqa: F401 - they add their commands
from ace_ray.cli.options import cli, echo_result, store_options
from ace_ray.errors import FAILED, UserError
from ace_ray.util import log
from ace_ray.util.local_files import local_folder

__all__ = ["cli", "main"]


def main(arguments: list[str] | None = None) -> None:
    """Run a command. For a `UserError`, print one line and exit with code 2.

    ``arguments`` replace the arguments of the command line."""
    try:
        names = {"prog_name": "ace-ray", "auto_envvar_prefix": "ACE_RAY"}
        code = cli(arguments, standalone_mode=False, obj=True, **names)
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


@cli.group()
def data() -> None:
    """Import, download, check and show benchmark data. A benchmark offers some of the commands."""


@data.command("import")
@click.argument("benchmark")
@click.argument("path", type=click.Path(path_type=Path), required=False)
@click.option(
    "--from-installed", is_flag=True, help="Import from the benchmark's installed package."
)
def data_import(benchmark: str, path: Path | None, from_installed: bool) -> None:
    """Import data into the cache.

    PATH is a checkout of the benchmark's repository, or a folder; see the benchmark's page.
    """
    from ace_ray.benchmarks.registry import benchmark_class

    chosen = benchmark_class(benchmark)
    if (path is None) != from_installed:
        fix = "give PATH, or --from-installed if the benchmark is an installed package"
        raise UserError("the data needs exactly one source", f"data import {benchmark}", fix)
    chosen.import_data(path)


@data.command("pull")
@click.argument("benchmark")
@click.option("--url", help="Download the same archive from this URL (a mirror).")
@click.option("--sha256", help="Expected SHA-256 of the archive.")
def data_pull(benchmark: str, url: str | None, sha256: str | None) -> None:
    """Download the supported version of a benchmark's data, check its hash, and import it."""
    from ace_ray.benchmarks.registry import benchmark_class

    benchmark_class(benchmark).pull_data(url, sha256)


@data.command("check")
@click.argument("benchmark")
@click.argument("path", required=False)
@click.option(
    "--data", "folder", help="Data folder, mini, or imported[:VERSION]; the same as PATH."
)
def data_check(benchmark: str, path: str | None, folder: str | None) -> None:
    """Check every gold answer, and a wrong copy of it, under all rule sets."""
    from ace_ray.benchmarks.registry import benchmark_class

    chosen = benchmark_class(benchmark)
    if (source := path if folder is None else folder) is None or None not in (path, folder):
        fix = "give PATH, or --data with a name such as mini or imported"
        raise UserError("the data needs exactly one source", f"data check {benchmark}", fix)
    sys.exit(0 if chosen.check_data(source) else 1)


@data.command("show")
@click.argument("benchmark")
@click.option("--data", help="Value of the benchmark's option data. Default: as in a config.")
@click.option("--output", metavar="URI", help="Folder or s3:// prefix for CSV and SVG files.")
@store_options
def data_show(benchmark: str, data: str | None, output: str | None, opens: Any) -> None:
    """Count the data's entries, APIs, domains, dialogue turns and arguments."""
    from ace_ray.reports.composition import show_composition

    show_composition(benchmark, data, output, opens, Console())


@data.command("answers")
@click.argument("action", type=click.Choice(["import", "export"]))
@click.argument("folder")
@click.option("--cache-folder", help="Folder of recorded answers; default: as in a run.")
def data_answers(action: str, folder: str, cache_folder: str | None) -> None:
    """Import or export StableToolBench's recorded API answers.

    FOLDER has JSON files, <category>/<tool>/<api>.json.
    """
    from ace_ray.benchmarks.stabletoolbench.apis import cache, json_files

    answers = cache.cache_folder(cache_folder, "--cache-folder")
    if action == "import":
        count = json_files.import_answers(local_folder(folder, "FOLDER"), answers)
        echo_result(f"imported {count:,} answers from {folder} to {answers}")
    else:
        count = json_files.export_answers(answers, local_folder(folder, "FOLDER"))
        echo_result(f"exported {count:,} answers from {answers} to {folder}")


if __name__ == "__main__":
    main()
