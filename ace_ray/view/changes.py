"""What differs between two states of a sandbox, place by place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import Any

MOST = 1_000
"""Differences that are told of a pair of states."""

_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Change:
    """``place``: the keys and numbers that lead there. ``kind``: ``added``, ``removed`` or
    ``changed``; the values are JSON values, None where the place is absent."""

    place: tuple[str | int, ...]
    kind: str
    before: Any = None
    after: Any = None

    @property
    def path(self) -> str:
        """The place for people: ``a.b[0]``."""
        parts = (f"[{one}]" if isinstance(one, int) else f".{one}" for one in self.place)
        return "".join(parts).removeprefix(".")

    def as_json(self) -> dict[str, Any]:
        values = {"before": self.before, "after": self.after}
        return {"path": self.path, "place": list(self.place), "kind": self.kind, **values}


def changes(before: Any, after: Any) -> list[Change]:
    """At most `MOST` of them. The elements of lists are told apart by their place."""
    return list(islice(_changes((), before, after), MOST))


def _changes(place: tuple[str | int, ...], before: Any, after: Any) -> Iterator[Change]:
    if before is _ABSENT:
        yield Change(place, "added", after=after)
    elif after is _ABSENT:
        yield Change(place, "removed", before=before)
    elif isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in dict.fromkeys([*before, *after]):
            inner = (*place, str(key))
            yield from _changes(inner, before.get(key, _ABSENT), after.get(key, _ABSENT))
    elif isinstance(before, list) and isinstance(after, list):
        pairs = zip_longest(before, after, fillvalue=_ABSENT)
        for number, (old, new) in enumerate(pairs):
            yield from _changes((*place, number), old, new)
    elif before != after or type(before) is not type(after):
        yield Change(place, "changed", before, after)
