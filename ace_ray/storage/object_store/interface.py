"""The interface of a store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from ace_ray.errors import UserError

# Maximum bytes of an object that is read whole.
MOST_BYTES = 256 << 20
LARGE = f"is larger than {MOST_BYTES >> 20} MiB"


class Unreachable(UserError):
    """The store does not answer now. Its content is unknown."""


@dataclass(frozen=True, slots=True)
class Object:
    """One stored object. ``etag`` changes with the content. ``broken`` is the reason why the object
    cannot be read, or ""."""

    path: str
    size: int
    etag: str
    broken: str = ""


class Store(Protocol):
    """Objects under one root, with paths relative to it. Can be pickled."""

    @property
    def root(self) -> str: ...

    def put(self, path: str, data: bytes) -> None: ...

    def get(self, path: str) -> bytes | None:
        """Return the object's bytes, or None if it does not exist."""

    def tagged(self, path: str) -> tuple[bytes, str] | None:
        """Return the object's bytes and a tag for `put_if`, or None if it does not exist."""

    def put_if(self, path: str, data: bytes, tag: str | None) -> str | None:
        """Write if the object still has ``tag`` (None: if it still does not exist).

        Returns the new tag, or None if another writer was first."""

    def list(self, prefix: str = "") -> list[Object]:
        """Return all objects whose path starts with ``prefix``, in order of paths."""

    def delete(self, path: str) -> None: ...

    def check_unlinked(self, path: str) -> None:
        """Raise `UserError` if the folder ``path`` is a symbolic link or lies behind one."""

    def open(self, path: str) -> Any:
        """Open an object as a seekable ``pyarrow.NativeFile`` for reading."""

    def child(self, path: str) -> Store:
        """Return the store at ``path`` below this one."""

    def quick(self) -> Store:
        """Return the same store, which gives up within 20 s during an outage."""

    def check_writable(self) -> None:
        """Check that objects can be written and listed, and leave nothing behind.

        Raises `UserError` within 20 s."""
