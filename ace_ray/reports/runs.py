"""Read runs for a report: the manifest and every stored row. Group the runs by benchmark."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.comparability import difference_lines, flatten
from ace_ray.benchmarks.diagnosis import diagnose
from ace_ray.benchmarks.headline import DIVERGED, headline_score, scores_of
from ace_ray.benchmarks.registry import class_of
from ace_ray.benchmarks.results import BenchmarkResult, Score
from ace_ray.config.schema import ENDPOINT, EXTERNAL
from ace_ray.errors import UserError
from ace_ray.models.endpoint_engine import UNKNOWN
from ace_ray.pipeline.summary import summarize
from ace_ray.reports.table import cell
from ace_ray.storage.object_store import Store, open_store
from ace_ray.storage.stored import SUCCESS, versions_line
from ace_ray.storage.stored_run import StoredRun
from ace_ray.types import ResultRow, Sampling, digest
from ace_ray.util.grouping import grouped
from ace_ray.util.sanitizing import join_names, one_line

Summarize = Callable[[Iterable[ResultRow], float], dict[str, Any]]

_OF_THE_CANDIDATE = (
    *("model", "adapter", "chat_template_kwargs", "reasoning_parser", "tool_parser", "engine"),
    *("chat_template_sha256", "plugins", "start_date", "format", "replay_reasoning", "endpoint"),
)
_STEP = re.compile(
    r"(?:^|[^A-Za-z])(?:global_step|step|checkpoint|ckpt|iter)[-_=]?(\d{1,12})$", re.IGNORECASE
)
# Kind of a role that the candidate plays itself (`ace_ray.pipeline.roles.role_identity`), and the
# keys in the identity of such a role that name the candidate.
_SAME, _CANDIDATE_ROLE = "same", ("model", "revision", "adapter")


class ScoredRun(StoredRun):
    """A stored run in a report. A model whose name ends with a step is a checkpoint."""

    def __init__(self, store: Store) -> None:
        """Open the run in ``store``. Raises `UserError` when ``store`` is not a run."""
        super().__init__(store)
        self.across: Collection[str] = ()  # conditions that may differ: none or sampling
        self.step: int | None = None  # training step of a checkpoint
        self.training = ""  # name of the training that produced the checkpoint
        trained = self.manifest.model.adapter or self.manifest.model
        name = PurePosixPath(trained.source).name if self.manifest.model.adapter else self.model
        if match := _STEP.search(name):
            parents = [part for part in trained.source.split("/")[:-1] if part]
            self.step = int(match[1])
            self.training = one_line(name[: match.start()].rstrip("-_=. ") or [name, *parents][-1])

    @cached_property
    def totals(self) -> dict[str, Any]:
        """Result of `ace_ray.pipeline.summary.summarize`. Raises `UserError` without rows."""
        timing = self.summary.timing.model_dump(exclude_unset=True)
        totals = summarize(self.manifest.tree, {}, lambda: self.rows, timing)
        if self.stopped_early:
            why = self.summary.why or "it was checked and is incomplete"
            totals |= {"headline": False, "why": why}
        return totals

    @property
    def checkers(self) -> str:
        """Versions of ace_ray whose checkers gave the verdicts."""
        if self.summary.rescored:
            return self.summary.rescored.ace_ray_version
        versions = self.manifest.mixed_versions.get("ace_ray", [self.manifest.ace_ray_version])
        return " and ".join(versions[:10])

    @property
    def device_s(self) -> float:
        """Seconds of all devices over all sessions; 0 if unknown."""
        return sum((self.summary.timing.device_s or {}).values())

    @property
    def stopped_early(self) -> bool:
        """Whether early stopping has compared the run, which is not complete. Then the size of the
        sample is not fixed."""
        early = self.manifest.tree.get("early")
        return not self.is_finished and isinstance(early, dict) and bool(early.get("looked"))

    @property
    def model(self) -> str:
        """Short name of the model, as in run ids."""
        model = self.manifest.model
        base = PurePosixPath(model.source).name.removesuffix(".gguf") or model.source
        return f"{base}+{PurePosixPath(model.adapter.source).name}" if model.adapter else base

    @cached_property
    def benchmarks(self) -> list[str]:
        return list(self.manifest.identity.benchmarks)

    @property
    def missing_parts(self) -> str:
        """Missing parts of the run, as text; "" when every declared row has a verdict."""
        keys = ("not_judged", "infra_error", "quarantined", "skipped", "missing")
        if lacks := [f"{self.totals[key]} {key}" for key in keys if self.totals.get(key)]:
            return f"of {self.totals['declared']} rows " + ", ".join(lacks)
        return "" if self.is_finished else f"{SUCCESS} is missing, run it again"

    def summary_of(self, benchmark: str, summarize_rows: Summarize) -> BenchmarkResult:
        """Summarize one benchmark of this run from its rows."""
        rows = self.rows_of(benchmark)
        return BenchmarkResult(
            label=self.label,
            model=self.model,
            candidate=flatten(self._identity(of_the_candidate=True), depth=2),
            identity=self.manifest.identity.benchmarks[benchmark],
            conditions=self.conditions(benchmark),
            parameters=self.manifest.model.parameters,
            summary=summarize_rows(rows, self.manifest.config.max_unscored_fraction),
            plays=[r for r, part in self._roles(benchmark).items() if part.get("kind") == _SAME],
            headline=self.totals["headline"],
            partial=self.manifest.restriction(benchmark).ids is not None,
            incomplete=self.missing_parts,
            step=self.step,
            limited=bool(self.manifest.restriction(benchmark).description),
        )

    def conditions(self, benchmark: str) -> dict[str, str]:
        """Return all conditions that can affect a score as JSON by dotted key, except properties of
        the candidate."""
        # A role that the candidate plays has at most the candidate's `max_tokens`.
        identity, own_keys = self.manifest.identity, (*_CANDIDATE_ROLE, *self.across)
        keys = {row.key for row in self.rows_of(benchmark)}
        return flatten(
            {
                **identity.benchmarks[benchmark],
                "entries": f"{len(keys)} ({digest(sorted(keys))[:8]})",
                "samples": len(identity.sampling),
                "sampling": {} if self.across else identity.sampling[0].model_dump(),
                **self._identity(of_the_candidate=False),
                "roles": {
                    role: {k: v for k, v in part.items() if k not in hidden}
                    for role, part in self._roles(benchmark).items()
                    for hidden in [own_keys if part.get("kind") == _SAME else ()]
                },
            }
        )

    def _roles(self, benchmark: str) -> dict[str, dict[str, Any]]:
        """Map each role in episodes of ``benchmark`` to the identity of the model that plays it."""
        return self.manifest.identity.roles.get(benchmark, {})

    def _identity(self, *, of_the_candidate: bool) -> dict[str, Any]:
        extra = (self.manifest.identity.model_extra or {}).items()
        # `rows` is a hash of the planned rows, which depends on the model.
        names = {
            k for k, _ in extra if k != "rows" and (k in _OF_THE_CANDIDATE) == of_the_candidate
        }
        return {key: value for key, value in extra if key in names}


def load_runs(uris: Sequence[str], opens: Callable[[str], Store] = open_store) -> list[ScoredRun]:
    """Read the runs at ``uris`` (folders or S3 prefixes) as `read_runs` does."""
    return read_runs([opens(uri) for uri in uris])


def read_runs(stores: Sequence[Store]) -> list[ScoredRun]:
    """Read runs, and label each as in its sweep or with its model; also with its run id if another
    run has the same label. Raises `UserError` when a store is not a run, has no rows, or is named
    twice."""
    runs: list[ScoredRun] = []
    for store in stores:
        run = ScoredRun(store)
        if any(run.uri == r.uri for r in runs):
            raise UserError("is named twice", where=run.uri, fix="name each run once")
        _ = run.totals  # raises if no row can be read
        runs.append(run)
    names = (
        lambda run: run.manifest.label or run.model,
        lambda run: f"{run.manifest.label or run.model} ({run.manifest.run_id})",
        lambda run: f"{run.manifest.label or run.model} ({run.uri})",
    )
    for run in runs:
        label = next(
            (n(run) for n in names if sum(n(run) == n(r) for r in runs) == 1), names[-1](run)
        )
        run.label = one_line(label)
    return runs


def across_line(runs: Sequence[ScoredRun]) -> str:
    """Return the line on the sampling in which ``runs`` differ if `ScoredRun.across` allows it, or
    ""."""

    def sampling(run: ScoredRun) -> dict[str, str]:
        values = asdict(Sampling()) | run.manifest.identity.sampling[0].model_dump()
        roles = [pair for bound in run.manifest.identity.roles.values() for pair in bound.items()]
        values |= {role: part.get("sampling") for role, part in roles if part.get("kind") == _SAME}
        return flatten({key: value for key, value in values.items() if key != "seeds"})

    parts = [line[2:] for line in difference_lines("", [r for r in runs if r.across], sampling)]
    return f"the runs differ in sampling: {' | '.join(parts)}" if parts else ""


@dataclass(frozen=True)
class BenchmarkRuns:
    """The runs that contain one benchmark, and their summaries in the same order."""

    benchmark: str
    reporting: type[Benchmark]  # with the rule sets that all runs share
    runs: Sequence[ScoredRun]
    reported: Sequence[BenchmarkResult]

    @property
    def scores(self) -> list[dict[str, list[Score]]]:
        """Scores of each run by rule set, as in its summary. If too many rows of the run lack a
        verdict, each score's ``estimate`` is None."""
        return [
            scores_of(self.reporting, run.summary, headline=run.headline, partial=run.partial)
            for run in self.reported
        ]


