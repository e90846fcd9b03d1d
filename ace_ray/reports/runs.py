"""Read runs for a report: the manifest and every stored row. Group the runs by benchmark."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.conditions import flattened
from ace_ray.benchmarks.diagnosis import diagnose
from ace_ray.benchmarks.headline import DIVERGED, headline_score
from ace_ray.benchmarks.registry import recorded_class
from ace_ray.benchmarks.results import ReportedRun
from ace_ray.config.schema import ENDPOINT, EXTERNAL
from ace_ray.errors import UserError
from ace_ray.models.endpoint_engine import UNKNOWN
from ace_ray.pipeline.summary import summarize
from ace_ray.reports.printed_summary import endpoint_notes
from ace_ray.reports.table import cell
from ace_ray.storage.object_store import Store, open_store
from ace_ray.storage.parts import Ledger, no_rows, stored_rows
from ace_ray.storage.rows import rows_of
from ace_ray.storage.stored import (
    SUCCESS,
    Manifest,
    Summary,
    read_manifest,
    read_summary,
    versions_line,
)
from ace_ray.types import ResultRow, digest
from ace_ray.util.sanitizing import one_line

Summarize = Callable[[Iterable[ResultRow], float], dict[str, Any]]

_OF_THE_CANDIDATE = (
    "model",
    "adapter",
    "chat_template_kwargs",
    "reasoning_parser",
    "tool_parser",
    "chat_template_sha256",
    "plugins",
    "start_date",
    "format",
    "replay_reasoning",
    "engine",
    "endpoint",
)
_STEP = re.compile(
    r"(?:^|[^A-Za-z])(?:global_step|step|checkpoint|ckpt|iter)[-_=]?(\d{1,12})$", re.IGNORECASE
)
# Kind of a role that the candidate plays itself (`ace_ray.models.roles.role_identity`).
_SAME = "same"


@dataclass(repr=False)
class Run:
    """A stored run. ``totals``: the result of `ace_ray.pipeline.summary.summarize`."""

    uri: str
    manifest: Manifest
    rows: list[ResultRow]
    ledger: Ledger
    """Index of the stored rows, from which further columns can be read."""
    totals: dict[str, Any]
    finished: bool
    comparable: dict[str, str]
    """Benchmark -> sentence that names published numbers to compare with."""
    judged_by: str
    """Versions of ace_ray whose checkers gave the verdicts."""
    engines: list[dict[str, Any]] = field(default_factory=list)
    """Facts that the engines reported, such as versions. Equal sets of facts are listed once."""
    device_s: float = 0.0
    """Seconds of all devices over all sessions; 0 if unknown."""
    stopped_early: bool = False
    """Whether early stopping has computed the run's comparison and the run is not complete."""
    label: str = ""
    step: int | None = None
    """Training step of a checkpoint."""
    training: str = ""
    """Name of the training that produced the checkpoint; "" for other models."""

    def __repr__(self) -> str:
        return f"<Run {one_line(self.label)}: {len(self.rows)} of {self.manifest.declared} rows>"

    @property
    def model(self) -> str:
        """Short name of the model, as in run ids."""
        model = self.manifest.model
        base = _last(model.source).removesuffix(".gguf") or model.source
        return f"{base}+{_last(model.adapter.source)}" if model.adapter else base

    @cached_property
    def benchmarks(self) -> list[str]:
        return list(self.manifest.identity.benchmarks)

    @property
    def incomplete(self) -> str:
        """Missing parts of the run, as text; "" when every declared row has a verdict."""
        lacks = [
            f"{self.totals[key]} {key}"
            for key in ("not_judged", "infra_error", "quarantined", "skipped", "missing")
            if self.totals.get(key)
        ]
        if lacks:
            return f"of {self.totals['declared']} rows " + ", ".join(lacks)
        return "" if self.finished else f"{SUCCESS} is missing, run it again"

    def reported(self, benchmark: str, summarize_rows: Summarize) -> ReportedRun:
        """Summarize one benchmark of this run from its rows."""
        rows = self.rows_of(benchmark)
        described = self.manifest.identity.benchmarks[benchmark]
        return ReportedRun(
            label=self.label,
            model=self.model,
            candidate=flattened(self._identity(of_the_candidate=True), depth=2),
            identity=described,
            conditions=self.conditions(benchmark),
            parameters=self.manifest.model.parameters,
            summary=summarize_rows(rows, self.manifest.config.max_unscored),
            plays=[r for r, part in self._roles(benchmark).items() if part.get("kind") == _SAME],
            headline=self.totals["headline"],
            partial=self.manifest.restriction(benchmark).ids is not None,
            incomplete=self.incomplete,
            step=self.step,
            limited=bool(self.manifest.restriction(benchmark).words),
        )

    def rows_of(self, benchmark: str) -> list[ResultRow]:
        """Return the rows of ``benchmark``, without the repeats that `repeats_of` returns."""
        return [row for row in self.rows if row.benchmark == benchmark and not row.repeat]

    def repeats_of(self, benchmark: str) -> list[ResultRow]:
        """Return the rows that were generated again to measure noise. They do not affect scores."""
        return [row for row in self.rows if row.benchmark == benchmark and row.repeat]

    def stored(self, rows: Sequence[ResultRow], columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Read ``row_id`` and ``columns`` of ``rows``. Rows that no longer exist are left out.

        Raises `UserError` if a part cannot be read."""
        ids = np.sort(np.array([row.row_id for row in rows], dtype="S32"))
        for table in self.ledger.tables(["row_id", *columns], ids) if rows else ():
            yield from rows_of(table)

    def conditions(self, benchmark: str) -> dict[str, str]:
        """Return all conditions that can affect a score, except properties of the candidate. Keys
        are dotted, values are JSON."""
        identity = self.manifest.identity
        keys = {(row.language, row.category, row.id) for row in self.rows_of(benchmark)}
        return flattened(
            {
                **identity.benchmarks[benchmark],
                "entries": f"{len(keys)} ({digest(sorted(keys))[:8]})",
                "samples": len(identity.sampling),
                "sampling": identity.sampling[0].model_dump(),
                **self._identity(of_the_candidate=False),
                "roles": {
                    role: _without_the_candidate(part) if part.get("kind") == _SAME else part
                    for role, part in self._roles(benchmark).items()
                },
            }
        )

    def _roles(self, benchmark: str) -> dict[str, dict[str, Any]]:
        """Map each role in episodes of ``benchmark`` to the identity of the model that plays it."""
        return self.manifest.identity.roles.get(benchmark, {})

    def _identity(self, *, of_the_candidate: bool) -> dict[str, Any]:
        extra = self.manifest.identity.model_extra or {}
        return {
            key: value
            for key, value in extra.items()
            # `rows` is a hash of the planned rows, which depends on the model.
            if key != "rows" and (key in _OF_THE_CANDIDATE) == of_the_candidate
        }


def _without_the_candidate(part: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in part.items() if k not in ("model", "revision", "adapter")}


def _last(source: str) -> str:
    return source.rstrip("/").rsplit("/", 1)[-1]


def load_runs(uris: Sequence[str], opens: Callable[[str], Store] = open_store) -> list[Run]:
    """Read the runs at ``uris`` (folders or S3 prefixes) as `read_runs` does."""
    return read_runs([opens(uri) for uri in uris])


def read_runs(stores: Sequence[Store]) -> list[Run]:
    """Read runs and label each with its model, and its run id if another run has the same model.
    Raises `UserError`: a store is not a run, has no rows, or is named twice."""
    runs: list[Run] = []
    for store in stores:
        run = read_run(store)
        if any(run.uri == other.uri for other in runs):
            raise UserError("is named twice", where=run.uri, fix="name each run once")
        runs.append(run)
    names = (
        lambda run: run.model,
        lambda run: f"{run.model} ({run.manifest.run_id})",
        lambda run: f"{run.model} ({run.uri})",
    )
    for run in runs:
        label = next(
            (n(run) for n in names if sum(n(run) == n(other) for other in runs) == 1),
            names[-1](run),
        )
        run.label = one_line(label)
    return runs


def read_run(store: Store) -> Run:
    """Read the run in ``store``. A model whose name ends with a step is a checkpoint. Raises
    `UserError`: ``store`` is not a run, or the run has no rows."""
    manifest = read_manifest(store)
    summary = read_summary(store) or Summary()
    ledger = stored_rows(store, manifest)
    rows = list(ledger.rows())
    if not rows:
        raise no_rows(ledger, "evaluate it, then report")
    judged = manifest.mixed_versions.get("ace_ray", [manifest.ace_ray_version])
    judged_by = summary.rescored.ace_ray_version if summary.rescored else " and ".join(judged[:10])
    early = manifest.tree.get("early")
    looked = isinstance(early, dict) and bool(early.get("looked"))
    run = Run(
        uri=store.root,
        manifest=manifest,
        rows=rows,
        ledger=ledger,
        totals=summarize(
            manifest.tree, {}, lambda: rows, summary.timing.model_dump(exclude_unset=True)
        ),
        finished=store.get(SUCCESS) is not None,
        comparable={n: b.comparable for n, b in summary.benchmarks.items() if b.comparable},
        engines=summary.timing.engines or [],
        judged_by=judged_by,
        device_s=sum((summary.timing.device_s or {}).values()),
        # After early stopping has evaluated the comparison, the sample size is not fixed.
        stopped_early=store.get(SUCCESS) is None and looked,
    )
    if run.stopped_early:
        run.totals |= {"headline": False, "why": summary.why or "it was checked and is incomplete"}
    trained = manifest.model.adapter or manifest.model
    name = _last(trained.source) if manifest.model.adapter else run.model
    if match := _STEP.search(name):
        parents = [part for part in trained.source.split("/")[:-1] if part]
        run.step = int(match[1])
        run.training = one_line(name[: match.start()].rstrip("-_=. ") or [name, *parents][-1])
    return run


@dataclass(frozen=True)
class BenchmarkRuns:
    """One benchmark, the runs that contain it, and their summaries in the same order."""

    benchmark: str
    reporting: type[Benchmark]
    """Class of the benchmark, or a default class, with the rule sets that all runs share."""
    runs: Sequence[Run]
    reported: Sequence[ReportedRun]


def by_benchmark(runs: Sequence[Run]) -> list[BenchmarkRuns]:
    """Group the runs by benchmark, in the order of their manifests."""
    groups = []
    for name in dict.fromkeys(name for run in runs for name in run.benchmarks):
        holders = [run for run in runs if name in run.benchmarks]
        reporting = class_of(name, holders)
        reported = [run.reported(name, reporting.statistics) for run in holders]
        groups.append(BenchmarkRuns(name, reporting, holders, reported))
    return groups


def class_of(name: str, runs: Sequence[Run]) -> type[Benchmark]:
    """Return the class of the benchmark ``name``, with the rule sets and groups that the runs
    share."""
    first, *others = (run.manifest.rule_sets_of(name) for run in runs)
    rule_sets = tuple(rules for rules in first if all(rules in other for other in others))
    groups, *more = (run.manifest.groups.get(name, {}) for run in runs)
    shared = {
        key: members for key, members in groups.items() if all(g.get(key) == members for g in more)
    }
    return recorded_class(name, rule_sets, shared)


def facts(runs: Sequence[Run], benchmark: str) -> Iterator[str]:
    """Yield notes that limit what a run's scores mean, for example that its backend is fake."""
    found = [(run.label, fact) for run in runs for fact in _facts(run, benchmark)]
    return said_once(found, len(runs))


def _facts(run: Run, benchmark: str) -> Iterator[str]:
    if run.manifest.config.backend == "fake":
        yield "backend fake; a test of the pipeline, not an evaluation"
    if run.manifest.config.backend == EXTERNAL:
        yield "external outputs; how the model was prompted is not recorded"
    if run.manifest.config.backend == ENDPOINT:
        unknown = ", ".join((run.manifest.model.model_extra or {}).get("unknown") or UNKNOWN)
        yield f"behind an endpoint; unknown for its model: {unknown}"
        yield from endpoint_notes(run.totals.get("endpoint"))
    if again := run.manifest.reread:
        yield f"answers of {again.get('run_id')}, read again with {again.get('reader')}"
    if mixed := versions_line(run.manifest.mixed_versions):
        yield mixed
    if words := run.manifest.restriction(benchmark).words:
        yield f"limited to {words}: a sample of the benchmark, not its score"
    rows = run.rows_of(benchmark)
    for finding in diagnose(rows):
        yield finding["text"]
    if diverged := sum(row.error_class == DIVERGED for row in rows):
        reporting = class_of(benchmark, [run])
        low, high = (headline_score(reporting, rows, diverged=one) for one in (False, True))
        yield (
            f"{diverged} episodes diverged when their answers were read again; with all of them "
            f"wrong, {low.name} is {cell(low.estimate)}, with all of them right "
            f"{cell(high.estimate)}"
        )
    if benchmark in run.comparable:
        yield run.comparable[benchmark]


def said_once(facts: Iterable[tuple[str, str]], runs: int) -> Iterator[str]:
    """Yield a line for each distinct fact, with the labels of the runs that have it.

    ``facts``: (label, fact). ``runs``: number of all runs; for a single run, labels are omitted.
    """
    labels: dict[str, list[str]] = {}
    for label, fact in facts:
        labels.setdefault(fact, []).append(label)
    for fact, of in labels.items():
        every = "both runs" if runs == 2 else f"all {runs} runs"
        who = every if len(of) == runs else ", ".join(of)
        yield fact if runs == 1 else f"{who}: {fact}"
