"""End a process group when its leader has ended for any reason.

    leader of the process group -> watchdog -> watchdog
                                -> other children and their descendants

A watchdog's stdin is a pipe whose other end is open only in the leader. There are two watchdogs,
because Ray kills the children of a worker that exits, but not its grandchildren. If Ray kills
grandchildren, too, it kills the whole group.

A watchdog is a member of the group that it ends, so the group's number is not reused while the
watchdog runs. A group also includes processes that were forked a moment ago. Processes cannot be
found by an environment variable instead: vLLM's processes set their titles, which overwrites the
environment that `/proc` shows.

The watchdog runs without site packages and imports little, to save memory."""

from __future__ import annotations

import os
import signal
import time

# Time for multiprocessing's resource trackers to remove the shared memory of ended processes.
TRACKERS_S = 10.0
_TRACKER = b"multiprocessing.resource_tracker"
_POLL_S = 0.02


def wait_for_close() -> None:
    """Wait until stdin is closed. Ignore SIGHUP, SIGINT and SIGTERM."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    while os.read(0, 1):
        pass


def end_group() -> None:
    """Kill this process's group, and then this process. Resource trackers are killed last: they
    usually exit when the processes that use them have ended."""
    try:
        until = time.monotonic() + TRACKERS_S
        while _kill_others() and time.monotonic() < until:
            time.sleep(_POLL_S)
    finally:
        os.killpg(0, signal.SIGKILL)


def _kill_others() -> bool:
    """Kill the other processes of the group except resource trackers. Return whether any other
    process, including trackers, was running."""
    mine, has_others = _command("self"), False
    for name in os.listdir("/proc"):
        # A zombie has an empty command. The other watchdog has the same command as this process.
        if not name.isdigit() or (command := _command(name)) in (b"", mine):
            continue
        try:
            if os.getpgid(int(name)) == os.getpgrp():
                has_others = True
                if _TRACKER not in command:
                    os.kill(int(name), signal.SIGKILL)
        except ProcessLookupError:
            continue  # it has just ended
    return has_others


def _command(process: str) -> bytes:
    try:
        with open(f"/proc/{process}/cmdline", "rb") as file:
            return file.read()
    except OSError:
        return b""


if __name__ == "__main__":
    os.fork()
    wait_for_close()
    end_group()