def group_runs(runs: Sequence[ScoredRun]) -> list[BenchmarkRuns]:
    """Group the runs by benchmark, in the order of their manifests."""
    groups = []
    for name in dict.fromkeys(name for run in runs for name in run.benchmarks):
        holders = [run for run in runs if name in run.benchmarks]
        reporting = class_of(name, *(run.manifest for run in holders))
        reported = [run.summary_of(name, reporting.statistics) for run in holders]
        groups.append(BenchmarkRuns(name, reporting, holders, reported))
    return groups


def facts(runs: Sequence[ScoredRun], benchmark: str) -> Iterator[str]:
    """Yield notes that limit what a run's scores mean, for example that its backend is fake."""
    fact_pairs = [(run.label, fact) for run in runs for fact in _facts(run, benchmark)]
    return merge_facts(fact_pairs, len(runs))


def _facts(run: ScoredRun, benchmark: str) -> Iterator[str]:
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
    yield from map(str, run.manifest.grown)
    if words := run.manifest.restriction(benchmark).description:
        yield f"limited to {words}: a sample of the benchmark, not its score"
    rows = run.rows_of(benchmark)
    for finding in diagnose(rows):
        yield finding["text"]
    yield from diverged_line(run, benchmark)
    block = run.summary.benchmarks.get(benchmark)
    if block is not None and block.comparable:
        yield block.comparable


