"""Check the paths of files that a user named, and the encoding of their text."""

from __future__ import annotations

import codecs
import os
import stat
from pathlib import Path

from ace_ray.errors import UserError


def path_of(text: str | Path, location: str) -> Path:
    """Return ``text`` as a path, with ``~`` expanded. The file or folder may be missing. Raises
    `UserError`, which names ``location``, if the path is invalid or its permissions forbid reading.
    """
    path = Path(text)
    try:
        path = path.expanduser()
        mode = os.stat(path).st_mode
        readable = os.access(path, os.R_OK | (os.X_OK if stat.S_ISDIR(mode) else 0))
    except (FileNotFoundError, NotADirectoryError):
        return path
    except PermissionError:
        readable = False
    # RuntimeError: unknown user. OSError: name too long, or loop of links. ValueError: NUL.
    except (RuntimeError, OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        problem = f"{str(text)[:200]!r} is not a valid path: {why}"
        raise UserError(problem, where=location, fix="correct the path") from error
    if not readable:
        problem = f"{str(path)[:200]!r} cannot be read"
        raise UserError(problem, where=location, fix="check its permissions")
    return path


def local_folder(text: str, location: str) -> Path:
    """Return a folder like `path_of`. Also raises `UserError` if ``text`` is a URI."""
    refuse_uri(text, location)
    return path_of(text, location)


def refuse_uri(text: str, location: str) -> None:
    """Raise `UserError` if ``text`` is a URI, such as ``s3://bucket``, and not a path."""
    scheme, separator, _ = text.partition("://")
    if separator:  # the rest is not shown: it may contain a password
        problem = f"{scheme[:20]}:// is not a local folder"
        raise UserError(problem, where=location, fix="name a folder of this machine")


def strip_bom(content: bytes, location: str | Path) -> bytes:
    """Return the UTF-8 text ``content`` without a byte order mark at its start.

    Windows editors write this mark, and Python reads it as a character. Raises `UserError`, which
    names ``location``, if the text has the mark of UTF-16."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        problem = "is UTF-16 text, according to its byte order mark"
        raise UserError(problem, where=str(location), fix="save it as UTF-8")
    return content.removeprefix(codecs.BOM_UTF8)
