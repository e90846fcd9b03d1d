"""Running counts of a graph: the coordinator keeps them, the driver reads them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ace_ray.pipeline.health.isolation import IsolatedRow
from ace_ray.pipeline.health.processes import KINDS, Kind, ProcessInfo


@dataclass
class RunCounts:
    """What one run has of a graph; wall-clock times."""

    done: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    stored: int = 0
    ready_at: float | None = None
    """When an engine first held its weights."""
    first_row_at: float | None = None
    last_row_at: float | None = None
    last_stored_at: float | None = None
    loads: list[dict[str, Any]] = field(default_factory=list)
    """How its weights came into engines (`ace_ray.pipeline.actors.candidate`)."""
    spent: dict[str, dict[str, float]] = field(default_factory=dict)
    """Worker -> state -> seconds (`ace_ray.pipeline.monitoring.timing`)."""
    broken: str = ""
    """Why its weights cannot be evaluated."""


@dataclass
class GroupCounts:
    """Scored rows, and the sum of their scores under each rule set."""

    scored: int = 0
    scores: dict[str, float] = field(default_factory=dict)

    def add(self, scored: int, scores: Mapping[str, float]) -> None:
        self.scored += scored
        for rules, score in scores.items():
            self.scores[rules] = self.scores.get(rules, 0) + score

    @property
    def shares(self) -> dict[str, float]:
        """Accuracy by rule set."""
        return {rules: score / self.scored for rules, score in self.scores.items()}


@dataclass
class Bug:
    """The same exception of a benchmark's code in ``rows`` rows."""

    benchmark: str
    place: str
    """Its class, file and line."""
    traceback: str
    """Of the first."""
    rows: int = 0

    @property
    def line(self) -> str:
        return (
            f"each of {self.rows} rows ended in the same exception of the code of "
            f"{self.benchmark}: {self.place}"
        )


class Tally:
    """Running counts of a graph; plain Python, so that tests need no Ray."""

    def __init__(self) -> None:
        self.runs: dict[int, RunCounts] = {}
        self.statuses: Counter[str] = Counter()
        self.groups: dict[tuple[str, str, str], GroupCounts] = {}
        """By benchmark, language and category."""
        self.workers: list[dict[str, Any]] = []
        self.begun_at: float | None = None
        """When the process of an engine worker first ran; wall clock."""
        self.failure = ""
        self.store_failed = False
        self.no_progress = False
        """Whether engines start again and again and no row gets further."""
        self.bugs: dict[tuple[str, str], Bug] = {}
        """By benchmark and place."""
        self.notice = ""
        """What the run is waiting for, if anything."""
        self.deaths: list[str] = []
        """Of engines, one line each."""
        self.other_deaths: Counter[str] = Counter()
        self.isolated: dict[Kind, dict[str, IsolatedRow]] = {kind: {} for kind in KINDS}
        self.silent: dict[ProcessInfo, float] = {}
        """Process that works -> seconds since it was last heard of."""
        self.starting: dict[ProcessInfo, float] = {}
        """Process that is not ready -> seconds since it began."""
        self.phases: Counter[str] = Counter()
        """Phases that engines are in which start."""

    def of(self, run: int) -> RunCounts:
        return self.runs.setdefault(run, RunCounts())

    @property
    def done(self) -> int:
        return sum(counts.done for counts in self.runs.values())

    @property
    def stored(self) -> int:
        return sum(counts.stored for counts in self.runs.values())

    @property
    def tokens(self) -> int:
        """Prompt and completion."""
        return sum(s.prompt_tokens + s.completion_tokens for s in self.runs.values())

    @property
    def first_ready_at(self) -> float | None:
        return min((s.ready_at for s in self.runs.values() if s.ready_at), default=None)

    @property
    def last_row_at(self) -> float | None:
        return max((s.last_row_at for s in self.runs.values() if s.last_row_at), default=None)

    def accuracies(self) -> dict[tuple[str, str], dict[str, float]]:
        """By benchmark and language, in their order: accuracy by rule set."""
        sums: dict[tuple[str, str], GroupCounts] = {}
        for (benchmark, language, _), counts in sorted(self.groups.items()):
            sums.setdefault((benchmark, language), GroupCounts()).add(counts.scored, counts.scores)
        return {key: counts.shares for key, counts in sums.items()}

    def bug(self, least: int) -> Bug | None:
        """The one that was in every row so far, if these are at least so many."""
        most = max(self.bugs.values(), key=lambda bug: bug.rows, default=None)
        if most is None or self.statuses["scored"] or most.rows < max(least, self.done):
            return None
        return most

    def add(self, rows: list[tuple[Any, ...]]) -> None:
        now = time.time()
        for run, benchmark, language, category, status, scores, *tokens in rows:
            counts = self.of(run)
            counts.first_row_at = counts.first_row_at or now
            counts.last_row_at = now
            counts.done += 1
            counts.prompt_tokens += tokens[0]
            counts.completion_tokens += tokens[1]
            self.statuses[status] += 1
            if status == "scored":
                key = (benchmark, language, category)
                self.groups.setdefault(key, GroupCounts()).add(1, scores)
