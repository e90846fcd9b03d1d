"""Object store in a local folder. It never writes behind symbolic links and never reads pipes."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, BinaryIO

from ace_ray.errors import UserError
from ace_ray.storage.object_store.interface import LARGE, MOST_BYTES, Object, Store

# Timeout for acquiring a lock. A process keeps it for a few milliseconds unless it is suspended.
LOCK_S = 60.0


@dataclass(frozen=True)
class LocalStore(Store):
    root: str
    user_folder: str = ""
    """The folder that the user named, if ``root`` is a subfolder of it; else ""."""

    def put(self, path: str, data: bytes) -> None:
        with self._failures(path):
            _write(self._create_parent(path), data)

    def get(self, path: str) -> bytes | None:
        with self._failures(path, "read"):
            try:
                file = open_regular_file(Path(self.root, path))
            except (FileNotFoundError, NotADirectoryError):
                return None
            with file:
                data = file.read(MOST_BYTES + 1)
            if len(data) > MOST_BYTES:
                raise OSError(errno.EFBIG, LARGE)
            return data

    def get_tagged(self, path: str) -> tuple[bytes, str] | None:
        data = self.get(path)
        return None if data is None else (data, hashlib.sha256(data).hexdigest())

    def put_if(self, path: str, data: bytes, tag: str | None) -> str | None:
        with self._failures(path):
            file = self._create_parent(path) if tag is None else self._safe_path(path)
            # If the folder is deleted meanwhile, the call below tries again and creates it.
            with (
                suppress(FileNotFoundError, NotADirectoryError),
                lock_folder(file.parent) as is_current,
            ):
                if is_current:
                    stored = self.get_tagged(path)
                    if (stored and stored[1]) != tag:
                        return None
                    _write(file, data)
                    return hashlib.sha256(data).hexdigest()
        if tag is not None and not file.parent.is_dir():
            return None
        return self.put_if(path, data, tag)

    def list(self, prefix: str = "", *, links: int = 0) -> list[Object]:
        """List files as `Store.list`. ``links``: number of folder levels in which links to folders
        are followed."""
        objects = []
        # The prefix is a folder, a slash, and the beginning of names in this folder.
        top = Path(self.root, prefix.rpartition("/")[0])
        walk = os.walk(top, onerror=self._raise_unless_deleted, followlinks=links > 0)
        for base, folders, names in walk:
            if links and len(Path(base).relative_to(top).parts) >= links:
                folders[:] = [name for name in folders if not Path(base, name).is_symlink()]
            for name in names:
                file = Path(base, name)
                relative = file.relative_to(self.root).as_posix()
                if not relative.startswith(prefix) or name.startswith(".tmp-"):
                    continue
                with self._failures(relative, "read"), suppress(FileNotFoundError):
                    fault = ""
                    try:
                        about = file.stat()
                        if not stat.S_ISREG(about.st_mode):
                            fault = "is a pipe, a socket or a device, not a file"
                    except OSError as error:
                        if error.errno not in (errno.ENOENT, errno.ELOOP):
                            raise
                        # Report a broken link without an error, so that the other files are
                        # still listed. Omit a file that was deleted during the walk.
                        about = file.lstat()
                        fault = f"is a link to {os.readlink(file)}, which does not exist"
                        if error.errno == errno.ELOOP:
                            fault = "is a symbolic link to itself"
                    size, changed = about.st_size, f"{about.st_mtime_ns}"
                    objects.append(Object(relative, size, changed, fault))
        return sorted(objects, key=lambda item: item.path)

    def delete(self, path: str) -> None:
        with self._failures(path):
            file = self._safe_path(path)
            with suppress(FileNotFoundError, NotADirectoryError):
                file.unlink()
        # Remove empty folders: object stores have no folders.
        with suppress(OSError):
            root = os.path.normpath(self.root)
            for folder in takewhile(lambda parent: parent.is_relative_to(root), file.parents):
                with lock_folder(folder, wait=False):  # not during a `put_if`
                    folder.rmdir()

    def check_unlinked(self, path: str) -> None:
        with self._failures(path):
            self._safe_path(f"{path}/-")

    def open(self, path: str) -> Any:
        import pyarrow as pa

        with open_regular_file(Path(self.root, path)) as file:
            # Open by file descriptor: another file may have replaced the checked file.
            return pa.OSFile(f"/proc/self/fd/{file.fileno()}")

    def child(self, path: str) -> LocalStore:
        return LocalStore(str(Path(self.root, path)), self.top)

    @property
    def top(self) -> str:
        """The folder that the user named. It may itself be reached through symbolic links."""
        return self.user_folder or self.root

    def _safe_path(self, path: str) -> Path:
        """Return the local path of ``path``. Raises `OSError` if it is outside `top`, or if one of
        its folders below `top` is a symbolic link: files behind links are never changed."""
        file = Path(os.path.normpath(Path(self.root, path)))
        folder = Path(os.path.normpath(self.top))
        if not file.is_relative_to(folder):
            raise OSError(errno.EPERM, "is outside the run folder")
        for name in file.relative_to(folder).parts[:-1]:
            folder /= name
            if folder.is_symlink():
                problem = f"{name} is a symbolic link, and files behind links are never changed"
                raise OSError(errno.ELOOP, problem)
        return file

    def _create_parent(self, path: str) -> Path:
        """Return the local path of ``path`` as `_safe_path` does, and create its parent folder."""
        file = self._safe_path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        return file

    def check_writable(self) -> None:
        self.check_unlinked(".")
        # Check the nearest existing folder, since a refused run must not create its own.
        with self._failures(""):
            folder = Path(self.root)
            while not folder.exists():
                folder = folder.parent
            if not folder.is_dir():
                raise NotADirectoryError(20, "is a file, not a folder", str(folder))
            with tempfile.TemporaryFile(dir=folder):
                pass
            free = shutil.disk_usage(folder).free
        if free < 64 << 20:
            problem = f"only {free >> 20} MiB free on this disk"
            raise UserError(problem, where=self.root, fix="free some space")

    def _raise_unless_deleted(self, error: OSError) -> None:
        """Raise `UserError` for a folder that cannot be read; ignore a deleted folder."""
        if not isinstance(error, FileNotFoundError):
            with self._failures(os.path.relpath(error.filename or self.root, self.root), "read"):
                raise error

    @contextmanager
    def _failures(self, path: str, doing: str = "write") -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UserError(
                f"cannot {doing}: {error.strerror or error}",
                where=os.path.normpath(Path(self.root, path)),
                fix=_FIXES[doing],
            ) from error


_FIXES = {
    "read": "check the permissions and the disk, or name an intact run",
    "write": "check the permissions and the free space, or choose another output folder",
}


def _write(target: Path, data: bytes) -> None:
    """Write a file atomically: after a crash, ``target`` has the old or the new content."""
    scratch = target.with_name(f".tmp-{secrets.token_hex(8)}")
    try:
        with scratch.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(target)
        # Without fsync of the folder, a power cut may undo the rename.
        with _open_folder(target.parent) as folder:
            os.fsync(folder)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise


@contextmanager
def _open_folder(folder: Path) -> Iterator[int]:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield handle
    finally:
        os.close(handle)


def open_regular_file(path: Path) -> BinaryIO:
    """Open the file at ``path`` for reading. Raises `OSError`, also for a pipe or a device, since
    reading from it may block forever."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        raise OSError(errno.EINVAL, "is not a regular file")
    return os.fdopen(handle, "rb")


@contextmanager
def lock_folder(folder: Path, *, wait: bool = True) -> Iterator[bool]:
    """Acquire the lock of ``folder``. Yield False if the folder was replaced meanwhile.

    ``wait``: wait up to `LOCK_S` for the lock. Raises `OSError` if another process has it."""
    until = time.monotonic() + (LOCK_S if wait else 0.0)
    with _open_folder(folder) as handle:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > until:
                    message = "another process holds the folder's lock"
                    raise OSError(error.errno, message) from error
                time.sleep(0.01)
        try:
            is_same = os.path.samestat(os.fstat(handle), folder.stat())
        except FileNotFoundError:
            is_same = False
        yield is_same  # closing the folder releases the lock
