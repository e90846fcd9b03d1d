"""Import the official repository into the cache, from a checkout or from a downloaded archive.

An import is written to a temporary folder and then renamed, so that it is never incomplete. The
archive's commit and the hash of its contents are pinned. The hash of the archive file is not,
because the host may compress the same contents differently.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import io
import json
import logging
import tarfile
import tempfile
import time
import urllib.request
import zlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from ace_ray.benchmarks.acebench.data.loader import BENCHMARK, files_of, load
from ace_ray.benchmarks.acebench.data.upstream import read_app_specs, read_prompts
from ace_ray.benchmarks.acebench.options import CATEGORIES, LANGUAGES
from ace_ray.benchmarks.dataset import (
    files_hash,
    imports_folder,
    json_value,
    not_writable,
    read_inside,
    store_version,
)
from ace_ray.errors import UserError
from ace_ray.util import log
from ace_ray.util.local_files import path_of

OFFICIAL_COMMIT = "56dd66cf6439b0d9655ee1b353e4cd745c6f664e"
# `files_hash` of an import of that commit.
OFFICIAL_CONTENT_SHA256 = "6b5e4c952a90436d7916dd53e7ca0cf9c1922add0302bcbdadb03a7d529c3eb8"

PROMPTS, APP_SPECS, LICENSE = "upstream/prompts.json", "upstream/worlds.json", "LICENSE.md"

OFFICIAL_URL = f"https://codeload.github.com/chenchen0103/ACEBench/tar.gz/{OFFICIAL_COMMIT}"
ARCHIVE_LIMIT_BYTES = 64 << 20
UNPACKED_LIMIT_BYTES = 256 << 20
SILENCE_TIMEOUT_S = 30.0
TOTAL_TIMEOUT_S = 600.0
_CHUNK_BYTES = 1 << 18
_OFFLINE = "check network and proxy, or run `ace-ray data import acebench PATH` on a checkout"
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

# Contents of files by path relative to the version's folder.
Files = dict[str, bytes]

_log = logging.getLogger(__name__)


def import_checkout(
    path: Path, *, source: Mapping[str, Any] | None = None, expect_sha256: str | None = None
) -> Path:
    """Import all rows, the prompts and the app specifications; return the version's folder.

    ``path`` is a checkout, or a folder with ``data_en`` and ``data_zh`` in it (and
    ``upstream/*.json`` if it has official prompts). Importing the same content again changes
    nothing. ``source`` replaces the path in the manifest. Raises `UserError` if a file is missing
    or invalid, or if the contents have another `files_hash` than ``expect_sha256``."""
    path = path_of(path, "data").resolve()
    files = _collect(path)
    content = files_hash(files)
    if expect_sha256 is not None and content != expect_sha256:
        problem = f"the contents have the hash {content}, not the expected {expect_sha256}"
        fix = "import a checkout of your own to use other contents"
        raise UserError(problem, where=str((source or {}).get("url", path)), fix=fix)
    rows = Counter((e.language, e.category) for e in load(_rows_folder(path)))
    target = store_version(
        files,
        BENCHMARK,
        counted=f"{rows.total():,} rows",
        commit=OFFICIAL_COMMIT if content == OFFICIAL_CONTENT_SHA256 else None,
        source=dict(source or {"path": str(path)}),
        rows={lang: {c: rows[lang, c] for c in CATEGORIES} for lang in LANGUAGES},
    )
    if PROMPTS not in files:
        log.info(f"{path} has no {PROMPTS}: official prompts and apps are not available from it")
    return target


def _collect(path: Path) -> Files:
    rows_folder = _rows_folder(path)
    prefix = "data_all/" if rows_folder != path else ""
    files = {
        name: read_inside(path, prefix + name)
        for language in LANGUAGES
        for category in CATEGORIES
        for name in files_of(language, category)
    }
    if prefix:
        files[PROMPTS] = _json_bytes(read_prompts(path), path)
        files[APP_SPECS] = _json_bytes(read_app_specs(path), path)
    elif (path / PROMPTS).exists() or (path / APP_SPECS).exists():
        files[PROMPTS] = _normalize_json(path, PROMPTS)
        files[APP_SPECS] = _normalize_json(path, APP_SPECS)
    if (path / LICENSE).exists():
        files[LICENSE] = read_inside(path, LICENSE)
    return files


def _rows_folder(path: Path) -> Path:
    if (path / "data_all").is_dir():
        return path / "data_all"
    if (path / "data_en").is_dir():
        return path
    if path.is_file():
        raise UserError("is a file", where=str(path), fix="unpack it and import the folder")
    problem = "has neither data_all nor data_en in it" if path.is_dir() else "no such folder"
    fix = "give the top folder of a checkout of the official repository"
    raise UserError(problem, where=str(path), fix=fix)


def _normalize_json(path: Path, name: str) -> bytes:
    value = json_value(read_inside(path, name), path / name)
    if not isinstance(value, dict) or not value:
        raise UserError("is not a JSON object, or is empty", where=str(path / name))
    return _json_bytes(value, path / name)


def _json_bytes(value: Any, location: Path) -> bytes:
    """Return ``value`` as JSON. Equal values give equal bytes, so that the version of
    imported data does not depend on the formatting of its files."""
    try:
        text = json.dumps(value, ensure_ascii=False, indent=1, allow_nan=False)
        json_value(text.encode(), location)  # keys 1 and "1" are the same in JSON
        return text.encode("utf-8")
    except (TypeError, ValueError, RecursionError) as error:
        problem = f"contains literals that JSON cannot represent: {error}"
        raise UserError(problem, where=str(location)) from error


def pull(*, url: str = OFFICIAL_URL, sha256: str | None = None) -> Path:
    """Download an archive, check and import it; return the version's folder.

    ``sha256`` is the expected hash of the archive, if known. The contents must equal the pinned
    commit, unless both another ``url`` and ``sha256`` are given. Proxies are taken from the
    environment. Raises `UserError` if the download fails or has another hash."""
    if not url.startswith(("https://", "http://")):
        fix = "unpack a local archive and run `ace-ray data import acebench PATH`"
        raise UserError(f"{url!r} is not an http(s) address", where="--url", fix=fix)
    pinned_otherwise = url != OFFICIAL_URL and sha256 is not None
    home = imports_folder(BENCHMARK)
    try:
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".pull-", dir=home) as scratch:
            archive = _download(url)
            archive_sha256 = hashlib.sha256(archive).hexdigest()
            if sha256 is not None and archive_sha256 != sha256.lower():
                problem = f"the archive has sha256 {archive_sha256}, not {sha256}"
                raise UserError(problem, where=url, fix="check the address and --sha256")
            _unpack(archive, Path(scratch), url)
            # An archive usually has one folder around the checkout.
            inside = list(Path(scratch).iterdir())
            return import_checkout(
                inside[0] if len(inside) == 1 and inside[0].is_dir() else Path(scratch),
                source={"url": url, "archive_sha256": archive_sha256},
                expect_sha256=None if pinned_otherwise else OFFICIAL_CONTENT_SHA256,
            )
    except OSError as error:
        raise not_writable(home, error) from error


def _download(url: str) -> bytes:
    """Return the content of ``url``. Raises `UserError` if the download fails or is too large."""
    request = urllib.request.Request(url, headers={"User-Agent": "ace-ray"})
    deadline = time.monotonic() + TOTAL_TIMEOUT_S
    body = bytearray()
    try:
        with urllib.request.urlopen(request, timeout=SILENCE_TIMEOUT_S) as response:
            declared = response.headers.get("Content-Length", "")
            expected = int(declared) if declared.isdecimal() else 0
            while max(expected, len(body)) <= ARCHIVE_LIMIT_BYTES:
                if time.monotonic() > deadline:
                    problem = f"the download took over {TOTAL_TIMEOUT_S:.0f} s"
                    raise UserError(problem, where=url, fix=_OFFLINE)
                # read1 does not wait for more bytes, so the deadline also ends a slow download.
                chunk = response.read1(_CHUNK_BYTES)
                if not chunk:
                    break
                body += chunk
    except (http.client.HTTPException, OSError, ValueError) as error:
        problem = f"the download failed ({type(error).__name__}: {error})"
        raise UserError(problem, where=url, fix=_OFFLINE) from None
    if max(expected, len(body)) > ARCHIVE_LIMIT_BYTES:
        problem = f"the archive is larger than {ARCHIVE_LIMIT_BYTES:,} bytes"
        raise UserError(problem, where=url, fix="this is not ACEBench, check the address")
    if len(body) < expected:  # read1 does not raise if bytes are missing
        problem = f"the download broke off after {len(body):,} of {expected:,} bytes"
        raise UserError(problem, where=url, fix="try again")
    return bytes(body)


def _unpack(archive: bytes, into: Path, location: str) -> None:
    """Unpack the plain files of a tar.gz into the folder ``into``, which the caller deletes.

    Raises `UserError` for links, devices, paths outside the folder and too many bytes."""
    problem = f"unpacks to more than {UNPACKED_LIMIT_BYTES:,} bytes"
    too_large = UserError(problem, where=location, fix="this is not ACEBench")
    try:
        # tarfile reads extended headers of any size into memory, so limit the unpacked size first.
        with gzip.GzipFile(fileobj=io.BytesIO(archive)) as source:
            content = source.read(UNPACKED_LIMIT_BYTES + 1)
        budget_bytes = UNPACKED_LIMIT_BYTES - len(content)
        if budget_bytes < 0:
            raise too_large
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as tar:
            for info in tar:
                path = PurePosixPath(info.name)
                if path.is_absolute() or ".." in path.parts:
                    problem = f"contains a path outside the folder: {info.name!r}"
                    raise UserError(problem, where=location)
                if info.isdir():
                    continue
                file = tar.extractfile(info) if info.isreg() else None
                if file is None:
                    raise UserError(f"contains a link or device: {info.name!r}", where=location)
                # A sparse member can unpack to more bytes than the archive contains.
                budget_bytes -= info.size if info.issparse() else 0
                if budget_bytes < 0:
                    raise too_large
                (into / path).parent.mkdir(parents=True, exist_ok=True)
                (into / path).write_bytes(file.read())
    except _BROKEN as error:
        problem = f"is damaged or not a tar.gz ({error})"
        raise UserError(problem, where=location, fix="download it again") from error
