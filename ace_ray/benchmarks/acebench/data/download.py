"""Fetch the official repository's archive and import it.

The commit is pinned, and so are the contents: what an import takes is hashed before it lands in
the cache. The archive file itself has no lasting hash, since the host packs it anew at will.

Unpacked are plain files inside the folder, bounded in size.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import logging
import tarfile
import tempfile
import time
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any

from ace_ray.benchmarks.acebench.data.importer import (
    OFFICIAL_COMMIT,
    OFFICIAL_CONTENT_SHA256,
    import_checkout,
)
from ace_ray.benchmarks.acebench.data.loader import BENCHMARK
from ace_ray.benchmarks.dataset import imports_folder
from ace_ray.errors import UserError

UNPACKED_LIMIT_BYTES = 256 << 20
MEMBER_LIMIT = 20_000
_COPIED_BYTES = 1 << 20

_BROKEN = (
    tarfile.TarError,
    zlib.error,
    EOFError,
    gzip.BadGzipFile,
    ValueError,  # a name with a zero byte
    FileExistsError,  # a file where another member needs a folder, or the other way round
    NotADirectoryError,
    IsADirectoryError,
)


class _TooLarge(Exception):
    pass


def unpack(
    archive: Path, into: Path, *, name: str = "", limit_bytes: int = UNPACKED_LIMIT_BYTES
) -> None:
    """Unpack the tar.gz ``archive`` into the folder ``into``. Raises `UserError`, calling it
    ``name``.

    Refused as a whole: names that lead outside, links, devices, too many files, too many bytes.
    What was unpacked before stays; the caller throws ``into`` away.
    """
    where = name or str(archive)
    try:
        # Decompressed by hand first: tarfile reads extended headers of any size into memory.
        with tempfile.TemporaryFile(dir=into) as plain:
            with gzip.open(archive) as source:
                _copy(source, plain, limit_bytes)
            plain.seek(0)
            with tarfile.open(fileobj=plain, mode="r:") as tar:
                _unpack_members(tar, into, where, limit_bytes)
    except _TooLarge:
        raise UserError(
            f"unpacks to more than {limit_bytes:,} bytes", where=where, fix="this is not ACEBench"
        ) from None
    except _BROKEN as error:
        raise UserError(
            f"is damaged or not a tar.gz ({error})", where=where, fix="download it again"
        ) from error


def _unpack_members(tar: tarfile.TarFile, into: Path, where: str, limit_bytes: int) -> None:
    left = limit_bytes  # a sparse member unpacks to more than the archive holds
    for count, info in enumerate(tar):
        if count >= MEMBER_LIMIT:
            raise UserError(f"holds more than {MEMBER_LIMIT:,} files", where=where)
        path = PurePosixPath(info.name)
        if path.is_absolute() or ".." in path.parts:
            raise UserError(f"holds a path that leads outside: {info.name!r}", where=where)
        if info.isdir():
            continue
        source = tar.extractfile(info) if info.isreg() else None
        if source is None:
            raise UserError(f"holds a link or device: {info.name!r}", where=where)
        target = into / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as sink:
            left -= _copy(source, sink, left)


def _copy(source: IO[bytes] | gzip.GzipFile, sink: IO[bytes], limit_bytes: int) -> int:
    copied = 0
    while chunk := source.read(_COPIED_BYTES):
        copied += len(chunk)
        if copied > limit_bytes:
            raise _TooLarge
        sink.write(chunk)
    return copied


OFFICIAL_OWNER, OFFICIAL_NAME = "chenchen0103", "ACEBench"
OFFICIAL_URL = (
    f"https://codeload.github.com/{OFFICIAL_OWNER}/{OFFICIAL_NAME}/tar.gz/{OFFICIAL_COMMIT}"
)
ARCHIVE_LIMIT_BYTES = 64 << 20
SILENCE_TIMEOUT_S = 30.0
TOTAL_TIMEOUT_S = 600.0
_CHUNK_BYTES = 1 << 18
_OFFLINE = "check network and proxy, or run `ace-ray data import acebench PATH` on a checkout"

_log = logging.getLogger(__name__)


def pull(
    *,
    url: str = OFFICIAL_URL,
    sha256: str | None = None,
    cache: Path | None = None,
    say: Callable[[str], object] = _log.info,
) -> Path:
    """Download, check and import; return the imported version's folder.

    ``sha256`` is the archive's hash and is checked when given. The contents must be those of the
    pinned commit, except from another ``url`` with a ``sha256`` that pins them as well. Proxies are
    taken from the environment. Raises `UserError`; whatever fails leaves nothing behind.
    """
    if not url.startswith(("https://", "http://")):
        raise UserError(
            f"{url!r} is not an http(s) address",
            where="--url",
            fix="unpack a local archive and run `ace-ray data import acebench PATH`",
        )
    pinned_otherwise = url != OFFICIAL_URL and sha256 is not None
    home = imports_folder(BENCHMARK, cache)
    try:
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".pull-", dir=home) as scratch:
            archive, tree = Path(scratch) / "archive", Path(scratch) / "tree"
            got = _download(url, archive)
            if sha256 is not None and got != sha256.lower():
                raise UserError(
                    f"the archive has sha256 {got}, not {sha256}",
                    where=url,
                    fix="check the address and --sha256",
                )
            tree.mkdir()
            unpack(archive, tree, name=url)
            return import_checkout(
                _top(tree),
                cache=cache,
                source={"url": url, "archive_sha256": got},
                expect_sha256=None if pinned_otherwise else OFFICIAL_CONTENT_SHA256,
                say=say,
            )
    except OSError as error:
        raise UserError(
            f"cannot be written ({error.strerror})",
            where=str(home),
            fix="set ACE_RAY_CACHE to a folder you can write to",
        ) from error


def _top(tree: Path) -> Path:
    """The checkout in an unpacked archive, which usually has one folder around it."""
    inside = list(tree.iterdir())
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else tree


def _download(url: str, target: Path) -> str:
    """Write the body to ``target`` and return its SHA-256 (hex)."""
    request = urllib.request.Request(url, headers={"User-Agent": "ace-ray"})
    with _network(url):
        response = urllib.request.urlopen(request, timeout=SILENCE_TIMEOUT_S)
    with response:
        return _save(response, url, target)


def _save(response: Any, url: str, target: Path) -> str:
    declared = response.headers.get("Content-Length", "")
    expected = int(declared) if declared.isdecimal() else 0
    deadline = time.monotonic() + TOTAL_TIMEOUT_S
    digest, got = hashlib.sha256(), 0
    with target.open("wb") as file:
        while True:
            if max(expected, got) > ARCHIVE_LIMIT_BYTES:
                raise UserError(
                    f"the archive is larger than {ARCHIVE_LIMIT_BYTES:,} bytes",
                    where=url,
                    fix="this is not ACEBench, check the address",
                )
            if time.monotonic() > deadline:
                raise UserError(
                    f"the download took over {TOTAL_TIMEOUT_S:.0f} s", where=url, fix=_OFFLINE
                )
            with _network(url):
                # read1: whatever has come, so that a slow drip meets the deadline too
                chunk: bytes = response.read1(_CHUNK_BYTES)
            if not chunk:
                break
            got += len(chunk)
            digest.update(chunk)
            file.write(chunk)
    # a read does not complain about a body that ends before its declared length
    if got < expected:
        raise UserError(
            f"the download broke off after {got:,} of {expected:,} bytes",
            where=url,
            fix="try again",
        )
    return digest.hexdigest()


@contextmanager
def _network(url: str) -> Iterator[None]:
    """Turn what a request can raise into one line; a full disk, outside it, stays an OSError."""
    try:
        yield
    except (http.client.HTTPException, OSError, ValueError) as error:
        what = f"the download failed ({type(error).__name__}: {error})"
        raise UserError(what, where=url, fix=_OFFLINE) from None
