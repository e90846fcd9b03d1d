"""Build publications for trackers from the stored files of a run or sweep. A publication is what
one run of a tracker shows: the metrics of one model, or of all checkpoints of a training."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from pydantic import Field

from ace_ray.benchmarks.comparability import flatten
from ace_ray.benchmarks.headline import titles
from ace_ray.benchmarks.results import Score
from ace_ray.config.schema import validate_tree
from ace_ray.errors import UserError
from ace_ray.integrations.trackers import Point, Publication, Scalar
from ace_ray.reports.sweeps import SweepManifest, read_sweep
from ace_ray.storage.object_store import Store, UnreachableStore
from ace_ray.storage.stored import SUMMARY, StoredRecord
from ace_ray.storage.stored_run import StoredRun
from ace_ray.sweep.ledger import CostRecord
from ace_ray.types import canonical_json, digest
from ace_ray.util import log
from ace_ray.util.sanitizing import join_names

# Maximum characters of a config value. Prompts do not belong in trackers.
_LONGEST = 500


class _StoredScore(StoredRecord):
    name: str
    formula: str
    value: float | None
    interval: list[float] | None = Field(min_length=2, max_length=2)
    n: int
    partial: bool
    missing: list[str]
    of: int = 0


class _StoredScores(StoredRecord):
    scores: dict[str, list[_StoredScore]] = Field(default_factory=dict)


class _TrackedRun(StoredRun):
    """A complete stored run that has scores."""

    def __init__(self, store: Store) -> None:
        """Read the run. Raises `UserError` if ``store`` is not a complete run with scores."""
        super().__init__(store)
        if not self.summary.model_fields_set or not self.is_finished:
            fix = "complete the evaluation, then publish"
            raise UserError("the run is not complete", where=self.uri, fix=fix)
        # (benchmark, rule set) -> scores, the headline first.
        self.scores: dict[tuple[str, str], list[Score]] = {}
        for name, block in self.summary.benchmarks.items():
            location = f"{self.uri}/{SUMMARY}: {name}"
            stored = validate_tree(_StoredScores, block.model_extra or {}, where=location)
            for rules, records in stored.scores.items():
                self.scores[name, rules] = [Score.of_json(r.model_dump()) for r in records]
        if not any(self.scores.values()):
            fix = "write the summary again with ace-ray score"
            raise UserError("the summary has no scores", where=self.uri, fix=fix)
        _ = self.ledger  # names files that cannot be read

    @property
    def key(self) -> str:
        # A run that has grown is a new run in trackers: some refuse to change a parameter.
        times = [self.manifest.tree.get("created_at"), *(g.at for g in self.manifest.grown)]
        return _key(self.manifest.run_id, str(times[-1] or ""))


def publications(store: Store) -> list[Publication]:
    """Return the publications of the run or sweep in ``store``. In a sweep, all checkpoints of a
    training are one publication, and unreadable runs are left out.

    Raises `UserError` if ``store`` is not a run or sweep, cannot be read, or has no results."""
    sweep = read_sweep(store)
    if sweep is None:
        run = _TrackedRun(store)
        return [_publication(run.manifest.run_id, "", run.key, {0: run})]
    if sweep_publications := list(_sweep_publications(store, *sweep)):
        return sweep_publications
    fix = "publish the sweep after one of its runs is complete and has scores"
    raise UserError("no run of the sweep can be published", where=store.root, fix=fix)


def _sweep_publications(
    store: Store, manifest: SweepManifest, lines: Sequence[CostRecord]
) -> Iterator[Publication]:
    # The id is untrusted, and a tracker may use it as a folder's name.
    group = _safe_name(manifest.sweep_id) or "sweep"
    curves: dict[str, list[tuple[CostRecord, _TrackedRun]]] = {}
    for line in lines:
        if line.state != "complete" or not line.run_id:
            continue
        try:
            run = _TrackedRun(store.child(line.run_id))
        except UnreachableStore:
            raise
        except UserError as error:
            log.info(f"{line.label}: not published: {error}")
            continue
        if line.step is None:
            yield _publication(line.label, group, run.key, {0: run})
        else:
            training = PurePosixPath(line.source).parent.name or manifest.sweep_id
            curves.setdefault(training, []).append((line, run))
    for training, curve in curves.items():
        key = _key(f"{manifest.sweep_id}-{training}", manifest.created_at)
        curve.sort(key=lambda part: (part[0].step or 0, part[0].run_id))
        yield _publication(training, group, key, {line.step or 0: run for line, run in curve})


def _publication(name: str, group: str, key: str, runs: Mapping[int, _TrackedRun]) -> Publication:
    """Build one publication. ``runs``: training step -> run of this checkpoint, sorted by step."""
    first, *configs = [_config(run) for run in runs.values()]
    shared = {k: v for k, v in first.items() if all(config.get(k) == v for config in configs)}
    times = {step: run.manifest.created_at.timestamp() for step, run in runs.items()}
    points = [Point(step, _metrics(run), times[step]) for step, run in runs.items()]
    return Publication(key, name, group, shared, _run_texts([*runs.values()][-1]), points)


def _metrics(run: _TrackedRun) -> dict[str, float]:
    """Return the metrics of a run for trackers: name -> value. Shares are in percent."""
    metrics: dict[str, float] = {}
    for (benchmark, rules), scores in run.scores.items():
        for title, score in zip(["headline", *titles(scores)[1:]], scores, strict=False):
            if (estimate := score.estimate) is None:
                continue
            # Partial scores have a separate curve, since they measure something else.
            name = _metric(benchmark, rules, title) + "_partial" * estimate.partial
            values = {name: estimate.value}
            if title == "headline":
                values[f"{name}_low"], values[f"{name}_high"] = estimate.interval
            metrics |= {key: round(100 * share, 4) for key, share in values.items()}
    extra, declared = run.summary.model_extra or {}, run.manifest.declared
    metrics |= {"rows/declared": declared, "rows/not_scored": declared - run.summary.scored}
    for key in ("not_judged", "infra_error", "quarantined", "skipped"):
        if isinstance(extra.get(key), int):
            metrics[f"rows/{key}"] = extra[key]
    return metrics


def _metric(*parts: str) -> str:
    """Join ``parts`` into the name of a metric. Replace characters that some trackers refuse."""
    return "/".join(re.sub(r"[^A-Za-z0-9.-]+", "_", p.lower()).strip("_") or "_" for p in parts)


def _run_texts(run: _TrackedRun) -> dict[str, str]:
    """Return {name: text}: descriptions of the run's headlines, and how the run was limited."""
    words: dict[str, str] = {}
    for (benchmark, rules), scores in run.scores.items():
        if not scores:
            continue
        text, first = titles(scores)[0], scores[0]
        if first.estimate is None:
            text += f": no score, {run.summary.why or 'nothing was scored'}"
        elif first.estimate.partial:
            missing = join_names(first.missing)
            text += f": partial, {f'without {missing}' if missing else 'a sample'}"
        words[_metric(benchmark, rules, "headline_is")] = text
    if (limit := run.manifest.config.limit) is not None:
        words["limited_to"] = str(limit)
    for name, part in run.manifest.restricted.items():
        words[_metric(name, "limited_to")] = part.description
    if run.manifest.config.backend == "fake":
        words["backend"] = "fake; a test of the pipeline, not an evaluation"
    return words


