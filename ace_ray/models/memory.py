"""The host memory that this process may take: of a container its limit, not the node's.

Linux counts by groups of processes (cgroups, version 2 or 1), each within those above it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")


def available_bytes(root: Path = ROOT, own: Path = OWN) -> int:
    """What can still be had."""
    free = [limit - used for limit, used in _limits(root, own)]
    return max(0, min([int(psutil.virtual_memory().available), *free]))


def total_bytes(root: Path = ROOT, own: Path = OWN) -> int:
    limits = [limit for limit, _ in _limits(root, own)]
    return min([int(psutil.virtual_memory().total), *limits])


def _limits(root: Path, own: Path) -> Iterator[tuple[int, int]]:
    """(limit, in use) of this process's group and of those above it that have a limit."""
    for folder, limit, used, unused in _groups(root, own):
        with suppress(OSError, ValueError, KeyError):  # "max", or not told
            most, now = int((folder / limit).read_text()), int((folder / used).read_text())
            stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            # Files that were read and may go: checkpoints that were examined are among them.
            yield most, now - int(stat[unused])


def _groups(root: Path, own: Path) -> Iterator[tuple[Path, str, str, str]]:
    """Folder, and in it the names of the limit, of what is in use, and of what may go."""
    with suppress(OSError):
        for line in own.read_text().splitlines():
            _, kinds, path = line.split(":", 2)
            if not kinds:
                top, names = root, ("memory.max", "memory.current", "inactive_file")
            elif "memory" in kinds.split(","):
                top = root / "memory"
                names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            else:
                continue
            place = top / path.lstrip("/")
            for folder in (place, *place.parents):
                if folder.is_relative_to(top):
                    yield (folder, *names)
