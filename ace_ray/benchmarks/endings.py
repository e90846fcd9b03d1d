"""Count how episodes ended. Verdicts have the ending as a metric, ``ended_<ending>``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ace_ray.types import ResultRow, Verdict

_ENDED = "ended_"


def with_ending(
    verdicts: Mapping[str, Verdict], ending: object, kinds: Sequence[str], **metrics: float
) -> dict[str, Verdict]:
    """Add ``metrics`` to each verdict, and the metric of the ending if it is one of ``kinds``."""
    if ending in kinds:
        metrics = {f"{_ENDED}{ending}": 1, **metrics}
    return {r: replace(v, metrics={**v.metrics, **metrics}) for r, v in verdicts.items()}


def count_endings(
    rows: Iterable[ResultRow], kinds: Sequence[str], counts: dict[str, dict[str, int]]
) -> Iterator[ResultRow]:
    """Yield ``rows``, and add their endings to ``counts``: category -> ending -> episodes."""
    for row in rows:
        metrics = row.verdicts["official"].metrics if row.verdicts else {}
        for kind in kinds:
            if f"{_ENDED}{kind}" in metrics:
                counts.setdefault(row.category, dict.fromkeys(kinds, 0))[kind] += 1
        yield row


def endings_table(
    title: str, kinds: Sequence[str], counts: Mapping[str, Mapping[str, int]]
) -> dict[str, Any]:
    """Return the counts of `count_endings` as a printed table."""
    lines = [[category, *map(str, endings.values())] for category, endings in counts.items()]
    return {"title": title, "header": ["category", *kinds], "lines": lines}
