"""Where a run's `CacheFolder` lives: behind `call`, in one process for all episodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ace_ray.benchmarks.stabletoolbench.apis.cache import CacheFolder, Mode, Service
from ace_ray.errors import RowError, UserError


class CacheService:
    """A benchmark's `Service`. Cheap to make: `open` opens and locks the folder, or the first call
    to a restarted owner.

    Arguments as of `CacheFolder`.
    """

    def __init__(self, folder: str, mode: Mode, *, recorded: str = "", holder: str = "") -> None:
        self._make = partial(CacheFolder, folder, mode, recorded=recorded, holder=holder)
        self._folder: CacheFolder | None = None

    def open(self) -> None:
        """Open the folder, if it is not. Raises `UserError`."""
        if self._folder is None:
            self._folder = self._make()

    def call(self, method: str, *values: Any) -> Any:
        """A method of the folder: get, put, examples, check or stats.

        Raises `RowError` when the folder cannot be opened: `check_folder` said nothing of it when
        the run began, so rows wait for it to be there again.
        """
        try:
            self.open()
        except UserError as error:
            raise RowError(str(error)) from error
        assert self._folder is not None  # it is open
        return _methods(self._folder)[method](*values)

    def close(self) -> None:
        """Give the folder's lock back."""
        if self._folder is not None:
            self._folder.close()
            self._folder = None


def local(folder: CacheFolder) -> Service:
    """A `Service` for `CacheClient` whose owner lives in this process."""
    methods = _methods(folder)

    async def call(method: str, *values: Any) -> Any:
        return methods[method](*values)

    return call


def check_folder(
    folder: str, mode: Mode, names: Sequence[Sequence[str]], *, recorded: str = "", where: str
) -> None:
    """What can be known of a cache before a run; ``names`` are its APIs, [category, tool, api]
    each as normalised. Leaves an empty folder of our own behind in ``readwrite``.

    Raises:
        UserError: the folder is missing, cannot be written, has another writer, or holds a file of
            these APIs that cannot be read.
    """
    opened = CacheFolder(folder, mode, recorded=recorded)
    try:
        problems = opened.check(names)
    finally:
        opened.close()
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise UserError(
            f"{problems[0]}{more}",
            where=f"{where} {recorded or folder}",
            fix="restore the file, or move it away: its answers are then made again",
        )


def _methods(folder: CacheFolder) -> dict[str, Callable[..., Any]]:
    return {
        "get": folder.get,
        "put": folder.put,
        "examples": folder.examples,
        "check": folder.check,
        "stats": folder.stats,
    }
