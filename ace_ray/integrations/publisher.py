"""Publish results to trackers: the command ``ace-ray publish``, and publishing by runs and sweeps.

A tracker may hang, crash, print text or start threads that never end. To isolate it, runs and
sweeps start ``ace-ray publish`` as a subprocess and wait for it at most `MOST_S` seconds.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from typing import IO, Any

from ace_ray.config.schema import RunConfig
from ace_ray.errors import UserError, first_line
from ace_ray.integrations.notify import check_notify, notify
from ace_ray.integrations.tracker_metrics import publications
from ace_ray.integrations.trackers import make_publisher
from ace_ray.storage.object_store import Store
from ace_ray.sweep.sweep import Sweep
from ace_ray.util import log
from ace_ray.util.safe_loading import InvalidContent, yaml_tree
from ace_ray.util.sanitizing import one_line
from ace_ray.util.secrets import mask_secrets
from ace_ray.util.subprocesses import module_command, module_environment

# Timeout of a tracker at the end of a run.
MOST_S = 300.0

# Log settings of the subprocess, whose lines are parsed.
_LOG = {"ACE_RAY_LOG_FORMAT": "text", "ACE_RAY_LOG_LEVEL": "info"}


def publish(store: Store, to: str, options: Mapping[str, Any]) -> None:
    """Send the results of the run or sweep in ``store`` to the tracker ``to``, unless the tracker
    already has them.

    Raises `UserError` if an option is invalid, there are no results, or the tracker failed."""
    send = make_publisher(to, options, to)
    for publication in publications(store):
        try:
            with contextlib.redirect_stdout(sys.stderr):  # trackers print text
                location = one_line(str(send(publication)))
        except UserError:
            raise
        # A tracker must not end this process.
        except (Exception, SystemExit) as error:
            why = f"{type(error).__name__}: {mask_secrets(first_line(error))[:300]}"
            raise UserError(
                f"not published: {why}", where=to, fix="publish again; only missing values are sent"
            ) from error
        log.info(f"{publication.name}: published to {to}: {location}")


def options_of(items: Sequence[str]) -> dict[str, Any]:
    """Parse ``KEY=VALUE`` items of a command line, whose values are YAML. Raises `UserError` if an
    item has no key, no equals sign or no valid YAML."""
    options: dict[str, Any] = {}
    for item in items:
        key, equals, text = item.partition("=")
        try:
            if not equals or not key:
                raise InvalidContent("is not KEY=VALUE")
            options[key] = yaml_tree(text)
        except InvalidContent as error:
            # Do not print the value: it may be a secret.
            raise UserError(str(error), where=f"--option {key}", fix="write key=value") from error
    return options


def publish_run(uri: str, config: RunConfig) -> None:
    """Publish the run or sweep at ``uri`` to the trackers in its config. If a tracker fails or
    exceeds `MOST_S`, print a warning."""
    for target in config.publish:
        arguments = ["publish", uri, "--to", target.tracker]
        for key, value in target.options.items():
            arguments += ["--option", f"{key}={json.dumps(value)}"]  # JSON is YAML
        arguments += _store_options(config)
        if failure := _failure(arguments).removeprefix(f"{target.tracker}: "):
            command = shlex.join(["ace-ray", *arguments])
            log.warning(f"warning: {target.tracker}: {failure}; to repeat: {command}")


def run_and_publish(sweep: Sweep) -> int:
    """Run ``sweep`` and return its exit code. Whenever runs have ended, tell ``notify``, publish
    the results, and write the report of a sweep that watches for checkpoints.

    Raises `UserError` as `Sweep.run` does, and if ``notify`` is not valid."""
    check_notify(sweep.options.notify)
    news, over = threading.Event(), threading.Event()

    def deliver_news() -> None:
        while news.wait():
            news.clear()
            is_last = over.is_set()
            _deliver(sweep)
            if is_last:  # the command writes the last report
                return
            if sweep.options.watch and sweep.has_results:
                arguments = ["report", sweep.uri, *_store_options(sweep.any_run)]
                if failure := _failure(arguments, echo=False):
                    log.warning(f"report not written: {failure}")

    thread = threading.Thread(target=deliver_news, daemon=True)
    thread.start()
    try:
        code = sweep.run(news.set)
    finally:
        over.set()
        news.set()
    thread.join()
    return code


def _deliver(sweep: Sweep) -> None:
    """Tell ``notify`` about ended runs, and publish results. Failures are warnings."""
    try:
        notify(sweep)
    except Exception as error:  # noqa: BLE001 - a receiver must not end a sweep
        log.warning(f"notify: {first_line(error)}")
    if sweep.has_results:
        publish_run(sweep.uri, sweep.any_run)


def _store_options(config: RunConfig) -> list[str]:
    options = config.store.model_dump(exclude_none=True).items()
    return [word for key, value in options for word in (f"--{key.replace('_', '-')}", value)]


def _failure(arguments: Sequence[str], *, echo: bool = True) -> str:
    """Run ``ace-ray`` with ``arguments`` in a subprocess. With ``echo``, print its stdout.
    Return the reason of a failure, or ""."""
    # Files, not pipes: a tracker's own subprocesses may keep a pipe open.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        try:
            code = subprocess.run(
                module_command("ace_ray.cli.main", *arguments),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
                env={**module_environment(), **_LOG},
                start_new_session=True,  # Ctrl-C does not reach it
                timeout=MOST_S,
            ).returncode
        except OSError as error:
            return f"not published: {error}"
        except (subprocess.TimeoutExpired, KeyboardInterrupt):  # does not fail the run
            return f"not published: timed out after {MOST_S:g} s"
        published, complaints = _lines(out), _lines(errors)
    for line in published if echo else ():
        log.info(line)
    if code:
        messages = [line for line in complaints if line.startswith("ace-ray: ")]
        return (messages or complaints or [f"exit code {code}"])[-1].removeprefix("ace-ray: ")
    return "" if published else "the process ended before it published anything"


def _lines(file: IO[bytes]) -> list[str]:
    file.seek(0)
    text = file.read(1 << 20).decode(errors="replace")
    return [line for line in text.splitlines() if line.strip()]
