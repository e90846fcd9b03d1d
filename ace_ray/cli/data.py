"""Commands on benchmark data: import, pull, check."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ace_ray.cli.group import cli, echo_result
from ace_ray.errors import UserError
from ace_ray.util import log


@cli.group()
def data() -> None:
    """Import, pull or check benchmark data. Not every benchmark offers all three."""


@data.command("import")
@click.argument("benchmark")
@click.argument("path", type=click.Path(path_type=Path), required=False)
@click.option(
    "--from-installed", is_flag=True, help="Import from the benchmark's installed package."
)
def data_import(benchmark: str, path: Path | None, from_installed: bool) -> None:
    """Import benchmark data into the cache.

    PATH is a checkout of the benchmark's repository or a folder; see the benchmark's page.
    """
    from ace_ray.benchmarks.registry import benchmark_class

    chosen = benchmark_class(benchmark)
    if (path is None) != from_installed:
        raise UserError(
            "the source of the data is not clear",
            where=f"data import {benchmark}",
            fix="give PATH, or --from-installed if the benchmark is an installed package",
        )
    chosen.import_data(path, log.say_on())


@data.command("pull")
@click.argument("benchmark")
@click.option("--url", help="Download the same archive from this URL (a mirror).")
@click.option("--sha256", help="Expected SHA-256 of the archive.")
def data_pull(benchmark: str, url: str | None, sha256: str | None) -> None:
    """Download the pinned version of a benchmark's data, check it and import it."""
    from ace_ray.benchmarks.registry import benchmark_class

    benchmark_class(benchmark).pull_data(url, sha256, log.say_on())


@data.command("check")
@click.argument("benchmark")
@click.option("--data", "folder", required=True, help="Data folder, mini, or imported[:VERSION].")
def data_check(benchmark: str, folder: str) -> None:
    """Check that every gold answer passes all rule sets and a wrong copy of it does not."""
    from ace_ray.benchmarks.registry import benchmark_class

    sys.exit(0 if benchmark_class(benchmark).check_data(folder, echo_result) else 1)
