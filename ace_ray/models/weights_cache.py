"""Cache models on a node: create each folder once, lock it while in use, remove it for space.

Checkpoints from S3 (``etags-*``) can be downloaded again. So they are removed, least recently used
first, if the next checkpoint would nearly fill the disk. A process locks the folders that it uses.
The lock files are next to the folders, and the locks end with the process."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from filelock import FileLock

from ace_ray.errors import UserError

# Share of the disk that stays free for other programs.
SPARE = 0.1

_FETCHED = "etags-*"
_GONE = ".gone"
_PART = ".part"
# Errors in a cache of another user or on a read-only mount.
_NOT_WRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS)

# Folder -> descriptor of its lock file.
_locks: dict[Path, int] = {}


class NoRoom(UserError):
    """The disk is full. The model itself is correct, and may fit later."""


def make_once(folder: Path, make: Callable[[], None], *, locked: bool = False) -> None:
    """Create the cached ``folder`` with ``make`` if it is missing, in only one process of the node.

    ``locked``: lock it for this process until `release`. Raises `UserError` if writing fails."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            try:
                stack.enter_context(FileLock(f"{folder}.lock"))
            except OSError as error:
                # Folders appear complete, so an existing one can be used without the lock.
                if error.errno not in _NOT_WRITABLE or not folder.is_dir():
                    raise
            if not folder.is_dir():
                make()
            if locked:
                _lock(folder)
    except OSError as error:
        kind = NoRoom if error.errno in (errno.ENOSPC, errno.EDQUOT) else UserError
        raise kind(
            f"the model cannot be cached: {error.strerror or error}",
            where=str(folder),
            fix="set ACE_RAY_CACHE to a writable folder with space",
        ) from error


@contextmanager
def scratch_of(folder: Path) -> Iterator[Path]:
    """Create a scratch folder that becomes ``folder`` at the end, or is removed after an error.

    The umask determines who may read its files."""
    scratch = folder.with_name(folder.name + _PART)
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    try:
        yield scratch
        mode = stat.S_IMODE(scratch.stat().st_mode)
        # Some libraries and `tempfile` create files that only their owner may read.
        for path in scratch.rglob("*"):
            if not path.is_symlink():
                path.chmod(mode if path.is_dir() else mode & 0o666)
        scratch.rename(folder)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def make_room(folder: Path, size: int) -> None:
    """Make ``size`` bytes of space for ``folder`` on its disk.

    Removes as many other fetched folders as needed, least recently used first, but none that is in
    use. Raises `NoRoom` if the bytes do not fit even then."""
    for cached_folder in _list_by_age(folder.parent):
        disk = shutil.disk_usage(folder.parent)
        if disk.free - size >= SPARE * disk.total:
            return
        if _folder_of(cached_folder) != folder:
            _remove(cached_folder)
    if (free := shutil.disk_usage(folder.parent).free) < size:
        raise NoRoom(
            f"{size / 2**30:.1f} GiB do not fit on this disk, which has "
            f"{free / 2**30:.1f} GiB free",
            where=str(folder.parent),
            fix="free some space, or set ACE_RAY_CACHE to a folder on a larger disk",
        )


def release(folder: Path) -> None:
    """Unlock ``folder`` for this process."""
    if (handle := _locks.pop(folder, None)) is not None:
        # Unlock explicitly: a forked child may have the same file open.
        fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)


def _lock(folder: Path) -> None:
    if folder in _locks:
        return
    try:
        handle = _use_file(folder)
    except OSError as error:
        # Folders of a read-only cache are not removed, so they need no lock.
        if error.errno in (*_NOT_WRITABLE, errno.ENOENT):
            return
        raise
    fcntl.flock(handle, fcntl.LOCK_SH)
    with suppress(OSError):
        os.utime(handle)
    _locks[folder] = handle


def _use_file(folder: Path) -> int:
    """Open the lock file of ``folder``; read-only if it is not writable."""
    name = f"{folder}.use"
    try:
        return os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno not in _NOT_WRITABLE:
            raise
        return os.open(name, os.O_RDONLY | os.O_CLOEXEC)


def _list_by_age(cache: Path) -> list[Path]:
    """Return the downloaded folders, complete or partial, least recently used first."""

    def used_at(path: Path) -> float:
        use = Path(f"{_folder_of(path)}.use")
        with suppress(FileNotFoundError):  # another process may just have removed it
            return (use if use.exists() else path).stat().st_mtime
        return 0.0

    # Folders that contain only a tokenizer are small, and are not locked.
    folders = [p for p in cache.glob(_FETCHED) if p.is_dir() and "-tokenizer" not in p.name]
    return sorted(folders, key=used_at)


def _folder_of(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(_PART).removesuffix(_GONE))


def _remove(path: Path) -> None:
    """Remove a downloaded folder, unless a process is creating or using it."""
    folder = _folder_of(path)
    try:
        with FileLock(f"{folder}.lock", timeout=0):
            handle = _use_file(folder)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Rename first: a half-removed folder must not look complete.
                gone = path if path != folder else path.rename(f"{folder}{_GONE}")
                shutil.rmtree(gone, ignore_errors=True)
            finally:
                os.close(handle)
    except OSError:  # the folder is in use, already removed, or belongs to another user
        return
