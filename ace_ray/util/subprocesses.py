"""Start Python child processes, confine them, and end them with their parent."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ace_ray

# Audit events that are allowed in a confined process. They do not include events that open files,
# connect, start processes or import modules. Only the audit hook and the kernel's limits confine
# untrusted code, which can access any object of the process.
_EVENTS = frozenset(
    (
        *("builtins.id", "code.__new__", "compile", "exec", "marshal.loads"),
        *("object.__delattr__", "object.__getattr__", "object.__setattr__"),
        *("sys._getframe", "sys.excepthook", "sys.unraisablehook"),
    )
)

# Script of the watchdog, which runs without site packages and is never imported.
_WATCHDOG = str(Path(__file__).with_name("watchdog.py"))
# The watchdogs of this process. No code waits for their end.
_watchdogs: list[subprocess.Popen[bytes]] = []

# True while `set_limit` runs. Other code must not set limits in a confined process.
_limiting = False


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs ``module`` as a program. Run it with `module_environment`.

    Without ``-P``, ``-m`` would import modules from the current folder, which may be untrusted."""
    return [sys.executable, "-P", "-m", module, *arguments]


def run_module(
    module: str, *arguments: str, stdin: str = "", timeout_s: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Run ``module`` as a program, and capture its output. Raises `subprocess.TimeoutExpired`."""
    return subprocess.run(
        module_command(module, *arguments), env=module_environment(), input=stdin,
        capture_output=True, text=True, check=False, timeout=timeout_s,
    )  # fmt: skip


def module_environment(base: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return ``base`` with a PYTHONPATH that finds this package from any working directory."""
    paths = [os.path.abspath(path) for path in base.get("PYTHONPATH", "").split(os.pathsep) if path]
    root = str(Path(ace_ray.__file__).parents[1])
    # Site packages are already on the path, after the standard library.
    if root not in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *paths}:
        paths.append(root)
    environment = {key: value for key, value in base.items() if key != "PYTHONPATH"}
    return {**environment, "PYTHONPATH": os.pathsep.join(paths)} if paths else environment


def confine() -> None:
    """Forbid this process to open files or sockets, start processes or dump core. It cannot be
    undone.

    Limits of the kernel enforce it. An audit hook raises a clearer error first."""
    for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC):
        resource.setrlimit(kind, (0, 0))

    def refuse(event: str, _: Any) -> None:
        if event not in _EVENTS and not (event == "resource.setrlimit" and _limiting):
            raise PermissionError(f"{event} is not allowed here")

    sys.addaudithook(refuse)


def set_limit(kind: int, soft: int, hard: int) -> None:
    """Call `resource.setrlimit`, also in a confined process."""
    global _limiting
    _limiting = True
    try:
        resource.setrlimit(kind, (soft, hard))
    finally:
        _limiting = False


def start_watchdog() -> None:
    """Ensure that children which this process starts later end with it, even after SIGKILL.

    This process becomes the leader of a process group, which the script ``watchdog.py`` ends. Call
    this function once, and not in a process that must receive Ctrl-C from a terminal."""
    if os.getpgrp() != os.getpid():  # a session leader leads its group and cannot call setpgid
        os.setpgid(0, 0)
    # The sink must stay open until this process ends; then the kernel closes it.
    source, sink = os.pipe()
    sinks = [sink]

    def close_sink() -> None:
        # Close it only once: in a grandchild, its number may belong to another file.
        while sinks:
            os.close(sinks.pop())

    os.register_at_fork(after_in_child=close_sink)  # a fork without exec would keep it open
    _watchdogs.append(
        subprocess.Popen(
            [sys.executable, "-I", "-S", _WATCHDOG],
            stdin=source,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
        )
    )
    os.close(source)
