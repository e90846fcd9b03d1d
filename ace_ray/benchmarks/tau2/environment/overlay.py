"""A database that many episodes share: records are copied when an episode may change them."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

from ace_ray.benchmarks.tau2.environment.sources import hash_text


class Overlay(MutableMapping[str, Any]):
    """A mapping of records over a shared ``base``.

    While ``copies`` is true, a record is copied when it is first read. Otherwise the base's record
    is returned, for tools that only read.
    """

    __slots__ = ("_base", "_gone", "_own", "copies")

    def __init__(self, base: dict[str, Any]) -> None:
        self._base = base
        self._own: dict[str, Any] = {}
        self._gone: set[str] = set()
        self.copies = True

    def __getitem__(self, key: str) -> Any:
        if key in self._own:
            return self._own[key]
        if key in self._gone:
            raise KeyError(key)
        record = self._base[key]
        if not self.copies:
            return record
        self._own[key] = copied = record.model_copy(deep=True)
        return copied

    def __setitem__(self, key: str, record: Any) -> None:
        self._own[key] = record

    def __delitem__(self, key: str) -> None:
        if key not in self:
            raise KeyError(key)
        self._own.pop(key, None)
        if key in self._base:
            self._gone.add(key)

    def __contains__(self, key: object) -> bool:
        return key in self._own or (key in self._base and key not in self._gone)

    def __iter__(self) -> Iterator[str]:
        yield from (key for key in self._base if key not in self._gone)
        yield from [key for key in self._own if self._is_new(key)]

    def __len__(self) -> int:
        return len(self._base) - len(self._gone) + sum(map(self._is_new, self._own))

    def _is_new(self, key: str) -> bool:
        """Return whether a key comes after the base's keys, as one that was set again does."""
        return key not in self._base or key in self._gone

    def changed(self) -> dict[str, tuple[str | None, str | None]]:
        """Return (before, after) of differing records by key, as the texts that upstream hashes;
        None for a missing record."""
        pairs = {key: (self._base.get(key), record) for key, record in self._own.items()}
        pairs |= {key: (self._base[key], None) for key in self._gone - self._own.keys()}
        texts = {key: (_text(before), _text(after)) for key, (before, after) in pairs.items()}
        return {key: pair for key, pair in texts.items() if pair[0] != pair[1]}


def _text(record: Any) -> str | None:
    return None if record is None else hash_text(record.model_dump())
