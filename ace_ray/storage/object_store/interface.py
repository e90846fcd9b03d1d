"""What a store is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from ace_ray.errors import UserError

MOST_BYTES = 256 << 20
"""Of an object that is read whole."""
LARGE = f"is larger than {MOST_BYTES >> 20} MiB"


class Unreachable(UserError):
    """The store does not answer now: that says nothing of what it holds."""


@dataclass(frozen=True, slots=True)
class Object:
    """One stored object. ``etag`` changes whenever the content does; ``broken`` says why it cannot
    be read."""

    path: str
    size: int
    etag: str
    broken: str = ""


class Store(Protocol):
    """Objects under one root, addressed by paths relative to it. Picklable."""

    @property
    def root(self) -> str: ...

    def put(self, path: str, data: bytes) -> None: ...

    def get(self, path: str) -> bytes | None:
        """The object's bytes, or None when there is no such object."""

    def tagged(self, path: str) -> tuple[bytes, str] | None:
        """The object's bytes and a tag for `put_if`, or None when there is no such object."""

    def put_if(self, path: str, data: bytes, tag: str | None) -> str | None:
        """Write unless the object has changed since it had ``tag`` (None: since it did not exist).

        Returns the new tag, or None when another writer was first."""

    def list(self, prefix: str = "") -> list[Object]:
        """All objects whose path starts with ``prefix``, recursively, by path."""

    def delete(self, path: str) -> None: ...

    def check_unlinked(self, path: str) -> None:
        """Raise `UserError` when the folder ``path`` lies behind a symbolic link, or is one."""

    def open(self, path: str) -> Any:
        """A seekable ``pyarrow.NativeFile`` for reading."""

    def child(self, path: str) -> Store:
        """The store one level down."""

    def quick(self) -> Store:
        """The same store, giving up on an outage within 20 s."""

    def check_writable(self) -> None:
        """Find out, without leaving anything behind, that objects can be written and listed.

        Raises `UserError`, within 20 s."""
