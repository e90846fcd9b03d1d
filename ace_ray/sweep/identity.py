"""Which sweep a folder holds: what makes one this one, and ``sweep.json``."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

import ace_ray
from ace_ray.bounded import json_tree
from ace_ray.errors import UserError
from ace_ray.records import digest
from ace_ray.run.summary import as_json
from ace_ray.store import Store
from ace_ray.sweep.config import SweepConfig

SWEEP = "sweep.json"

_WHICH = ("every", "last", "from", "to", "watch", "watch_s", "until_step", "stop_file", "poll_s")
_HOW = ("settle_s", "price_per_hour", "gpu_memory_gib", "lane_attempts", "swap")
"""Options that may change between two calls of one sweep: which models, and how."""

_RUN_HOW = (
    "workers", "worker_cpus", "checkers", "sandboxes", "concurrency", "rows_per_block",
    "rows_per_part", "max_attempts", "stall_s", "start_timeout_s", "store_patience_s", "grace_s",
    "store", "output",
)  # fmt: skip
"""Those of its runs."""


def sweep_id_of(config: SweepConfig) -> str:
    """The id that the config asks for, or one from its content."""
    options = config.options
    if options.sweep_id:
        return options.sweep_id
    source = options.checkpoints or options.models[0].source
    stem = re.sub(r"[^a-z0-9._-]+", "-", source.rstrip("/").rsplit("/", 1)[-1].lower())
    return f"sweep-{stem[:60].strip('-.')}-{digest(_identity(config))[:10]}"


def claim(store: Store, config: SweepConfig, sweep_id: str) -> None:
    """Make the folder this sweep's. Raises `UserError` when it holds another."""
    raw = store.get(SWEEP)
    mine = _identity(config)
    if raw is not None:
        try:
            theirs = dict(json_tree(raw)["identity"])
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"{SWEEP} cannot be read", where=store.root, fix="choose another sweep_id"
            ) from error
        if theirs != mine:
            keys = sorted(k for k in {*theirs, *mine} if theirs.get(k) != mine.get(k))
            raise UserError(
                f"the folder holds a sweep of another config ({', '.join(keys)} differ)",
                where=store.root,
                fix="choose another sweep_id or --output",
            )
        return
    manifest = {
        "schema_version": 1,
        "sweep_id": sweep_id,
        "ace_ray_version": ace_ray.__version__,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "identity": mine,
        "config": {
            **config.run,
            **config.options.model_dump(mode="json", by_alias=True),
            "sweep_id": sweep_id,
        },
    }
    store.put(SWEEP, as_json(manifest))


def _identity(config: SweepConfig) -> dict[str, Any]:
    """What makes a sweep this one: all but which of its models are taken, and how."""
    options = config.options.model_dump(mode="json", by_alias=True)
    own = {k: v for k, v in options.items() if k not in (*_WHICH, *_HOW, "sweep_id")}
    run = {k: v for k, v in config.run.items() if k not in _RUN_HOW}
    tree: dict[str, Any] = json_tree(json.dumps({**run, **own}))
    return tree
