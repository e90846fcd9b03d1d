"""Unpack a tar.gz or zip from the network: plain files inside the folder, bounded in size."""

from __future__ import annotations

import gzip
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO

from ace_ray.errors import UserError

UNPACKED_LIMIT_BYTES = 256 << 20
MEMBER_LIMIT = 20_000
_CHUNK_BYTES = 1 << 20

_BROKEN = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,  # zip compression unknown here
    RuntimeError,  # zip with a password
    ValueError,  # a name with a zero byte
    gzip.BadGzipFile,
    FileExistsError,  # a file where another member needs a folder, or the other way round
    NotADirectoryError,
    IsADirectoryError,
)

Member = tuple[str, Callable[[], IO[bytes]]]
"""Name and how to open it, of a plain file."""


class _TooLarge(Exception):
    pass


def unpack(
    archive: Path, into: Path, *, name: str = "", limit_bytes: int = UNPACKED_LIMIT_BYTES
) -> None:
    """Unpack ``archive`` into the folder ``into``. Raises `UserError`, calling it ``name``.

    Refused as a whole: names that lead outside, links, devices, too many files, too many bytes.
    What was unpacked before stays; the caller throws ``into`` away.
    """
    where = name or str(archive)
    left = limit_bytes
    try:
        for count, (member, open_member) in enumerate(_members(archive, into, where, left)):
            if count >= MEMBER_LIMIT:
                raise UserError(f"holds more than {MEMBER_LIMIT:,} files", where=where)
            target = into / _inside(member, where)
            target.parent.mkdir(parents=True, exist_ok=True)
            with open_member() as source, target.open("wb") as sink:
                left -= _copy(source, sink, left)
    except _TooLarge:
        raise UserError(
            f"unpacks to more than {limit_bytes:,} bytes", where=where, fix="this is not ACEBench"
        ) from None
    except _BROKEN as error:
        raise UserError(
            f"is damaged or not a tar.gz or zip ({error})", where=where, fix="download it again"
        ) from error


def _members(archive: Path, into: Path, where: str, limit_bytes: int) -> Iterator[Member]:
    if zipfile.is_zipfile(archive):
        yield from _zip_members(archive, where)
        return
    # decompressed by hand first: tarfile reads extended headers of any size into memory
    with tempfile.TemporaryFile(dir=into) as plain:
        with gzip.open(archive) as source:
            _copy(source, plain, limit_bytes)
        plain.seek(0)
        yield from _tar_members(plain, where)


def _tar_members(plain: IO[bytes], where: str) -> Iterator[Member]:
    with tarfile.open(fileobj=plain, mode="r:") as tar:
        for info in tar:
            if info.isdir():
                _inside(info.name, where)
            elif info.isreg():
                yield info.name, partial(_opened, tar, info)
            else:
                raise UserError(f"holds a link or device: {info.name!r}", where=where)


def _opened(tar: tarfile.TarFile, info: tarfile.TarInfo) -> IO[bytes]:
    source = tar.extractfile(info)
    if source is None:
        raise tarfile.ReadError(f"no contents for {info.name!r}")
    return source


def _zip_members(archive: Path, where: str) -> Iterator[Member]:
    with zipfile.ZipFile(archive) as bundle:
        for info in bundle.infolist():
            kind = stat.S_IFMT(info.external_attr >> 16)
            if info.is_dir():
                _inside(info.filename, where)
            elif kind in (0, stat.S_IFREG):
                yield info.filename, partial(bundle.open, info)
            else:
                raise UserError(f"holds a link or device: {info.filename!r}", where=where)


def _inside(member: str, where: str) -> PurePosixPath:
    """The member's path, refused unless it stays below the folder it is unpacked into."""
    path = PurePosixPath(member)
    if path.is_absolute() or ".." in path.parts or "\\" in member:
        raise UserError(f"holds a path that leads outside: {member!r}", where=where)
    return path


def _copy(source: IO[bytes] | gzip.GzipFile, sink: IO[bytes], limit_bytes: int) -> int:
    copied = 0
    while chunk := source.read(_CHUNK_BYTES):
        copied += len(chunk)
        if copied > limit_bytes:
            raise _TooLarge
        sink.write(chunk)
    return copied
