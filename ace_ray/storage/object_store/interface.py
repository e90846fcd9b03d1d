"""The interface that all object stores implement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from ace_ray.errors import UserError

# Maximum bytes of an object that `get` and `get_tagged` return.
MOST_BYTES = 256 << 20
LARGE = f"is larger than {MOST_BYTES >> 20} MiB"


class UnreachableStore(UserError):
    """The store does not answer, so its content is unknown."""


@dataclass(frozen=True, slots=True)
class Object:
    """One stored object. ``etag`` changes when the content changes. ``broken`` is the reason why
    the object cannot be read, or ""."""

    path: str
    size: int
    etag: str
    broken: str = ""


class Store(Protocol):
    """A store of objects. Paths are relative to ``root``. Stores can be pickled."""

    root: str

    def put(self, path: str, data: bytes) -> None: ...

    def get(self, path: str) -> bytes | None:
        """Return the object's bytes, or None if it does not exist."""
        stored = self.get_tagged(path)
        return None if stored is None else stored[0]

    def get_tagged(self, path: str) -> tuple[bytes, str] | None:
        """Return the object's bytes and a tag for `put_if`, or None if it does not exist."""

    def put_if(self, path: str, data: bytes, tag: str | None) -> str | None:
        """Write ``data`` if the object still has ``tag`` (None: if it does not exist). Return the
        object's new tag, or None if another writer has changed the object."""

    def list(self, prefix: str = "") -> list[Object]:
        """Return all objects whose path starts with ``prefix``, sorted by path."""

    def delete(self, path: str) -> None: ...

    def check_unlinked(self, path: str) -> None:
        """Raise `UserError` if the folder ``path`` is a symbolic link or is below one."""
        return  # S3 has no links

    def open(self, path: str) -> Any:
        """Open an object as a seekable ``pyarrow.NativeFile`` for reading."""

    def child(self, path: str) -> Store:
        """Return a store whose root is the folder ``path`` of this store."""

    def with_short_timeout(self) -> Store:
        """Return a store with the same root that gives up within 20 s during an outage."""
        return self

    def check_writable(self) -> None:
        """Raise `UserError`, after at most 20 s, if objects cannot be written and listed. Leaves no
        object in the store."""

    def check_conditions(self) -> None:
        """Raise `UserError` if the store refuses or ignores the conditions of `put_if`. Leaves no
        object in the store."""
        return  # a local store needs only locks
