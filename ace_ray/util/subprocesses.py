"""Child processes of this Python: what they import from, how one is confined, and how they end."""

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
from ace_ray.util import watchdog

_EVENTS = frozenset(
    (
        *("builtins.id", "code.__new__", "compile", "exec", "marshal.loads"),
        *("object.__delattr__", "object.__getattr__", "object.__setattr__"),
        *("sys._getframe", "sys.excepthook", "sys.unraisablehook"),
    )
)
"""What Python may do in a confined process, of what it tells audit hooks about. Whatever opens,
connects, starts, imports or reaches into the interpreter is not among it. The hook and the kernel's
limits are the bound: code that is not trusted may reach any object of the process."""

_watchdogs: list[subprocess.Popen[bytes]] = []
"""That of this process; it is waited for by nobody."""

_limiting = False
"""Whether `set_limit` is running; only it sets limits in a confined process."""


def module_command(module: str, *arguments: str) -> list[str]:
    """The command that runs ``module`` as a program, in `module_environment`.

    ``-m`` alone imports from the current folder first, which may be one that was downloaded.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def module_environment(base: Mapping[str, str] = os.environ) -> dict[str, str]:
    """``base``, with this package to be found wherever the child runs."""
    named = [os.path.abspath(one) for one in base.get("PYTHONPATH", "").split(os.pathsep) if one]
    root = str(Path(ace_ray.__file__).parents[1])
    # Site packages are found anyway, and belong behind the standard library.
    if root not in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *named}:
        named.append(root)
    environment = {key: value for key, value in base.items() if key != "PYTHONPATH"}
    return {**environment, "PYTHONPATH": os.pathsep.join(named)} if named else environment


def confine() -> None:
    """From here on no file, socket or process is opened, and no core is dumped. For good.

    The kernel holds that; the audit hook, which cannot be taken back either, says it first."""
    for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC):
        resource.setrlimit(kind, (0, 0))

    def refuse(event: str, _: Any) -> None:
        if event not in _EVENTS and not (event == "resource.setrlimit" and _limiting):
            raise PermissionError(f"{event} is not allowed here")

    sys.addaudithook(refuse)


def set_limit(kind: int, soft: int, hard: int) -> None:
    """`resource.setrlimit`, also in a confined process."""
    global _limiting
    _limiting = True
    try:
        resource.setrlimit(kind, (soft, hard))
    finally:
        _limiting = False


def end_with_this_process() -> None:
    """What this process starts from here on ends when it does, by SIGKILL too, and theirs with it.

    It leads a process group from here on, which a `watchdog` ends. Once in a process, and not where
    a terminal's Ctrl-C is to reach it.
    """
    if os.getpgrp() != os.getpid():  # a leader of a session may not ask, and need not
        os.setpgid(0, 0)
    # The kernel closes it, as the last of this process: nothing here may do so before.
    source, sink = os.pipe()
    held = [sink]

    def let_go() -> None:
        # Once only: later the number may be another file's, in children of the child.
        while held:
            os.close(held.pop())

    os.register_at_fork(after_in_child=let_go)  # one that starts no other program would hold it
    _watchdogs.append(
        subprocess.Popen(
            [sys.executable, "-I", "-S", watchdog.__file__],
            stdin=source,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
        )
    )
    os.close(source)
