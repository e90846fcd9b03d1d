"""End a process group when its leader has ended, for whatever reason.

    the process, leader of a group -> watchdog -> watchdog
                                   -> its children, and theirs

Stdin is a pipe. Only the leader holds its other end. There are two watchdogs, since Ray kills the
children of a worker that exits, and not the grandchildren. Where Ray kills grandchildren too, it
kills the whole group.

A watchdog is a member of the group that it ends. So no other group can get the group's number while
the watchdog runs. The group also holds processes that were forked a moment ago. A mark in the
environment would not find all of them: vLLM's processes set their titles, which overwrites the
environment that `/proc` shows.

The watchdog runs without site packages and imports little, since it lives as long as an engine.
"""

from __future__ import annotations

import os
import signal
import time

# Time for multiprocessing's resource trackers to remove shared memory of ended processes.
TRACKERS_S = 10.0
_TRACKER = b"multiprocessing.resource_tracker"
_POLL_S = 0.02


def wait() -> None:
    """Return at the end of stdin. Only SIGKILL ends this process earlier."""
    for asked in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(asked, signal.SIG_IGN)
    while os.read(0, 1):
        pass


def end_group() -> None:
    """Kill this process's group and itself. Resource trackers come last: they end by themselves
    when the processes that use them have ended."""
    try:
        until = time.monotonic() + TRACKERS_S
        while _end_others() and time.monotonic() < until:
            time.sleep(_POLL_S)
    finally:
        os.killpg(0, signal.SIGKILL)


def _end_others() -> bool:
    """Kill the others of the group except trackers. Return whether others or trackers ran."""
    mine, found = _command("self"), False
    for name in os.listdir("/proc"):
        # A zombie has an empty command. The other watchdog has the same one as this.
        if not name.isdigit() or (command := _command(name)) in (b"", mine):
            continue
        try:
            handle = os.pidfd_open(int(name))
        except ProcessLookupError:
            continue
        try:
            # The number may belong to a new process by now. The pidfd still means the old one, so
            # nothing else is killed.
            if os.getpgid(int(name)) == os.getpgrp():
                found = True
                if _TRACKER not in command:
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
        except ProcessLookupError:
            pass
        finally:
            os.close(handle)
    return found


def _command(process: str) -> bytes:
    try:
        with open(f"/proc/{process}/cmdline", "rb") as file:
            return file.read()
    except OSError:
        return b""


if __name__ == "__main__":
    os.fork()
    wait()
    end_group()
