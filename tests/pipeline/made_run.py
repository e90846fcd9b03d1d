"""Rows and plans as `evaluate` makes them, without an engine."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from ace_ray.config.schema import RunConfig
from ace_ray.models.sources import ModelRef
from ace_ray.pipeline.actors.judging import judged
from ace_ray.pipeline.planning.plan import Plan, make_manifest, make_plan
from ace_ray.pipeline.planning.preflight import make_benchmarks
from ace_ray.pipeline.summary import as_json
from ace_ray.storage.object_store import LocalStore
from ace_ray.storage.parts import write_parts
from ace_ray.storage.rows import ROWS, entry_columns, episode_columns
from ace_ray.storage.stored import MANIFEST
from ace_ray.types import Entry, Episode

CATEGORIES = ["normal_atom_bool", "special_incomplete"]


def made_row(row_id: str, episode: Episode, **columns: Any) -> dict[str, Any]:
    """A scored row without its verdicts."""
    return {
        "row_id": row_id,
        "run_id": "run",
        "sample": 0,
        "repeat": 0,
        "seed": 0,
        "status": "scored",
        "error_class": None,
        "error": None,
        "attempts": 1,
        **episode_columns(episode),
        "started_at": datetime(2026, 1, 1, tzinfo=UTC),
        "duration_s": 0.5,
        "worker": "host:1",
        **columns,
    }


def planned_run(folder: Path, model: ModelRef, *, samples: int = 1) -> Plan:
    """Eight ACEBench entries; ``folder`` is the run's."""
    tree = {
        "model": {"source": model.source},
        "backend": "fake",
        "benchmarks": [{"name": "acebench", "languages": ["en"], "categories": CATEGORIES}],
        "samples": samples,
        "output": str(folder.parent),
        "run_id": folder.name,
    }
    config = RunConfig.model_validate(tree)
    return make_plan(config, model, make_benchmarks(config))


def judged_rows(plan: Plan, episode_of: Callable[[int, Entry], Episode]) -> list[dict[str, Any]]:
    """The rows of ``plan`` with these episodes, by number and entry, and their verdicts."""
    rows = []
    for number, planned in enumerate(pa.table(plan.rows.columns()).to_pylist()):
        entry = plan.entries[planned["entry"]]
        row = made_row(
            planned["row_id"].decode(),
            episode_of(number, entry),
            run_id=plan.run_id,
            model="fake",
            **entry_columns(entry),
            sample=planned["sample"],
            repeat=planned["repeat"],
            seed=planned["sample"],
        )
        rows.append(judged(row, entry, plan.benchmarks[entry.benchmark]))
    return rows


def written_run(
    folder: Path, episode_of: Callable[[int, Entry], Episode], *, samples: int = 1
) -> list[dict[str, Any]]:
    """A run of eight ACEBench entries in ``folder``, as far as its rows; returns them."""
    plan = planned_run(folder, ModelRef("fake", "fake", "fake", "fake"), samples=samples)
    rows = judged_rows(plan, episode_of)
    store = LocalStore(plan.uri)
    store.put(MANIFEST, as_json(make_manifest(plan, {})))
    table = pa.Table.from_pylist(rows, schema=ROWS)
    write_parts(store, "00000000000001-aa", table)
    return rows
