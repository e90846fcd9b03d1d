"""The ``ace-ray`` command. Each subcommand is a few lines that call the package.

Exit codes: 0 complete; 1 failed; 2 a user's mistake (one line, no traceback); 75 incomplete, so run
the same command again. Commands import heavy modules themselves.
"""

from __future__ import annotations

import sys

import click

from ace_ray.cli import data, results, run  # noqa: F401 - they add their commands
from ace_ray.cli.group import cli
from ace_ray.errors import FAILED, UserError
from ace_ray.util import log

__all__ = ["cli", "main"]


def main(arguments: list[str] | None = None) -> None:
    """Run a command. A `UserError` becomes one line and exit code 2.

    ``arguments`` replace those of the command line.
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