def _config(run: _TrackedRun) -> dict[str, Scalar]:
    """Return {dotted key: value} of all settings that can affect a score, except the rows' hash."""
    manifest = run.manifest
    identity = {k: v for k, v in manifest.tree["identity"].items() if k != "rows"}
    if isinstance(sampling := identity.get("sampling"), list) and len(sampling) == 1:
        identity["sampling"] = sampling[0]
    identity["ace_ray_version"] = manifest.ace_ray_version
    identity["backend"] = manifest.config.backend
    config: dict[str, Scalar] = {}
    for key, text in flatten(identity).items():
        value = _strip_paths(json.loads(text))
        if isinstance(value, list | Mapping):
            value = canonical_json(value)[:_LONGEST]
        if value is not None:
            config[re.sub(r"[^A-Za-z0-9_.-]", "_", key)[:100]] = value
    model = manifest.model
    source = model.adapter.source if model.adapter else model.source
    return {**config, "model": PurePosixPath(source).name or source}


def _strip_paths(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _strip_paths(child) for name, child in value.items()}
    if isinstance(value, list):
        return [_strip_paths(child) for child in value]
    if not isinstance(value, str):
        return value
    # Only the last part of a local path means something on other machines.
    is_local = value.startswith(("/", "~", "file:"))
    return PurePosixPath(value).name or value if is_local else value[:_LONGEST]


def _key(name: str, created: str) -> str:
    """Return the tracker key of a run. A new run with the same name gets a new key."""
    return f"{_safe_name(name)}-{digest(name, created)[:8]}"


def _safe_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:100].strip("-.")
