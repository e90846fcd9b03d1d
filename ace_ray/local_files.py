"""Files and folders of this machine: no link is followed unseen, no pipe is waited for."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ace_ray.errors import UserError


def path_of(text: str | Path, where: str) -> Path:
    """The path that ``text`` is, ``~`` written out. Raises `UserError` at ``where``: it can be
    none."""
    try:
        path = Path(text).expanduser()
        os.stat(path)
    # No such user; a name that is too long, a link to itself; a NUL.
    except (RuntimeError, OSError, ValueError) as error:
        passing = (errno.ENOENT, errno.ENOTDIR, errno.EACCES)
        if isinstance(error, OSError) and error.errno in passing:
            return path
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise UserError(
            f"{str(text)[:200]!r} is no path: {why}", where=where, fix="correct it"
        ) from error
    return path


def folder_of(text: str | Path, where: str) -> Path:
    """The file or folder that ``text`` names, which need not exist. Raises `UserError` at
    ``where``: it can be no path, or may not be read."""
    path = path_of(text, where)
    try:
        mode = os.stat(path).st_mode
        readable = os.access(path, os.R_OK | (os.X_OK if stat.S_ISDIR(mode) else 0))
    except PermissionError:
        readable = False
    except OSError:  # there is none
        readable = True
    if not readable:
        raise UserError(
            f"{str(path)[:200]!r} may not be read", where=where, fix="check its permissions"
        )
    return path


def opened(folder: int, name: str, *, make: bool) -> int:
    """The folder ``name`` in ``folder``; a link is refused. Raises `OSError`."""
    if make:
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=folder)
    try:
        return os.open(name, FOLDER | os.O_NOFOLLOW, dir_fd=folder)
    except OSError:
        if stat.S_ISLNK(os.lstat(name, dir_fd=folder).st_mode):
            raise OSError(
                errno.ELOOP, f"{name} is a symbolic link, and nothing is changed behind one"
            ) from None
        raise


def check_regular(handle: int) -> int:
    """The size of an open file. Raises `OSError`: it is no file, or too large to be held."""
    found = os.fstat(handle)
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "is no regular file")
    return found.st_size


def content(handle: int) -> bytes:
    with os.fdopen(handle, "rb") as file:
        if check_regular(handle) > MOST_BYTES:
            raise OSError(errno.EFBIG, LARGE)
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise OSError(errno.EFBIG, LARGE)
    return content


@contextmanager
def closing(handle: int) -> Iterator[int]:
    try:
        yield handle
    finally:
        os.close(handle)


@contextmanager
def locked(handle: int, folder: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold the lock of ``folder``, open as ``handle``; false when the folder was replaced while
    waiting for it.

    Raises `OSError`: somebody holds it, for `LOCK_S` if asked to wait."""
    until = time.monotonic() + (LOCK_S if wait else 0.0)
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError as error:
            if time.monotonic() > until:
                said = "another process holds the folder's lock"
                raise OSError(error.errno, said) from error
            time.sleep(0.01)
    try:
        try:
            same = os.path.samestat(os.fstat(handle), os.stat(folder))
        except FileNotFoundError:
            same = False
        yield same
    finally:
        fcntl.flock(handle, fcntl.LOCK_UN)


MOST_BYTES = 256 << 20
"""Of an object that is read whole."""
LARGE = f"is larger than {MOST_BYTES >> 20} MiB"
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
LOCK_S = 60.0
"""A lock is held for a few milliseconds, unless its holder is stopped."""
