"""stand-in until merged"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ace_ray.records import Entry, Episode


@dataclass(frozen=True, slots=True)
class Output:
    entry: Entry
    sample: int | str
    episode: Episode


def read_lines(path: Path, entries: Sequence[Entry]) -> Iterator[Output]:
    raise NotImplementedError
