"""Publishing as part of a run or sweep: by ``ace-ray publish`` in a process of its own.

A tracker may hang, crash, print or leave threads behind. None of it reaches the run, whose exit
code is what it would be without.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import IO, Any

from ace_ray import log
from ace_ray.children import module_command, module_environment
from ace_ray.config import PublishConfig, RunConfig, StoreConfig
from ace_ray.sweeps.sweep import Sweep

MOST_S = 300.0
"""That a run which has ended waits for a tracker."""


class Beside:
    """Publishes one run or sweep, at ``uri``, to all trackers of its config."""

    def __init__(
        self,
        uri: str,
        asked: Sequence[PublishConfig],
        place: StoreConfig,
        say: Callable[[str], None],
    ) -> None:
        self._targets = [_Target(one.to, _arguments(uri, one, place), say) for one in asked]

    def start(self) -> None:
        """Begin to send what there is now, unless that is going on. What is missed then, a later
        call sends."""
        for target in self._targets:
            target.start()

    def finish(self) -> None:
        """Send what is left, and wait for it."""
        answering = [target for target in self._targets if target.wait()]
        for target in answering:
            target.start()
        for target in answering:
            target.wait()


def publish_run(uri: str, config: RunConfig, say: Callable[[str], None]) -> None:
    """Publish the run at ``uri``, which is complete, as its config says."""
    Beside(uri, config.publish, config.store, say).finish()


def run_published(sweep: Sweep, say: Callable[[str], None]) -> int:
    """Run ``sweep``, and publish it whenever runs of it have ended; returns its exit code."""
    beside = Beside(sweep.uri, sweep.any_run.publish, sweep.any_run.store, say)

    def noted() -> None:
        if sweep.has_results:
            beside.start()

    code = sweep.run(noted)
    if sweep.has_results:
        beside.finish()
    return code


class _Target:
    """One tracker."""

    def __init__(self, to: str, arguments: Sequence[str], say: Callable[[str], None]) -> None:
        self._to, self._arguments, self._say = to, arguments, say
        self._child: subprocess.Popen[bytes] | None = None
        self._files: tuple[IO[bytes], IO[bytes]] | None = None
        self._began = 0.0
        self._warned = ""

    def start(self) -> None:
        if self._child is not None:
            if self._child.poll() is None and time.monotonic() - self._began < MOST_S:
                return
            self.wait()
        self._files = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
        out, errors = self._files
        self._began = time.monotonic()
        try:
            self._child = subprocess.Popen(
                module_command("ace_ray.cli", *self._arguments),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
                env=_environment(),
                start_new_session=True,  # what a tracker starts ends with it
            )
        except OSError as error:
            self._warn(str(error))

    def wait(self) -> bool:
        """Until it has ended, and say what came of it; whether it answered in time."""
        if self._child is None or self._files is None:
            return True
        left = MOST_S - (time.monotonic() - self._began)
        why = ""
        try:
            self._child.wait(max(0.0, left))
        except subprocess.TimeoutExpired:
            why = f"no answer within {MOST_S:g} s"
        except KeyboardInterrupt:  # the run is complete, and stays so
            why = "interrupted"
        if why and self._child.poll() is None:  # else the number may be another process's by now
            with suppress(ProcessLookupError):
                os.killpg(self._child.pid, signal.SIGKILL)
        code = self._child.wait()
        self._child = None
        out, errors = (_text(file) for file in self._files)
        for line in out.splitlines():
            self._say(line)
        if code or why or not out:
            self._warn(why or _why(code, errors))
        return not why

    def _warn(self, why: str) -> None:
        if why == self._warned:  # a sweep asks again whenever runs of it have ended
            return
        self._warned = why
        told = why if why.startswith(f"{self._to}: ") else f"{self._to}: not published, {why}"
        command = shlex.join(["ace-ray", *self._arguments])
        self._say(log.warning(f"warning: {told}; to repeat: {command}"))


def _environment() -> dict[str, str]:
    """Of the child: its lines are read here, and its options are those of the config alone."""
    options = [name for name in os.environ if name.startswith("ACE_RAY_PUBLISH_")]
    kept = {name: value for name, value in os.environ.items() if name not in options}
    return log.as_text(module_environment(kept))


def _why(code: int, errors: str) -> str:
    """What a child says that has failed: a line of ours, or the last one of a traceback."""
    if code < 0:
        return f"its process was ended by signal {-code}"
    if code == 0:
        return "its process ended before it was done"
    lines = [line for line in errors.splitlines() if line.strip()] or [f"exit code {code}"]
    own = [line for line in lines if line.startswith("ace-ray: ")]
    return (own or lines)[-1].removeprefix("ace-ray: ")


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    text = file.read(1 << 20).decode(errors="replace")
    file.close()
    return text


def _arguments(uri: str, asked: PublishConfig, place: StoreConfig) -> list[str]:
    arguments = ["publish", uri, "--to", asked.to]
    for key, value in asked.options.items():
        arguments += ["--option", f"{key}={_yaml(value)}"]
    if place.endpoint_url is not None:
        arguments += ["--endpoint-url", place.endpoint_url]
    if place.region is not None:
        arguments += ["--region", place.region]
    return arguments


def _yaml(value: Any) -> str:
    """As a command line's YAML value: JSON is YAML."""
    return json.dumps(value)
