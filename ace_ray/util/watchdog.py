"""Ends a process group once the process that it was started for has ended, however that was.

    the process, leader of a group -> watchdog -> watchdog
                                   -> its children, and theirs

Stdin is a pipe whose other end only that process holds. There are two, since Ray kills the children
of a worker that exits, though not theirs; where it ends those too, it ends the whole group.

A watchdog belongs to the group that it ends: no other group can get the number while it lives, so
it kills nothing else, and who kills it with its group has done its work. The group holds what has
been forked a moment ago, too. What sets itself a title, as vLLM's processes do, writes over the
environment that `/proc` shows of it; it could not be found by a mark there.

It runs without site packages, and imports next to nothing: it stays as long as an engine.
"""

from __future__ import annotations

import os
import signal
import time

TRACKERS_S = 10.0
"""For multiprocessing's resource trackers to remove the memory that ended processes shared."""
_TRACKER = b"multiprocessing.resource_tracker"
_POLL_S = 0.02


def wait() -> None:
    """Return when stdin has ended. Only SIGKILL ends this process before."""
    for asked in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(asked, signal.SIG_IGN)
    while os.read(0, 1):
        pass


def end_group() -> None:
    """Kill all of this process's group, itself too; resource trackers last, for they end by
    themselves when those are gone that they work for."""
    try:
        until = time.monotonic() + TRACKERS_S
        while _end_others() and time.monotonic() < until:
            time.sleep(_POLL_S)
    finally:
        os.killpg(0, signal.SIGKILL)


def _end_others() -> bool:
    """Kill the others of the group, but trackers; whether there were any, or there are trackers."""
    mine, found = _command("self"), False
    for name in os.listdir("/proc"):
        # That of one that has ended is empty. Its like is the other watchdog: it does the same.
        if not name.isdigit() or (command := _command(name)) in (b"", mine):
            continue
        try:
            handle = os.pidfd_open(int(name))
        except ProcessLookupError:
            continue
        try:
            # Asked of the process that is held, or of one that has its number since: then nothing
            # is killed.
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
