"""The gold answers of runs, from the data that they were made with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.dataset import data_hash
from ace_ray.benchmarks.registry import is_local
from ace_ray.config import RunConfig, validated
from ace_ray.errors import UserError
from ace_ray.records import canonical_json
from ace_ray.report.runs import Run
from ace_ray.run.planning.preflight import make_benchmarks
from ace_ray.run.storage.stored import MANIFEST

Key = tuple[str, str, str, str]
"""Benchmark, language, category, id."""


class GoldAnswers:
    """Looked up in the data that a run's manifest names, which is read once for runs that share it.

    Data that is not here, or not what the run was made with, is no failure of a report: `missing`
    says so.
    """

    def __init__(self, runs: Sequence[Run]) -> None:
        self._found: dict[str, Mapping[Key, Any]] = {}
        self.missing: dict[str, str] = {}
        """Label of a run -> why its gold answers are not at hand."""
        read: dict[str, Mapping[Key, Any] | UserError] = {}
        for run in runs:
            same = canonical_json(
                [run.manifest.tree["config"].get("benchmarks"), run.manifest.entries]
            )
            if same not in read:
                read[same] = _read(run)
            found = read[same]
            if isinstance(found, UserError):
                self.missing[run.label] = str(found)
            else:
                self._found[run.label] = found

    def of(self, run: str, key: Key) -> tuple[Any] | None:
        """The gold answer of an entry in a 1-tuple, None where it is not at hand."""
        found = self._found.get(run, {})
        return (found[key],) if key in found else None


def _read(run: Run) -> Mapping[Key, Any] | UserError:
    where = f"{run.uri}/{MANIFEST}"
    gold: dict[Key, Any] = {}
    try:
        config = validated(RunConfig, run.manifest.tree["config"], where=where)
        for section in config.benchmarks:
            if is_local(section.name):
                return UserError(f"{section.name} is code that only the run names", where=where)
        for benchmark in make_benchmarks(config):
            entries = benchmark.dataset()
            theirs = run.manifest.entries.get(benchmark.name)
            if theirs is not None and theirs != data_hash(entries):
                return UserError(
                    f"the data of {benchmark.name} here is not what the run was made with",
                    where=where,
                )
            gold |= {(benchmark.name, e.language, e.category, e.id): e.gold for e in entries}
    except UserError as error:
        return error
    return gold
