"""Run folders as `ace-ray evaluate` leaves them, with rows made up by the test."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa

from ace_ray.benchmarks.acebench.benchmark import ACEBench
from ace_ray.benchmarks.acebench.categories import (
    AGENT,
    CATEGORIES,
    MULTI_TURN,
    NORMAL,
    dialogue,
)
from ace_ray.config import RunConfig
from ace_ray.models.sources import ModelRef
from ace_ray.records import Episode, Verdict, digest
from ace_ray.run.planning.plan import make_manifest, vars_of
from ace_ray.run.storage.parts import write_parts
from ace_ray.run.storage.rows import ROWS, episode_columns, verdict_columns
from ace_ray.store import LocalStore

ERRORS = {"official": "value_error:string", "strict": "param_value"}
SPECIAL_ERRORS = {"official": "error_detection", "strict": "detection_failed"}

Row = dict[str, Any]


def row(
    language: str,
    category: str,
    number: int,
    *,
    official: bool = True,
    strict: bool | None = None,
    errors: dict[str, str] | None = None,
    process: float | None = None,
    status: str = "scored",
    sample: int = 0,
) -> Row:
    """A row of `ROWS`; ``strict`` follows ``official`` unless given."""
    suffix = f"_{number}_0" if category in MULTI_TURN else f"_{number}"
    entry_id = f"{category}{suffix}"
    valid = {"official": official, "strict": official if strict is None else strict}
    errors = errors or (ERRORS if category in NORMAL else SPECIAL_ERRORS)
    verdicts = {}
    for rules, ok in valid.items() if status == "scored" else ():
        metrics = {} if process is None else {"end_to_end": float(ok), "process_accuracy": process}
        verdicts[rules] = Verdict(ok, "" if ok else errors[rules], metrics=metrics)
    return {
        "row_id": digest(language, category, number, sample)[:32],
        "benchmark": "acebench",
        "category": category,
        "language": language,
        "id": entry_id,
        "group": dialogue(category, entry_id),
        "sample": sample,
        "repeat": 0,
        "seed": sample,
        "status": status,
        "error_class": None if status == "scored" else "RuntimeError",
        "error": None,
        "attempts": 1,
        "started_at": datetime(2026, 1, 1, tzinfo=UTC),
        "duration_s": 1.0,
        "worker": "host:1",
        **episode_columns(Episode(output="[f()]", finish_reason="stop", model_calls=1)),
        **verdict_columns(verdicts),
    }


def block(language: str, category: str, valid: int, of: int, **more: Any) -> list[Row]:
    """``of`` rows of one category, the first ``valid`` of them right."""
    return [row(language, category, i, official=i < valid, **more) for i in range(of)]


def everything(
    shares: dict[str, int], *, of: int = 10, languages: Sequence[str] = ("en", "zh")
) -> list[Row]:
    """``of`` rows in every category and language, ``shares[category]`` of them right (else all)."""
    return [
        item
        for language in languages
        for category in CATEGORIES
        for item in block(
            language,
            category,
            shares.get(category, of),
            of,
            process=0.75 if category in AGENT else None,
        )
    ]


def write_run(
    folder: Path,
    rows: Iterable[Row],
    *,
    model: str = "org/Toy-7B-Instruct",
    run_id: str = "",
    variant: str = "standard",
    sampling: dict[str, Any] | None = None,
    samples: int = 1,
    missing: int = 0,
    finished: bool = True,
    max_unscored: float = 0.0,
    limit: int | None = None,
    backend: str = "vllm",
    extra_identity: dict[str, Any] | None = None,
    parameters: int | None = None,
) -> Path:
    """``folder``, filled with a manifest made by the package's own code, and ``rows`` as parts."""
    rows = list(rows)
    benchmark, described = _benchmark(variant)
    config = RunConfig.model_validate(
        {
            "model": {"source": model},
            "benchmarks": [{"name": "acebench"}],
            "sampling": sampling or {},
            "samples": samples,
            "max_unscored": max_unscored,
            "limit": limit,
            "backend": backend,
        }
    )
    drawn = config.sampling.sampling()
    identity = {
        "model": digest(model),
        "chat_template_kwargs": {},
        "reasoning_parser": "auto",
        "backend": backend,
        "benchmarks": {"acebench": described},
        "engine": {},
        "sampling": [vars_of(drawn.for_sample(i)) for i in range(samples)],
        "rows": digest(model, variant),
        **(extra_identity or {}),
    }
    plan = SimpleNamespace(
        config=config,
        model=ModelRef(model, "hub", model, digest(model)),
        benchmarks={"acebench": benchmark},
        rows=[None] * (len(rows) + missing),
        identity=identity,
        run_id=run_id or folder.name,
    )
    manifest = json.loads(json.dumps(make_manifest(cast(Any, plan), {})))
    if parameters is not None:
        manifest["model"]["parameters"] = parameters
    store = LocalStore(str(folder))
    store.put("run.json", json.dumps(manifest).encode())
    if rows:
        stored = [{**item, "run_id": plan.run_id} for item in rows]
        write_parts(store, "0-a", pa.Table.from_pylist(stored, schema=ROWS))
    if finished:
        store.put("_SUCCESS", b"")
    return folder


@cache
def _benchmark(variant: str) -> tuple[ACEBench, dict[str, Any]]:
    benchmark = ACEBench.from_options({"data": "mini", "variant": variant})
    return benchmark, dict(benchmark.identity())
