"""A scored row for the tests of summaries."""

from __future__ import annotations

from ace_ray.benchmarks.results import ResultRow
from ace_ray.types import Verdict


def summary_row(
    language: str,
    category: str,
    entry_id: str,
    group: str,
    status: str = "scored",
    verdicts: dict[str, Verdict] | None = None,
) -> ResultRow:
    return ResultRow(
        "", "acebench", category, language, entry_id, group, 0, status, verdicts=verdicts or {}
    )
