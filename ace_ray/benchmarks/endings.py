"""Count how episodes ended. Verdicts have the ending as a metric, ``ended_<ending>``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ace_ray.types import ResultRow, Verdict

_ENDED = "ended_"


def with_ending(
    verdicts: Mapping[str, Verdict], ended: object, kinds: Sequence[str], **metrics: float
) -> dict[str, Verdict]:
    """Add ``metrics`` to each verdict, and the metric of the ending if it is one of ``kinds``."""
    if ended in kinds:
        metrics = {f"{_ENDED}{ended}": 1, **metrics}
    return {r: replace(v, metrics={**v.metrics, **metrics}) for r, v in verdicts.items()}


class Endings:
    """Counts of the endings ``kinds`` by category, of the rows that are iterated with `through`."""

    def __init__(self, kinds: Sequence[str]) -> None:
        self._kinds = kinds
        self._counts: dict[str, Counter[str]] = {}

    def through(self, rows: Iterable[ResultRow]) -> Iterator[ResultRow]:
        for row in rows:
            for name in row.verdicts["official"].metrics if row.verdicts else ():
                if name.startswith(_ENDED):
                    ending = name.removeprefix(_ENDED)
                    self._counts.setdefault(row.category, Counter())[ending] += 1
            yield row

    def result(self) -> dict[str, dict[str, int]]:
        """Return ``{category: {ending: number of episodes}}``."""
        return {
            category: {kind: counts[kind] for kind in self._kinds}
            for category, counts in self._counts.items()
        }


def endings_table(
    title: str, kinds: Sequence[str], counts: Mapping[str, Mapping[str, int]]
) -> dict[str, Any]:
    """Return the result of `Endings` as a printed table."""
    lines = [[category, *map(str, endings.values())] for category, endings in counts.items()]
    return {"title": title, "header": ["category", *kinds], "lines": lines}
