"""A scored row for the tests of summaries."""

from collections.abc import Mapping
from typing import Any

from ace_ray.types import ResultRow, Verdict


def scored_row(
    category: str,
    entry_id: str,
    verdicts: Mapping[str, Verdict] | None = None,
    status: str = "scored",
    *,
    language: str = "en",
    group: str | None = None,
    sample: int = 0,
    **more: Any,
) -> ResultRow:
    group = entry_id if group is None else group
    names = ("", "", category, language, entry_id, group)
    costs = {"prompt_tokens": 10, "completion_tokens": 2, "generation_s": 0.5}
    return ResultRow(*names, sample, status, verdicts=dict(verdicts or {}), **{**costs, **more})
