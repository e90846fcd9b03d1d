"""What a sandbox of an entry starts from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ace_ray.records import Entry

Docs = Mapping[str, Sequence[Mapping[str, Any]]]
"""The functions' docs as published, by the class that has the functions."""


@dataclass(frozen=True, slots=True)
class Opening:
    """Picklable. ``names`` are the methods that can be called, of each class in order: all that the
    docs name, those held out in some turns too, since upstream executes them as well."""

    names: Mapping[str, tuple[str, ...]]
    initial_config: Mapping[str, Any] = field(default_factory=dict)
    long_context: bool = False

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(self.names)


def opening_of(entry: Entry, docs: Docs) -> Opening:
    """The opening of a multi-turn or memory entry."""
    return Opening(
        {
            name: tuple(str(doc["name"]) for doc in docs[name])
            for name in entry.data["involved_classes"]
        },
        entry.data.get("initial_config", {}),
        "long_context" in entry.category,
    )