def diverged_line(run: ScoredRun, benchmark: str) -> Iterator[str]:
    """If rows of ``run`` diverged when ``reread`` parsed their answers, yield a line with the
    headlines that result if all these rows are wrong, or all right."""
    rows = run.rows_of(benchmark)
    if diverged := sum(row.error_class == DIVERGED for row in rows):
        reporting = class_of(benchmark, run.manifest)
        low, high = (headline_score(reporting, rows, diverged=right) for right in (False, True))
        yield (
            f"{diverged} episodes diverged when their answers were read again; with all of them "
            f"wrong, {low.name} is {cell(low.estimate)}, with all of them right "
            f"{cell(high.estimate)}"
        )


def endpoint_notes(facts: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield notes on the answers of an endpoint, from the summary of a run."""
    if facts is None:
        return
    models, fingerprints = facts["models"], facts["fingerprints"]
    if len(models) > 1:
        yield f"THE ENDPOINT CHANGED ITS MODEL within the run: {_join_counts(models)}"
    if not models:
        yield "the endpoint does not report which model answered"
    if len(fingerprints) > 1:
        counts = _join_counts(fingerprints)
        yield f"answers came from {len(fingerprints)} system fingerprints: {counts}"
    if calls := facts["calls_without_usage"]:
        yield f"{calls} answers had no usage data: the tokens of their rows are unknown"


def _join_counts(names: Mapping[str, int]) -> str:
    ordered = sorted(names.items(), key=lambda pair: (-pair[1], pair[0]))
    return join_names([f"{name[:80]} ({count} answers)" for name, count in ordered], 5)


def merge_facts(facts: Iterable[tuple[str, str]], runs: int) -> Iterator[str]:
    """Yield a line for each distinct fact, with the labels of the runs that have the fact.
    ``facts``: (label, fact). ``runs``: number of all runs; for a single run, labels are omitted."""
    for fact, labels in grouped((fact, label) for label, fact in facts).items():
        every = "both runs" if runs == 2 else f"all {runs} runs"
        who = every if len(labels) == runs else ", ".join(labels)
        yield fact if runs == 1 else f"{who}: {fact}"
