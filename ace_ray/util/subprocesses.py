"""Child Python processes: their commands, confinement and end."""

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

# Audit events that are allowed in a confined process. No event that opens, connects, starts or
# imports something is among them. The hook and the kernel's limits are the only bound: untrusted
# code may reach any object of the process.
_EVENTS = frozenset(
    (
        *("builtins.id", "code.__new__", "compile", "exec", "marshal.loads"),
        *("object.__delattr__", "object.__getattr__", "object.__setattr__"),
        *("sys._getframe", "sys.excepthook", "sys.unraisablehook"),
    )
)

# A script that runs without site packages, so it is never imported.
_WATCHDOG = str(Path(__file__).with_name("watchdog.py"))
# The watchdog of this process. Nothing waits for it.
_watchdogs: list[subprocess.Popen[bytes]] = []

# True while `set_limit` runs, which alone may set limits in a confined process.
_limiting = False


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs ``module`` as a program, in `module_environment`.

    ``-m`` without ``-P`` imports from the current folder first, which may be a downloaded one.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def module_environment(base: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return ``base`` with a PYTHONPATH that holds this package in any working directory."""
    named = [os.path.abspath(one) for one in base.get("PYTHONPATH", "").split(os.pathsep) if one]
    root = str(Path(ace_ray.__file__).parents[1])
    # Site packages are on the path already, behind the standard library.
    if root not in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *named}:
        named.append(root)
    environment = {key: value for key, value in base.items() if key != "PYTHONPATH"}
    return {**environment, "PYTHONPATH": os.pathsep.join(named)} if named else environment


def confine() -> None:
    """Forbid this process to open files, sockets and processes and to dump core. Irrevocable.

    The kernel's limits enforce it. The audit hook raises a clearer error before them."""
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


def end_with_this_process() -> None:
    """Make all processes that this one starts from now on end with it, also after SIGKILL.

    This process becomes the leader of a process group, which a `watchdog` ends. Call it once, and
    not in a process that a terminal's Ctrl-C must reach.
    """
    if os.getpgrp() != os.getpid():  # a session leader leads its group, and may not call setpgid
        os.setpgid(0, 0)
    # Only the kernel may close the sink, when this process has ended.
    source, sink = os.pipe()
    held = [sink]

    def let_go() -> None:
        # Close it once: later its number may belong to another file in a grandchild.
        while held:
            os.close(held.pop())

    os.register_at_fork(after_in_child=let_go)  # a fork without exec would keep it open
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
