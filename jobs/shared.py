"""What the jobs share: the checkout on the path, a config by name or by text, errors in a line."""

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ace_ray.errors import UserError
from ace_ray.util import log


def config_parser(purpose: str) -> argparse.ArgumentParser:
    """The options that every job with a config takes."""
    parser = argparse.ArgumentParser(description=purpose.splitlines()[0])
    config = parser.add_mutually_exclusive_group(required=True)
    config.add_argument("--config", metavar="FILE")
    config.add_argument("--config-text", metavar="YAML", help="the config itself, as submitted")
    parser.add_argument("--output", metavar="URI")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="A.B=C")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--id", dest="ids", action="append", default=[], metavar="ID")
    parser.add_argument(
        "--file", dest="files", action="append", default=[], metavar="NAME:TEXT", help="a module"
    )
    return parser


def run(job: Callable[[str], int], args: argparse.Namespace) -> int:
    """``job`` on the config's file; returns the exit code. A `UserError` becomes one line."""
    try:
        for module in args.files:
            name, _, text = module.partition(":")
            Path(name).write_text(text, encoding="utf-8")
        if args.config is not None:
            return job(args.config)
        with tempfile.TemporaryDirectory(prefix="ace_ray-") as folder:
            file = Path(folder, "submitted.yaml")
            file.write_text(args.config_text, encoding="utf-8")
            return job(str(file))
    except UserError as error:
        log.fail(str(error))
        return error.exit_code
