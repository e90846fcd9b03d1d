"""Count the rows and crashes of a running graph, and print the driver's progress lines.

A graph is one pass of engine workers, checkers and the writer over pending rows. The coordinator
keeps the counts (`Tally`), and the driver reads them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ace_ray.models.start_phases import PHASES
from ace_ray.pipeline.end_time import format_time
from ace_ray.pipeline.health.heartbeat import KINDS, EngineLoad, Kind, ProcessInfo
from ace_ray.pipeline.health.isolation import IsolatedRow
from ace_ray.util import log

LOG_EVERY_S = 10.0
# Maximum time between two lines while no row ends.
SILENCE_S = 60.0


class EngineCounts(NamedTuple):
    """Number of engine workers by state. ``unused``: ready, but without a row so far. ``idle``: has
    had rows, and has none in flight now."""

    starting: int = 0
    unused: int = 0
    idle: int = 0
    at_work: int = 0


@dataclass
class PassCounts:
    """Counts of one run in one pass. Times (``_at``) are `time.monotonic` of the driver."""

    ended_rows: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    stored: int = 0
    ready_at: float | None = None
    """Time at which the first engine had loaded the weights of the run."""
    first_row_at: float | None = None
    last_row_at: float | None = None
    last_stored_at: float | None = None
    out_of_time: int = 0
    """Number of rows that could not end before the time limit."""
    loads: list[dict[str, Any]] = field(default_factory=list)
    """Facts about each load of the weights into an engine (`ace_ray.pipeline.actors.weights`)."""
    spent: dict[str, tuple[dict[str, float], int]] = field(default_factory=dict)
    """Worker -> its seconds by state (`ace_ray.pipeline.monitoring.timing`), and the completion
    tokens of its engine in all roles."""
    broken: str = ""
    """Why the weights of the run cannot be evaluated; "" if they can."""

    def seconds_until(self, at: float | None) -> float:
        """Return the seconds from `ready_at` to the time ``at``; 0 for None."""
        return 0.0 if at is None else max(0.0, at - (self.ready_at or 0.0))


@dataclass(frozen=True, slots=True)
class RowReport:
    """A report of a process about its rows, by their ids."""

    run: int | None = None
    entered: Sequence[str] | None = None
    """Rows and preparations that the process begins to work on."""
    ended: Sequence[str] = ()
    """Rows whose work has ended."""
    prepared: Sequence[str] = ()
    """Preparations that have ended."""
    late: Sequence[str] = ()
    """Rows that were not started, or were cancelled, for lack of time."""
    given_back: Sequence[str] = ()
    """Rows that another worker must evaluate."""
    spent: tuple[dict[str, float], int] | None = None
    """Seconds that the worker has spent on ``run``, by state, and completion tokens it has made."""
    judged: Sequence[tuple[Any, ...]] = ()
    """Judged rows, as `Tally.add` receives them."""
    stored: int = 0
    """Number of rows of ``run`` that were stored."""
    notice: str = ""
    """Why rows cannot be stored at present."""


@dataclass
class Bug:
    """An exception in a benchmark's code, and the number of rows that failed with it."""

    benchmark: str
    origin: str
    """Class of the exception, and file and line of its origin."""
    traceback: str
    """Traceback of the first row that failed with the exception."""
    rows: int = 0

    @property
    def line(self) -> str:
        return (
            f"each of {self.rows} rows failed with the same exception in the code of "
            f"{self.benchmark}: {self.origin}"
        )


