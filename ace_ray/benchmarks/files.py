"""Reading files that others wrote: bounded, regular, and JSON that means one thing only."""

from __future__ import annotations

import json
import math
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ace_ray.errors import UserError

DATA_LIMIT_BYTES = 64 << 20
SOURCE_LIMIT_BYTES = 2 << 20


def read_bounded(path: Path, limit_bytes: int = DATA_LIMIT_BYTES) -> bytes:
    """The file's bytes. Raises `UserError` when it is missing, not a plain file or too large."""
    try:
        info = path.stat()
        if not stat.S_ISREG(info.st_mode):
            raise UserError("is not a plain file", where=str(path))
        if info.st_size > limit_bytes:
            raise UserError(
                f"has {info.st_size:,} bytes, more than the {limit_bytes:,} that are read",
                where=str(path),
            )
        with path.open("rb") as file:
            raw = file.read(limit_bytes + 1)
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", where=str(path)) from error
    if len(raw) > limit_bytes:  # it grew since stat
        raise UserError(f"has more than {limit_bytes:,} bytes", where=str(path))
    return raw


def read_inside(root: Path, relative: str, limit_bytes: int = DATA_LIMIT_BYTES) -> bytes:
    """The bytes of ``root/relative``, where nothing below ``root`` may be a symbolic link.

    A checkout from elsewhere could otherwise pull any file of this machine into the cache.
    """
    path = root
    for part in relative.split("/"):
        path = path / part
        if path.is_symlink():
            raise UserError(
                "is a symbolic link", where=str(path), fix="import a folder with the files in it"
            )
    return read_bounded(path, limit_bytes)


def strict_json(text: str) -> Any:
    """Parse JSON; duplicate keys, NaN and infinities are a ValueError, as is nesting too deep."""
    try:
        return _decoder.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def json_lines(raw: bytes, path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number from 1, object) of each line. Blank lines are allowed at the end only."""
    # bytes are split at \n: str.splitlines would also cut at U+2028 inside a text
    for number, line in enumerate(raw.rstrip().split(b"\n"), start=1):
        where = f"{path}:{number}"
        try:
            row = strict_json(line.decode("utf-8"))
        except ValueError as error:
            what = "the line is blank" if not line.strip() else f"is not valid JSON: {error}"
            raise UserError(what, where=where, fix="write one JSON object per line") from error
        if not isinstance(row, dict):
            raise UserError(
                f"holds a {type(row).__name__}", where=where, fix="write one JSON object per line"
            )
        yield number, row


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} appears twice in one object")
    return found


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text} is too large")
    return value


_decoder = json.JSONDecoder(
    object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite
)
