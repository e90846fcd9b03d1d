"""One writer per cache folder: a lock file that its owner renews.

The file names its owner: host, process, the process's start, and a token. Another owner takes it
over when

- it was left by this holder (``holder``, a run's id: an owner that was started again), or
- its process ran on this machine and is no more, or
- it has not been renewed for `TTL_S` by the file system's own clock.

Every write asks first whether the lock is still ours, so that an owner that was cut off and
replaced does not write any more.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ace_ray.errors import UserError
from ace_ray.processes import has_ended, this_process

BEAT_S = 15.0
TTL_S = 120.0
_MAX_BYTES = 4096


class FolderLock:
    """The right to write a cache folder; a thread renews it until `release`.

    Raises `UserError`, one line: another process holds it, or the folder cannot be written.
    """

    def __init__(self, folder: Path, holder: str = "") -> None:
        self._path = folder / "lock.json"
        self._token = secrets.token_hex(8)
        try:
            with _guarded(folder / "lock.guard"):
                self._acquire(folder, holder)
        except OSError as error:
            raise UserError(
                f"cannot be written ({error.strerror})",
                where=str(folder.parent),
                fix="choose a folder that can, or cache: read",
            ) from error
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="cache lock", daemon=True)
        self._thread.start()

    def held(self) -> bool:
        """Whether it is still ours."""
        return _read(self._path).get("token") == self._token

    def release(self) -> None:
        """Give it back. Never raises: left behind, it is taken over."""
        self._stop.set()
        self._thread.join(timeout=5)
        with contextlib.suppress(OSError):
            if self.held():
                self._path.unlink()

    def _acquire(self, folder: Path, holder: str) -> None:
        since = datetime.now(UTC).isoformat(timespec="seconds")
        claim = {**this_process(), "since": since, "holder": holder, "token": self._token}
        raw = json.dumps(claim, indent=1).encode()
        for _ in range(3):
            try:
                file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
            except FileExistsError:
                present = _read(self._path)
                ours = bool(holder) and present.get("holder") == holder
                if not (ours or has_ended(present) or _age_s(self._path, folder) > TTL_S):
                    raise _locked_by(present, folder) from None
                self._path.unlink(missing_ok=True)
                continue
            with open(file, "wb") as out:
                out.write(raw)
                out.flush()
                os.fsync(out.fileno())
            return
        raise _locked_by(_read(self._path), folder)

    def _renew(self) -> None:
        while not self._stop.wait(BEAT_S):
            with contextlib.suppress(OSError):
                if not self.held():
                    return
                os.utime(self._path)


@contextlib.contextmanager
def _guarded(path: Path) -> Iterator[None]:
    """Two that find the same dead lock take it over one after the other.

    Where the file system knows no such locks, that instant stays unguarded.
    """
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o666), "wb") as file:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _locked_by(claim: dict[str, Any], folder: Path) -> UserError:
    fields = (str(claim.get(key, "?"))[:80] for key in ("pid", "host", "since"))
    return UserError(
        "the cache is being written by process {} on {} since {}".format(*fields),
        where=str(folder.parent),
        fix=f"wait for it to end (a dead one's lock expires after {TTL_S:g} s), choose another "
        "folder, or cache: read",
    )


def _age_s(path: Path, folder: Path) -> float:
    """How long ago the lock was renewed, by the clock of the file system that holds it."""
    probe = folder / f"clock.{secrets.token_hex(4)}"
    try:
        probe.touch(exist_ok=False)
        return probe.stat().st_mtime - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
    finally:
        probe.unlink(missing_ok=True)


def _read(path: Path) -> dict[str, Any]:
    """The claim in a lock file; empty for garbage and where there is none."""
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        with open(os.open(path, flags), "rb") as file:
            claim = json.loads(file.read(_MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return claim if isinstance(claim, dict) else {}
