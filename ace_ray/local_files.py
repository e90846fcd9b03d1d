"""Paths that a user named."""

from __future__ import annotations

import errno
import os
import stat
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