class Tally:
    """Counts of rows, engines and crashes in one pass; plain Python, so tests need no Ray."""

    def __init__(self) -> None:
        self.runs: dict[int, PassCounts] = {}
        self.statuses: Counter[str] = Counter()
        # Number of scored rows by benchmark and language.
        self.scored: Counter[tuple[str, str]] = Counter()
        # Sum of the scores of these rows by rule set.
        self.scores: dict[tuple[str, str], dict[str, float]] = {}
        self.workers: list[dict[str, Any]] = []
        # Time at which the first engine worker's process started.
        self.begun_at: float | None = None
        self.failure = ""
        self.store_failed = False
        # Whether processes restart repeatedly while no row makes progress.
        self.no_progress = False
        # Bugs by benchmark and origin.
        self.bugs: dict[tuple[str, str], Bug] = {}
        # Why the run waits; "" if it does not.
        self.notice = ""
        # One line for each engine that died.
        self.deaths: list[str] = []
        # States of isolated rows.
        self.isolated: dict[Kind, dict[str, IsolatedRow]] = {kind: {} for kind in KINDS}
        # Ready process -> seconds since its last message.
        self.silent: dict[ProcessInfo, float] = {}
        # Starting process -> seconds since its start.
        self.starting: dict[ProcessInfo, float] = {}
        # Number of starting engines by phase of the start.
        self.phases: Counter[str] = Counter()
        # Sum of the loads of all engine workers.
        self.load = EngineLoad()
        self.engines = EngineCounts()
        # Rows in flight in all engine workers, as they have reported them.
        self.in_flight = 0

    def counts_of(self, run: int) -> PassCounts:
        return self.runs.setdefault(run, PassCounts())

    @property
    def ended_rows(self) -> int:
        return sum(counts.ended_rows for counts in self.runs.values())

    @property
    def stored(self) -> int:
        return sum(counts.stored for counts in self.runs.values())

    @property
    def tokens(self) -> int:
        """Number of prompt and completion tokens of ended rows."""
        return sum(s.prompt_tokens + s.completion_tokens for s in self.runs.values())

    @property
    def token_counts(self) -> tuple[int, int]:
        """Numbers of prompt tokens and of completion tokens, also of rows in flight."""
        prompt = sum(counts.prompt_tokens for counts in self.runs.values())
        completion = sum(counts.completion_tokens for counts in self.runs.values())
        # The load can be the smaller number, since a restarted engine worker counts from zero.
        return max(prompt, self.load.prompt_tokens), max(completion, self.load.completion_tokens)

    def accuracies(self) -> dict[tuple[str, str], dict[str, float]]:
        """Return the accuracy by rule set for each benchmark and language, sorted."""
        return {
            key: {rules: score / self.scored[key] for rules, score in scores.items()}
            for key, scores in sorted(self.scores.items())
        }

    def bug(self, least: int) -> Bug | None:
        """Return the bug with which all ended rows have failed. Return None if there is no such
        bug, or if fewer than ``least`` rows have failed."""
        bug = max(self.bugs.values(), key=lambda bug: bug.rows, default=None)
        if bug is None or self.statuses["scored"] or bug.rows < max(least, self.ended_rows):
            return None
        return bug

    def note(self, process: str, report: RowReport) -> None:
        """Count the rows, times and tokens in ``report``, which ``process`` has sent."""
        self.add(report.judged)
        if report.stored or report.notice:
            self.notice = report.notice
        if report.run is None:
            return
        counts = self.counts_of(report.run)
        counts.out_of_time += len(report.late)
        if report.spent is not None:
            counts.spent[process] = report.spent
        if report.stored:
            counts.stored += report.stored
            counts.last_stored_at = time.monotonic()

    def add(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Count judged rows: (run, benchmark, language, status, scores by rule set, prompt tokens,
        completion tokens)."""
        now_s = time.monotonic()
        for run, benchmark, language, status, scores, *tokens in rows:
            counts = self.counts_of(run)
            counts.first_row_at = counts.first_row_at or now_s
            counts.last_row_at = now_s
            counts.ended_rows += 1
            counts.prompt_tokens += tokens[0]
            counts.completion_tokens += tokens[1]
            self.statuses[status] += 1
            if status == "scored":
                self.scored[benchmark, language] += 1
                sums = self.scores.setdefault((benchmark, language), {})
                for rules, score in scores.items():
                    sums[rules] = sums.get(rules, 0) + score


class Progress:
    """Prints a progress line every `LOG_EVERY_S` while a graph runs. ``planned``: number of rows
    that it will evaluate. ``engine``: the word for what answers, "endpoint worker" for example."""

    def __init__(self, planned: int, engine: str = "engine") -> None:
        self._planned, self._engine = planned, engine
        self._start = time.monotonic()
        self._has_started = False
        self._shown_rows, self._shown_at = -1, -LOG_EVERY_S

    def show(self, tally: Tally) -> None:
        """Print one line when the first engine has started, and a progress line every
        `LOG_EVERY_S`. If rows have ended, but none since the last line, and the run does not wait
        for the store, print the next line after `SILENCE_S`."""
        if not self._has_started and tally.workers:
            self._has_started = True
            load_s, start_s = tally.workers[0]["load_s"], tally.workers[0]["start_s"]
            phases = ", ".join(f"{phase} {seconds:.0f} s" for phase, seconds in start_s.items())
            line = f"the first {self._engine} is ready, {load_s:.0f} s after its process began"
            line += phases and f": {phases}"
            log.info(line, event="engine_ready", load_s=load_s, start_s=start_s)
        is_silent = tally.ended_rows == self._shown_rows > 0 and not tally.notice
        if time.monotonic() - self._shown_at >= (SILENCE_S if is_silent else LOG_EVERY_S):
            self._shown_rows, self._shown_at = tally.ended_rows, time.monotonic()
            seconds = _seconds(tally)
            log.info(
                self.line(tally),
                event="progress",
                done=tally.ended_rows,
                planned=self._planned,
                in_flight=tally.load.rows,
                model_calls=tally.load.calls,
                prompt_tokens=tally.token_counts[0],
                completion_tokens=tally.token_counts[1],
                tokens_per_s=seconds and round(tally.tokens / seconds, 1),
                not_scored=tally.ended_rows - tally.statuses["scored"],
                engine_deaths=len(tally.deaths),
            )

    def line(self, tally: Tally) -> str:
        if not tally.workers and not tally.ended_rows:
            at = [f"{tally.phases[phase]} {phase}" for phase in PHASES if tally.phases[phase]]
            waited = f"starting {self._engine}s ... {time.monotonic() - self._start:.0f} s"
            return waited + (f" ({', '.join(at)})" if at else "")
        parts, load = [f"{tally.ended_rows}/{self._planned} rows"], tally.load
        if load.rows:
            parts += [f"{load.rows} in flight", f"{load.calls} model calls"]
        accuracies = (
            f"{' '.join(key).strip()}: "
            + " ".join(f"{rules} {share:.3f}" for rules, share in shares.items())
            for key, shares in tally.accuracies().items()
        )
        parts.append(", ".join(accuracies))
        tokens = "{:,} prompt + {:,} output tokens".format(*tally.token_counts)
        seconds = _seconds(tally)
        if seconds is not None:
            parts.append(f"{tokens}, {tally.tokens / seconds:.0f} tokens/s")
            # The longest rows come first, so an early estimate would be far too long.
            if tally.ended_rows >= self._planned / 10:
                left_s = (self._planned - tally.ended_rows) * seconds / max(1, tally.ended_rows)
                parts.append(f"{format_time(left_s)} left")
        elif load.calls:
            parts.append(tokens)
        if failed := tally.ended_rows - tally.statuses["scored"]:
            parts.append(f"{failed} not scored")
        if tally.deaths:
            parts.append(f"{len(tally.deaths)} {self._engine} crash(es)")
        return " | ".join(filter(None, [*parts, tally.notice]))


def _seconds(tally: Tally) -> float | None:
    """Return the seconds from the first engine's readiness to the end of the latest row."""
    ready = [counts.ready_at for counts in tally.runs.values() if counts.ready_at]
    rows = [counts.last_row_at for counts in tally.runs.values() if counts.last_row_at]
    return max(1e-6, max(rows) - min(ready)) if ready and rows else None
