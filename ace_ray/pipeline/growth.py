"""A run that grows: a stored run takes more entries, samples or benchmarks, and keeps its rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np

from ace_ray.pipeline.planning.manifest import make_manifest
from ace_ray.pipeline.planning.plan import Plan
from ace_ray.storage.object_store import Store
from ace_ray.storage.parts import read_ledger
from ace_ray.storage.rows import rows_schema
from ace_ray.storage.stored import MANIFEST, MOST_SESSIONS, Manifest, differences
from ace_ray.types import canonical_json
from ace_ray.util.safe_loading import json_tree

# Keys of a config, besides the benchmarks, by which a run may grow.
_KEYS = ("limit", "samples", "repeat_fraction")


def is_stored(store: Store, plan: Plan) -> bool:
    """Return whether ``store`` has the run of ``plan``, not a smaller or a different one."""
    try:
        identity = json_tree(store.get(MANIFEST) or b"{}")["identity"]
    except (ValueError, KeyError, TypeError):
        return False
    return bool(identity == _identity(plan))


def _identity(plan: Plan) -> dict[str, Any]:
    tree: dict[str, Any] = json_tree(json.dumps(plan.identity))
    return tree


def conflict(store: Store, manifest: Manifest, plan: Plan) -> str:
    """Return why the run in ``store`` is not the run of ``plan`` and cannot grow into it, or "".

    A row id covers all that decides the content of its row. So a stored row is also a row of
    ``plan`` if the plan has its id and nothing else that can change a verdict differs."""
    theirs, mine = manifest.tree["identity"], _identity(plan)
    if theirs == mine:
        return ""
    if paths := differences(theirs, _before_growth(mine, theirs)):
        return f"the runs differ in {', '.join(paths)}"
    # The decision of an early comparison is valid only for the order that was drawn before it.
    early = manifest.tree.get("early")
    if plan.drawn is not None or (isinstance(early, Mapping) and early.get("looked")):
        return "a run with early stopping cannot grow"
    ledger = read_ledger(store, lambda line: None, rows_schema(manifest.all_rule_sets))
    if extra_rows := len(np.setdiff1d(ledger.ids, plan.rows.ids)):
        return f"{extra_rows} of its {len(ledger.ids)} stored rows are not among the planned rows"
    if len(plan.rows) <= manifest.declared:
        return f"it declares {manifest.declared} rows, this config {len(plan.rows)}"
    return ""


def _before_growth(mine: dict[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the identity ``mine`` without the parts by which a run with the identity ``theirs``
    may grow."""
    mine |= {"rows": theirs.get("rows"), "sampling": mine["sampling"][: len(theirs["sampling"])]}
    if theirs.get("episode_timeout_s") is None:
        mine["episode_timeout_s"] = None
    for key in ("benchmarks", "roles", "replay_reasoning"):
        mine[key] = _shared(mine.get(key), theirs.get(key))
    for name, described in (mine["benchmarks"] or {}).items():
        stored = theirs["benchmarks"][name]
        described["data_sha256"] = stored.get("data_sha256")
        if "episodes" not in stored:
            described.pop("episodes", None)
    for name, roles in (mine["roles"] or {}).items():
        mine["roles"][name] = _shared(roles, theirs["roles"][name])
    return mine


def _shared(mine: Any, theirs: Any) -> Any:
    """Return the items of ``mine`` whose keys ``theirs`` has; None if ``theirs`` is None."""
    if not isinstance(theirs, Mapping):
        return None if theirs is None else mine
    return {key: value for key, value in (mine or {}).items() if key in theirs}


def grown_manifest(manifest: Manifest, plan: Plan) -> dict[str, Any] | None:
    """Return the content of ``run.json`` after the stored run has grown into the run of ``plan``;
    None if it is this run already. Keys beside the plan's still describe the first session."""
    if manifest.tree["identity"] == _identity(plan):
        return None
    tree = make_manifest(plan, {})
    growth = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "rows_before": manifest.declared,
        "rows_after": len(plan.rows),
        "what": _changes(manifest.tree["config"], tree["config"])[:500],
    }
    grown = [*manifest.tree.get("grown", []), growth][-MOST_SESSIONS:]
    version = {"ace_ray_version": manifest.ace_ray_version}
    return {**manifest.tree, **tree, **version, "grown": grown}


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return in words which keys of the config select more rows, such as "limit 40 -> 80"."""
    sections = {section["name"]: section for section in before.get("benchmarks", ())}
    pairs = [("", before, {key: after[key] for key in _KEYS})]
    words = []
    for section in after["benchmarks"]:
        if (stored := sections.get(section["name"])) is None:
            words.append(f"{section['name']} added")
        else:
            pairs.append((f"{section['name']}.", stored, dict.fromkeys(stored) | section))
    words += [
        f"{name}{key} {canonical_json(old.get(key))} -> {canonical_json(value)}"
        for name, old, new in pairs
        for key, value in new.items()
        if value != old.get(key)
    ]
    return ", ".join(words) or "other data"
