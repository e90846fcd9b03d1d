"""Prometheus metrics of a run: the coordinator's tally, exported by Ray.

Every node of a cluster serves the metrics of its processes. Ray puts ``ray_`` before each name and
``_total`` after the name of a counter, so `ROWS` is scraped as ``ray_ace_ray_rows_total``. A local
Ray exports nothing (`connection.connect`).

Each pass over the pending rows has its own coordinator, so counters start again at 0. Ray soon
drops a gauge that is not set again, so the gauges of a run disappear after its driver has ended.
"""

from __future__ import annotations

from collections import Counter as Count
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ace_ray.pipeline.monitoring.counts import RowReport, Tally

# Time after its last heartbeat for which an engine counts as ready. Heartbeats come every 2 s.
HEARD_S = 30.0

PREFIX = "ace_ray_"
RUN_TAGS = ("run_id", "model")


@dataclass(frozen=True)
class Spec:
    """Definition of one metric. Tags have few values and never name a row."""

    name: str
    kind: Literal["counter", "gauge"]
    description: str
    tags: tuple[str, ...] = ()

    @property
    def scraped(self) -> str:
        """Name under which Prometheus stores the metric."""
        return f"ray_{self.name}{'_total' if self.kind == 'counter' else ''}"


ROWS = Spec(f"{PREFIX}rows", "counter", "Rows evaluated.", ("benchmark", "language", "status"))
TOKENS = Spec(f"{PREFIX}tokens", "counter", "Tokens, prompt and completion.", ("benchmark", "kind"))
STORED = Spec(f"{PREFIX}rows_stored", "counter", "Rows stored.")
DEATHS = Spec(f"{PREFIX}deaths", "counter", "Processes that crashed.", ("process",))
PLANNED = Spec(f"{PREFIX}rows_planned", "gauge", "Rows that this pass evaluates.")
IN_FLIGHT = Spec(f"{PREFIX}rows_in_flight", "gauge", "Rows in flight.")
ENGINES = Spec(f"{PREFIX}engines", "gauge", "Engine workers that are ready.")
STARTING = Spec(f"{PREFIX}engines_starting", "gauge", "Engine workers that are not ready yet.")
REFUSING = Spec(f"{PREFIX}store_refusing", "gauge", "1 while results cannot be stored.")
ACCURACY = Spec(
    f"{PREFIX}accuracy",
    "gauge",
    "Share of this pass's scored rows that are valid; rows come longest first.",
    ("benchmark", "language", "rules"),
)
SPECS = (
    *(ROWS, TOKENS, STORED, DEATHS),
    *(PLANNED, IN_FLIGHT, ENGINES, STARTING, REFUSING, ACCURACY),
)


class Metrics:
    """The metrics of one pass. Create the object in the coordinator's actor, which exports them.

    Args:
        runs: (id, model, number of planned rows) of each run. Counters of rows and tokens have the
            tags ``run_id`` and ``model`` of their run. Other metrics have the tags of the current
            run: the last of ``runs`` of which a row was evaluated.
    """

    def __init__(self, runs: Sequence[tuple[str, str, int]]) -> None:
        from ray.util.metrics import Counter, Gauge

        self._tags = [{"run_id": run_id, "model": model} for run_id, model, _ in runs]
        self._planned = [planned for _, _, planned in runs]
        self._latest = next((n for n, planned in enumerate(self._planned) if planned), 0)
        self._meters: dict[str, Any] = {
            spec.name: (Counter if spec.kind == "counter" else Gauge)(
                spec.name, spec.description, tag_keys=(*RUN_TAGS, *spec.tags)
            )
            for spec in SPECS
        }

    def note(self, report: RowReport) -> None:
        """Count the judged rows of ``report``, their tokens, and the stored rows."""
        ends: Count[tuple[int, str, str, str]] = Count()
        tokens: Count[tuple[int, str, str]] = Count()
        for run, benchmark, language, status, _, prompt, completion in report.judged:
            self._latest = max(self._latest, run)
            ends[run, benchmark, language, status] += 1
            tokens[run, benchmark, "prompt"] += prompt
            tokens[run, benchmark, "completion"] += completion
        for (run, benchmark, language, status), count in ends.items():
            self._count(ROWS, run, count, benchmark=benchmark, language=language, status=status)
        for (run, benchmark, kind), count in tokens.items():
            self._count(TOKENS, run, count, benchmark=benchmark, kind=kind)
        if report.run is not None:
            self._count(STORED, report.run, report.stored)

    def died(self, process: str) -> None:
        self._count(DEATHS, self._latest, 1, process=process)

    def show(self, tally: Tally, *, in_flight: int) -> None:
        """Set the gauges to the values of ``tally``. Call this method repeatedly during the run."""
        self._set(PLANNED, self._planned[self._latest])
        self._set(IN_FLIGHT, in_flight)
        heard = [process for process, silence_s in tally.silent.items() if silence_s < HEARD_S]
        self._set(ENGINES, sum(process.kind == "engine" for process in heard))
        self._set(STARTING, sum(process.kind == "engine" for process in tally.starting))
        self._set(REFUSING, int(bool(tally.notice)))
        for (benchmark, language), shares in tally.accuracies().items():
            for rules, share in shares.items():
                self._set(ACCURACY, share, benchmark=benchmark, language=language, rules=rules)

    def _count(self, spec: Spec, run: int, by: int, **tags: str) -> None:
        if by:  # Ray refuses a step of 0
            self._meters[spec.name].inc(by, {**self._tags[run], **tags})

    def _set(self, spec: Spec, value: float, **tags: str) -> None:
        self._meters[spec.name].set(value, {**self._tags[self._latest], **tags})
