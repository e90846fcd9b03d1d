"""The `ace-ray` command group. The command files add their commands to it."""

from __future__ import annotations

import click

import ace_ray
from ace_ray.cli.options import Group
from ace_ray.util.sanitizing import printed


@click.group(
    cls=Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(ace_ray.__version__, prog_name="ace-ray")
def cli() -> None:
    """Distributed batch evaluation of LLM tool use, on Ray and vLLM."""


def echo_result(line: str) -> None:
    """Print a result, without control characters and secrets."""
    click.echo(printed(line))


def is_own_process() -> bool:
    """Return whether `main` started the command. Tests and notebooks call `cli` directly."""
    return bool(click.get_current_context().obj)
