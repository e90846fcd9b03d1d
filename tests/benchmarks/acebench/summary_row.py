"""A scored row for the tests of summaries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ace_ray.types import Verdict


@dataclass(slots=True)
class SummaryRow:
    """A `ScoredRow` with what it cost."""

    language: str
    category: str
    id: str
    group: str
    sample: int
    status: str
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    generation_s: float = 0.0
