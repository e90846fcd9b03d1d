"""The `ace-ray` command group, options that several commands share, and the log options."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, TypeVar

import click

import ace_ray
from ace_ray.util import log
from ace_ray.util.sanitizing import sanitize_line

F = TypeVar("F", bound=Callable[..., Any])


def _log_options() -> list[click.Option]:
    """Return the log options. Both ``ace-ray`` and its commands accept them, at any position."""
    return [
        click.Option(
            ["--log-level"],
            type=click.Choice(log.LEVELS),
            expose_value=False,
            callback=lambda ctx, option, value: log.configure(level=value),
            help="Minimum log level. Default: info.",
        ),
        click.Option(
            ["--log-format"],
            type=click.Choice(log.FORMATS),
            expose_value=False,
            callback=lambda ctx, option, value: log.configure(form=value),
            help="Format of logs and results; json: log lines on stderr, results as one JSON "
            "line on stdout. Default: text.",
        ),
    ]


class Command(click.Command):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.params += _log_options()

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # Name environment variables after options. By default click uses the parameter names.
        for option in self.params:
            if isinstance(option, click.Option) and ctx.auto_envvar_prefix:
                name = option.opts[0].lstrip("-").replace("-", "_")
                option.envvar = f"{ctx.auto_envvar_prefix}_{name}".upper()
        return super().parse_args(ctx, args)


class Group(Command, click.Group):
    command_class = Command
    group_class = type


@click.group(
    cls=Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(ace_ray.__version__, prog_name="ace-ray")
def cli() -> None:
    """Distributed batch evaluation of LLM tool use, on Ray and vLLM."""


def echo_result(line: str) -> None:
    """Print a result, without control characters and secrets."""
    click.echo(sanitize_line(line))


def multi_option(option: str, *names: str, metavar: str, text: str) -> Callable[[F], F]:
    """Return the decorator that adds an option with the help ``text``, which may be repeated."""
    text = f"{text} May be repeated."
    return click.option(option, *names, multiple=True, metavar=metavar, help=text)


MODEL = click.option(
    "--model", metavar="SOURCE", help="Model to evaluate, in place of the config's model.source."
)
BENCHMARKS = multi_option(
    "--benchmark",
    "benchmarks",
    metavar="NAME",
    text="Evaluate only this benchmark, with the config's options for it if there are any.",
)
LIMIT = click.option(
    "--limit",
    type=click.IntRange(min=1),
    help="Evaluate at most N entries, taken from every category in turn.",
)
IDS = multi_option(
    "--id",
    "ids",
    metavar="ID",
    text="Evaluate only this entry: ID, CATEGORY/ID or LANGUAGE/CATEGORY/ID.",
)
FULL = click.option("--full", is_flag=True, help="Print the tables of all categories too.")
OVERRIDES = multi_option(
    "--set", "overrides", metavar="A.B=C", text="Override a config key (the value is YAML)."
)
OUTPUT = click.option(
    "--output", metavar="URI", help="Folder or s3://bucket/prefix for the run folders."
)


def run_options(command: Any) -> Any:
    """Add to ``command`` the argument and the options that describe a run."""
    for option in (IDS, LIMIT, OVERRIDES, OUTPUT, BENCHMARKS, MODEL):
        command = option(command)
    return click.argument("config", required=False)(command)


def store_options(command: Any) -> Any:
    """Add S3 options to ``command``, which receives the function `opener` returns as ``opens``."""

    @click.option(
        "--endpoint-url",
        metavar="URL",
        help="URL of an S3-compatible store. Default: from the environment.",
    )
    @click.option("--region", help="S3 region. Default: from the environment.")
    @wraps(command)
    def call_with_store(endpoint_url: str | None, region: str | None, **options: Any) -> Any:
        return command(opens=opener(endpoint_url, region), **options)

    return call_with_store


def opener(endpoint_url: str | None, region: str | None) -> Any:
    """Return a function that opens a URI as a store; for S3 at this endpoint and region. Raises
    `UserError` if a value is invalid or contains a secret."""
    from ace_ray.config.schema import StoreConfig, refuse_secrets, validate_tree
    from ace_ray.storage.object_store import open_store

    settings = {"endpoint_url": endpoint_url, "region": region}
    refuse_secrets(settings, "a command line is visible to other users and in logs")
    store_config = validate_tree(StoreConfig, settings, where="command line")
    return partial(open_store, endpoint_url=store_config.endpoint_url, region=store_config.region)
