"""Rows, plans and run folders as `evaluate` makes them, without an engine."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from ace_ray.benchmarks.acebench.gold import render_gold
from ace_ray.config.schema import RunConfig
from ace_ray.models.sources import ModelRef
from ace_ray.pipeline.actors.verdicts import judge_row
from ace_ray.pipeline.planning.manifest import make_manifest
from ace_ray.pipeline.planning.plan import Plan, make_plan
from ace_ray.pipeline.planning.preflight import make_benchmarks
from ace_ray.storage.object_store import LocalStore
from ace_ray.storage.parts import write_parts
from ace_ray.storage.rows import ROWS, entry_columns, episode_columns
from ace_ray.storage.stored import MANIFEST, as_json
from ace_ray.types import Entry, Episode

CATEGORIES = ["normal_atom_bool", "special_incomplete"]
QUESTION = [{"role": "user", "content": "q"}]


def made_row(row_id: str, episode: Episode, **columns: Any) -> dict[str, Any]:
    """Return a scored row without its verdicts."""
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


def answered(number: int, entry: Entry) -> Episode:
    """Return the right answer of an entry; for entry 0, a wrong one."""
    output = render_gold(entry) if number else "[nothing()]"
    return Episode([*QUESTION, {"role": "assistant", "content": output}], output, model_calls=1)


def wrong(number: int, entry: Entry) -> Episode:
    return Episode(QUESTION, "[nothing()]", model_calls=1)


def planned_run(folder: Path, model: ModelRef, *, samples: int = 1) -> Plan:
    """Return the plan of eight ACEBench entries whose run is in ``folder``."""
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
    """Return the rows of ``plan`` with episodes by number and entry, and with verdicts."""
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
        rows.append(judge_row(row, entry, plan.benchmarks[entry.benchmark]))
    return rows


def written_run(
    folder: Path, episode_of: Callable[[int, Entry], Episode], *, samples: int = 1
) -> list[dict[str, Any]]:
    """Write manifest and rows of a run of eight ACEBench entries; return the rows."""
    plan = planned_run(folder, ModelRef("fake", "fake", "fake", "fake"), samples=samples)
    rows = judged_rows(plan, episode_of)
    store = LocalStore(plan.uri)
    store.put(MANIFEST, as_json(make_manifest(plan, {})))
    table = pa.Table.from_pylist(rows, schema=ROWS)
    write_parts(store, "00000000000001-aa", table)
    return rows


def sound_run(folder: Path) -> Path:
    """Make a complete run of eight rows in two parts, with all its files."""
    plan = planned_run(folder, ModelRef("org/Toy-7B", "hub", "org/Toy-7B", "1234"))
    rows = judged_rows(plan, lambda number, entry: Episode(QUESTION, render_gold(entry)))
    store = LocalStore(str(folder))
    session = {"began_at": "2026-01-01T00:00:00+00:00", "versions": {"vllm": "1"}}
    facts = {"versions": {"vllm": "1"}, "machine": {"platform": "p"}, "sessions": [session]}
    store.put(MANIFEST, as_json(make_manifest(plan, facts)))
    for name, part in (("00000000000001-aa", rows[:5]), ("00000000000002-aa", rows[5:])):
        write_parts(store, name, pa.Table.from_pylist(part, schema=ROWS))
    engines = [{"versions": {"vllm": "1"}}]
    timing = {"wall_s": 1.0, "engines": engines, "engine_deaths": ["x"], "device_s": {"idle": 1.0}}
    summary = {
        "complete": True,
        "why": "",
        "scored": 8,
        "tokens": {"prompt": 1, "completion": 1},
        "timing": timing,
        "benchmarks": {"acebench": {"comparable": "with itself"}},
        "rescored": {"ace_ray_version": "1"},
    }
    store.put("summary.json", json.dumps(summary).encode())
    store.put("_SUCCESS", b"")
    return folder
