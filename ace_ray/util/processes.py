"""Which process holds a lease or a lock, and whether it still runs, by the process table."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def this_process() -> dict[str, Any]:
    """How a claim names the process that makes it."""
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "started": _started(os.getpid()),
        "machine": _machine(),
    }


def has_ended(claim: Mapping[str, Any]) -> bool:
    """Whether the process that a claim names ran on this machine and is no more.

    A number alone says nothing: another boot or container has it too, and it is given anew.
    """
    pid = claim.get("pid")
    if not isinstance(pid, int) or pid < 1 or claim.get("machine") != (_machine() or None):
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        pass
    # "" where another user's processes are hidden: one has that id.
    return _started(pid) not in ("", claim.get("started"))


def _started(pid: int) -> str:
    """When a process began, in the kernel's ticks; ``ended`` for one that has ended and that its
    parent has not waited for: it writes no more."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return ("ended" if stat[0] in "ZX" else stat[19]) if len(stat) > 19 else ""


def _machine() -> str:
    """Process ids mean something within one boot and one namespace of them; "" if not known."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""
