"""Child processes of this Python: what they import from, and how one is confined."""

from __future__ import annotations

import os
import resource
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ace_ray

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
