"""Count how episodes ended. A verdict records the ending in the metric ``ended_<ending>`` (1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ace_ray.types import ResultRow, Verdict

_ENDED = "ended_"


def with_ending(
    verdicts: Mapping[str, Verdict], ending: object, kinds: Sequence[str], **metrics: float
) -> dict[str, Verdict]:
    """Return ``verdicts``, by rule set, with ``metrics`` added to each verdict. If ``kinds`` lists
    ``ending``, add the metric ``ended_<ending>`` = 1, too."""
    if ending in kinds:
        metrics = {f"{_ENDED}{ending}": 1, **metrics}
    return {r: replace(v, metrics={**v.metrics, **metrics}) for r, v in verdicts.items()}


def count_endings(
    rows: Iterable[ResultRow], kinds: Sequence[str], counts: dict[str, dict[str, int]]
) -> Iterator[ResultRow]:
    """Yield ``rows`` unchanged. Count the ending of each row in ``counts[category][ending]``."""
    for row in rows:
        metrics = row.verdicts["official"].metrics if row.verdicts else {}
        for kind in kinds:
            if f"{_ENDED}{kind}" in metrics:
                counts.setdefault(row.category, dict.fromkeys(kinds, 0))[kind] += 1
        yield row


def endings_table(
    title: str, kinds: Sequence[str], counts: Mapping[str, Mapping[str, int]]
) -> dict[str, Any]:
    """Return ``counts`` (see `count_endings`) as a table to print, with a line per category."""
    lines = [[category, *map(str, endings.values())] for category, endings in counts.items()]
    return {"title": title, "header": ["category", *kinds], "lines": lines}
