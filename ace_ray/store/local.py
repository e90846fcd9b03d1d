"""A local folder as a store: no symbolic link below it is followed, no pipe is waited for."""

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
from pathlib import Path
from typing import Any, BinaryIO

from ace_ray.errors import UserError
from ace_ray.store.interface import LARGE, MOST_BYTES, Object

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
LOCK_S = 60.0
"""A lock is held for a few milliseconds, unless its holder is stopped."""


@dataclass(frozen=True)
class LocalStore:
    root: str
    named: str = ""
    """The folder that the user named, where that is one above ``root``."""

    @property
    def endpoint(self) -> str:
        return ""

    def put(self, path: str, data: bytes) -> None:
        with self._failures(path), self._folder(path, make=True) as (folder, name):
            self._put(folder, name, data)

    def put_file(self, path: str, source: Path) -> None:
        with (
            self._failures(path),
            source.open("rb") as data,
            self._folder(path, make=True) as (folder, name),
        ):
            self._put(folder, name, data)

    def _put(self, folder: int, name: str, data: bytes | BinaryIO) -> None:
        scratch = f".tmp-{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        handle = os.open(scratch, flags, 0o666, dir_fd=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                if isinstance(data, bytes):
                    file.write(data)
                else:
                    shutil.copyfileobj(data, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(scratch, name, src_dir_fd=folder, dst_dir_fd=folder)
            # A rename outlasts a power cut once its folder is on the disk.
            os.fsync(folder)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(scratch, dir_fd=folder)
            raise

    def get(self, path: str) -> bytes | None:
        with self._failures(path, "read"):
            try:
                # A pipe would never end, and some devices neither.
                handle = os.open(Path(self.root, path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except (FileNotFoundError, NotADirectoryError):
                return None
            return content(handle)

    def tagged(self, path: str) -> tuple[bytes, str] | None:
        data = self.get(path)
        return None if data is None else (data, hashlib.sha256(data).hexdigest())

    def put_if(self, path: str, data: bytes, tag: str | None) -> str | None:
        with self._failures(path):
            try:
                with (
                    self._folder(path, make=tag is None) as (folder, name),
                    locked(folder, self._place(path).parent) as held,
                ):
                    if held:
                        stored = self.tagged(path)
                        if (stored and stored[1]) != tag:
                            return None
                        self._put(folder, name, data)
                        return hashlib.sha256(data).hexdigest()
            except (FileNotFoundError, NotADirectoryError):
                if tag is None:
                    raise
                return None
        return self.put_if(path, data, tag)

    def list(self, prefix: str = "") -> list[Object]:
        objects = []
        # Everything up to the last slash is a folder; the rest is the start of names in it.
        top = Path(self.root, prefix.rpartition("/")[0])
        for base, _, names in os.walk(top, onerror=self._unless_gone):
            for name in names:
                file = Path(base, name)
                relative = file.relative_to(self.root).as_posix()
                if not relative.startswith(prefix) or name.startswith(".tmp-"):
                    continue
                with self._failures(relative, "read"), suppress(FileNotFoundError):
                    fault = ""
                    try:
                        about = file.stat()
                    except OSError as error:
                        if error.errno not in (errno.ENOENT, errno.ELOOP):
                            raise
                        # A bad link is named and must not hide all other files; a file that
                        # went while the folder was walked is not there.
                        about = file.lstat()
                        if error.errno == errno.ELOOP:
                            fault = "is a link that leads to itself"
                    size, changed = about.st_size, f"{about.st_mtime_ns}"
                    objects.append(Object(relative, size, changed, fault))
        return sorted(objects, key=lambda item: item.path)

    def delete(self, path: str) -> None:
        gone = suppress(FileNotFoundError, NotADirectoryError)
        with self._failures(path), gone, self._folder(path) as (folder, name):
            os.unlink(name, dir_fd=folder)
        # An object store has no empty folders.
        with suppress(OSError):
            for one in self._place(path).parents:
                if not one.is_relative_to(self.root):
                    break
                with self._folder(self._within(one)) as (above, name):
                    handle = os.open(name, FOLDER, dir_fd=above)
                    # Not while a `put_if` looks at what is in it.
                    with closing(handle), locked(handle, one, wait=False):
                        os.rmdir(name, dir_fd=above)

    def check_unlinked(self, path: str) -> None:
        gone = suppress(FileNotFoundError, NotADirectoryError)
        with self._failures(path), gone, self._folder(f"{path}/-"):
            pass

    def open(self, path: str) -> Any:
        import pyarrow as pa

        handle = os.open(Path(self.root, path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            check_regular(handle)
            # By its number, so that what was looked at is what is read.
            return pa.OSFile(f"/proc/self/fd/{handle}")
        finally:
            os.close(handle)

    def child(self, path: str) -> LocalStore:
        return LocalStore(str(Path(self.root, path)), self.top)

    def quick(self) -> LocalStore:
        return self

    @property
    def top(self) -> str:
        """The folder that the user named: links on the way to it are the user's own."""
        return self.named or self.root

    def _place(self, path: str) -> Path:
        return Path(self.root, path)

    def _within(self, place: Path) -> str:
        return os.path.relpath(place, self.root)

    @contextmanager
    def _folder(self, path: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """The folder that ``path`` is in, opened, and its name in there. No link below `top` is
        followed on the way: what is behind one is not ours to write or to remove.

        Raises `OSError`."""
        place = os.path.normpath(self._place(path))
        if place == os.path.normpath(self.top):  # the named folder itself, to be removed when empty
            parent, name = os.path.split(place)
            with closing(os.open(parent, FOLDER)) as folder:
                yield folder, name
            return
        *folders, name = os.path.relpath(place, self.top).split(os.sep)
        if os.pardir in folders or name == os.pardir:
            raise OSError(errno.EPERM, "leads out of the folder")
        if make:
            os.makedirs(self.top, exist_ok=True)
        folder = os.open(self.top, FOLDER)
        try:
            for one in folders:
                inner = opened(folder, one, make=make)
                os.close(folder)
                folder = inner
            yield folder, name
        finally:
            os.close(folder)

    def check_writable(self) -> None:
        self.check_unlinked(".")
        # Nothing may be left behind: a refused run must not create its folder.
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
            raise UserError(
                f"only {free >> 20} MiB free on this disk", where=self.root, fix="free some space"
            )

    def _unless_gone(self, error: OSError) -> None:
        """A folder that cannot be read is not an empty one."""
        if not isinstance(error, FileNotFoundError):
            with self._failures(self._within(Path(error.filename or self.root)), "read"):
                raise error

    @contextmanager
    def _failures(self, path: str, doing: str = "write") -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UserError(
                f"cannot {doing}: {error.strerror or error}",
                where=os.path.normpath(self._place(path)),
                fix=_FIXES[doing].get(error.errno or 0, _OTHERWISE),
            ) from error


_INTACT = "name an intact run"
_ELSEWHERE = "choose another output folder"
_SPACE = "free some space, or choose an output folder on another disk"
_OTHERWISE = "check the disk or network share that holds it, then try again"
_FIXES = {
    "read": {
        **dict.fromkeys((errno.EACCES, errno.EPERM), "check who may read it"),
        **dict.fromkeys((errno.ENOTDIR, errno.EISDIR, errno.EINVAL, errno.EFBIG), _INTACT),
        errno.ELOOP: "remove the link",
        errno.ENAMETOOLONG: "name a folder whose path is shorter",
        errno.EMFILE: "raise the limit of open files (ulimit -n)",
    },
    "write": {
        **dict.fromkeys(
            (errno.EACCES, errno.EPERM, errno.EROFS), f"{_ELSEWHERE} that you may write"
        ),
        **dict.fromkeys((errno.ENOTDIR, errno.EEXIST, errno.EISDIR), _ELSEWHERE),
        **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), _SPACE),
        errno.ELOOP: f"put a folder in the link's place, or {_ELSEWHERE}",
        errno.ENAMETOOLONG: "choose an output folder whose path is shorter",
        errno.EMFILE: "raise the limit of open files (ulimit -n)",
        errno.EAGAIN: "wait until it is done, then try again",
    },
}
"""Operation -> error number -> advice."""


def opened(folder: int, name: str, *, make: bool) -> int:
    """The folder ``name`` in ``folder``; a link is refused. Raises `OSError`."""
    if make:
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=folder)
    try:
        return os.open(name, FOLDER | os.O_NOFOLLOW, dir_fd=folder)
    except OSError:
        if stat.S_ISLNK(os.lstat(name, dir_fd=folder).st_mode):
            raise OSError(
                errno.ELOOP, f"{name} is a symbolic link, and nothing is changed behind one"
            ) from None
        raise


def check_regular(handle: int) -> int:
    """The size of an open file. Raises `OSError`: it is no file, or too large to be held."""
    status = os.fstat(handle)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "is no regular file")
    return status.st_size


def open_regular(path: Path) -> BinaryIO:
    """Open the file at ``path`` for reading. Raises `OSError`, for a pipe or a device at once."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        check_regular(handle)
    except OSError:
        os.close(handle)
        raise
    return os.fdopen(handle, "rb")


def content(handle: int) -> bytes:
    with os.fdopen(handle, "rb") as file:
        if check_regular(handle) > MOST_BYTES:
            raise OSError(errno.EFBIG, LARGE)
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise OSError(errno.EFBIG, LARGE)
    return content


@contextmanager
def closing(handle: int) -> Iterator[int]:
    try:
        yield handle
    finally:
        os.close(handle)


@contextmanager
def locked(handle: int, folder: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold the lock of ``folder``, open as ``handle``; false when the folder was replaced while
    waiting for it.

    Raises `OSError`: it is locked, for `LOCK_S` if asked to wait."""
    until = time.monotonic() + (LOCK_S if wait else 0.0)
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
        try:
            same = os.path.samestat(os.fstat(handle), os.stat(folder))
        except FileNotFoundError:
            same = False
        yield same
    finally:
        fcntl.flock(handle, fcntl.LOCK_UN)
