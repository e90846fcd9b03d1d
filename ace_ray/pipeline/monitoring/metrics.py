"""Prometheus metrics of a run: the coordinator's tally, exported by Ray.

Every node of a cluster serves the metrics of its processes. Ray puts ``ray_`` before each name and
``_total`` after the name of a counter, so `rows` is scraped as ``ray_ace_ray_rows_total``. A local
Ray exports nothing (`connection.connect`).

Each pass over the pending rows has its own coordinator, so counters start again at 0. Ray soon
drops a gauge that is not set again, so a run's gauges disappear after its driver has ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ace_ray.pipeline.monitoring.tally import RowReport, Tally

# Time after its last heartbeat for which an engine counts as ready. Heartbeats come every 2 s.
HEARD_S = 30.0

PREFIX = "ace_ray_"

# Name -> description and tags. Tags have few values and never name a row.
COUNTERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "rows": ("Rows evaluated.", ("benchmark", "language", "status")),
    "tokens": ("Tokens, prompt and completion.", ("benchmark", "kind")),
    "rows_stored": ("Rows stored.", ()),
    "deaths": ("Processes that crashed.", ("process",)),
}
GAUGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "rows_planned": ("Rows that this pass evaluates.", ()),
    "rows_in_flight": ("Rows in flight.", ()),
    "engines": ("Engine workers that are ready.", ()),
    "engines_starting": ("Engine workers that are not ready yet.", ()),
    "store_refusing": ("1 while results cannot be stored.", ()),
    "accuracy": (
        "Share of this pass's scored rows that are valid; rows come longest first.",
        ("benchmark", "language", "rules"),
    ),
}


class Metrics:
    """The metrics of one pass. Create the object in the coordinator's actor, which exports them.

    Args:
        runs: (id, model, number of planned rows) of each run. Counters of rows and tokens have the
            tags ``run_id`` and ``model`` of their run. Other metrics have the tags of the current
            run: the last of ``runs`` of which a row was evaluated."""

    def __init__(self, runs: Sequence[tuple[str, str, int]]) -> None:
        from ray.util.metrics import Counter, Gauge

        self._tags = [{"run_id": run_id, "model": model} for run_id, model, _ in runs]
        self._planned = [planned for _, _, planned in runs]
        self._latest = next((n for n, planned in enumerate(self._planned) if planned), 0)
        self._meters: dict[str, Any] = {
            name: meter(PREFIX + name, description, tag_keys=("run_id", "model", *tags))
            for meter, definitions in ((Counter, COUNTERS), (Gauge, GAUGES))
            for name, (description, tags) in definitions.items()
        }

    def note(self, report: RowReport) -> None:
        """Count the judged rows of ``report``, their tokens, and the stored rows."""
        for run, benchmark, language, status, _, *tokens in report.judged:
            self._latest = max(self._latest, run)
            self._count("rows", run, 1, benchmark=benchmark, language=language, status=status)
            for kind, count in zip(("prompt", "completion"), tokens, strict=True):
                self._count("tokens", run, count, benchmark=benchmark, kind=kind)
        if report.run is not None:
            self._count("rows_stored", report.run, report.stored)

    def count_death(self, process: str) -> None:
        self._count("deaths", self._latest, 1, process=process)

    def show(self, tally: Tally, *, in_flight: int) -> None:
        """Set the gauges to the values of ``tally``. Ray drops gauges that are not set again."""
        self._set("rows_planned", self._planned[self._latest])
        self._set("rows_in_flight", in_flight)
        heard = [process for process, silence_s in tally.silent.items() if silence_s < HEARD_S]
        self._set("engines", sum(process.kind == "engine" for process in heard))
        self._set("engines_starting", sum(process.kind == "engine" for process in tally.starting))
        self._set("store_refusing", int(bool(tally.notice)))
        for (benchmark, language), shares in tally.accuracies().items():
            for rules, share in shares.items():
                self._set("accuracy", share, benchmark=benchmark, language=language, rules=rules)

    def _count(self, name: str, run: int, by: int, **tags: str) -> None:
        if by:  # Ray refuses a step of 0
            self._meters[name].inc(by, {**self._tags[run], **tags})

    def _set(self, name: str, value: float, **tags: str) -> None:
        self._meters[name].set(value, {**self._tags[self._latest], **tags})
