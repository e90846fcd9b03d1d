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
    """``kind``: ``added``, ``removed`` or ``changed``; the values are JSON values, None where the
    place is absent."""

    path: str
    kind: str
    before: Any = None
    after: Any = None


def changes(before: Any, after: Any) -> list[Change]:
    """At most `MOST` of them. The elements of lists are told apart by their place."""
    return list(islice(_changes("", before, after), MOST))


def _changes(path: str, before: Any, after: Any) -> Iterator[Change]:
    if before is _ABSENT:
        yield Change(path, "added", after=after)
    elif after is _ABSENT:
        yield Change(path, "removed", before=before)
    elif isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in dict.fromkeys([*before, *after]):
            inner = f"{path}.{key}" if path else str(key)
            yield from _changes(inner, before.get(key, _ABSENT), after.get(key, _ABSENT))
    elif isinstance(before, list) and isinstance(after, list):
        pairs = zip_longest(before, after, fillvalue=_ABSENT)
        for place, (old, new) in enumerate(pairs):
            yield from _changes(f"{path}[{place}]", old, new)
    elif before != after or type(before) is not type(after):
        yield Change(path, "changed", before, after)
