"""Make the manifest of a run, ``run.json``."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import ace_ray
from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.comparability import flatten
from ace_ray.benchmarks.dataset import data_hash
from ace_ray.errors import UserError
from ace_ray.models.endpoint_engine import UNKNOWN
from ace_ray.models.sizes import local_size
from ace_ray.pipeline.planning.plan import Plan
from ace_ray.storage.stored import Manifest, timestamp


def make_manifest(plan: Plan, facts: dict[str, Any]) -> dict[str, Any]:
    """Return the content of ``run.json``: everything that can change a score, and a config with
    which the run can be repeated. ``facts`` are further keys."""
    resolved = plan.config.model_dump(mode="json")
    if plan.model.kind == "hub":
        resolved["model"]["revision"] = plan.model.revision
    adapter: dict[str, Any] = {}
    if plan.model.adapter is not None:
        ref, rank, base = plan.model.adapter.ref, plan.model.adapter.rank, plan.model.adapter.base
        source = {"source": ref.source, "kind": ref.kind, "revision": ref.revision}
        adapter = {"adapter": {**source, "rank": rank, "base": base}}
        if ref.kind == "hub":
            resolved["model"]["adapter_revision"] = ref.revision
    size = None  # it is unknown without the weights
    with suppress(UserError):  # the engine reports a file that cannot be read
        size = local_size(plan.model)
    resolved["benchmarks"] = [
        {"name": benchmark.source or name, **benchmark.resolved(), **plan.restricted.get(name, {})}
        for name, benchmark in plan.benchmarks.items()
    ]
    # Each benchmark in the manifest has its own ids; only the order of rows depends on durations.
    resolved["ids"] = resolved["durations_from"] = None
    for key in ("chat_template", "plugins"):
        resolved["model"][key] = _resolve(resolved["model"][key])
    # Write the chosen date, since the environment of another machine may set a different one.
    resolved["model"]["start_date"] = plan.choice.start_date or plan.config.model.start_date
    resolved["run_id"] = plan.run_id
    return {
        "schema_version": 1,
        "run_id": plan.run_id,
        "ace_ray_version": ace_ray.__version__,
        "declared": len(plan.rows),
        "rule_sets": {name: list(b.rule_sets) for name, b in plan.benchmarks.items()},
        "groups": {name: groups_of(b) for name, b in plan.benchmarks.items()},
        "entries": {name: data_hash(b.dataset()) for name, b in plan.benchmarks.items()},
        "restricted": plan.restricted,
        "config": resolved,
        "model": {
            "source": plan.model.source,
            "kind": plan.model.kind,
            "revision": plan.model.known_revision,
            **({"unknown": list(UNKNOWN)} if plan.model.kind == "endpoint" else {}),
            **({"parameters": size.parameters} if size and size.parameters else {}),
            **adapter,
        },
        "identity": plan.identity,
        **({"early": plan.drawn.as_json()} if plan.drawn else {}),
        **facts,
    }


def grown_manifest(manifest: Manifest, plan: Plan) -> dict[str, Any]:
    """Return the content of ``run.json`` after the stored run has grown into the run of ``plan``.
    Keys that do not come from the plan still describe the first session."""
    tree = make_manifest(plan, {"ace_ray_version": manifest.ace_ray_version})
    before, after = (
        flatten(
            {key: config.get(key) for key in ("limit", "samples", "repeat_fraction")}
            | {section["name"]: section for section in config["benchmarks"]}
        )
        for config in (manifest.tree["config"], tree["config"])
    )
    added = [key[: -len(".name")] for key in after if key.endswith(".name") and key not in before]
    changes = [f"{name} added" for name in added] + [
        f"{key} {before.get(key, 'null')} -> {value}"
        for key, value in after.items()
        if before.get(key) != value and not key.startswith(tuple(f"{name}." for name in added))
    ]
    growth = {
        "at": timestamp(),
        "rows_before": manifest.declared,
        "rows_after": len(plan.rows),
        "what": ", ".join(changes)[:500],
    }
    return {**manifest.tree, **tree, "grown": [*manifest.tree.get("grown", []), growth]}


def groups_of(benchmark: Benchmark) -> dict[str, list[str]]:
    """Return `Benchmark.groups` for the manifest, so that reports need not run benchmark code."""
    return {group: list(members) for group, members in benchmark.groups.items()}


def _resolve(paths: Any) -> Any:
    if isinstance(paths, list):
        return [_resolve(path) for path in paths]
    return None if paths is None else str(Path(paths).expanduser().resolve())
