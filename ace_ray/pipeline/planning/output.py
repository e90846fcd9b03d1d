"""Open the folder of a run, and check that it may be written."""

from __future__ import annotations

import json
from typing import Any

from ace_ray.config.schema import RunConfig
from ace_ray.errors import UserError
from ace_ray.pipeline.planning.plan import REPORTS, Plan
from ace_ray.storage.lease import LEASE
from ace_ray.storage.object_store import Store, open_store
from ace_ray.storage.stored import MANIFEST, differences, read_manifest
from ace_ray.util.safe_loading import json_tree


def _output(config: RunConfig) -> Store:
    options = config.store
    return open_store(config.output, endpoint_url=options.endpoint_url, region=options.region)


def output_store(plan: Plan) -> Store:
    """Return the store of the run's folder."""
    return _output(plan.config).child(plan.run_id)


def open_output(plan: Plan, *, fresh: bool = False) -> tuple[Store, dict[str, Any] | None]:
    """Check that the run's store is writable. Return the store, and the manifest in it or None.

    If ``fresh``, the store may have any run, since the caller replaces that run; the manifest is
    None. Raises `UserError` if the store cannot be written, or has a different run."""
    config = plan.config
    parent = _output(config)
    store = parent.child(plan.run_id)
    store.check_writable()
    # Refuse links before engines start, since files outside the folder must not change.
    for folder in ("rows", "results/tools", "files", *(f"files/{one}" for one in plan.benchmarks)):
        store.check_unlinked(folder)
    if parent.get(MANIFEST) is not None:
        raise UserError(
            "the output folder is itself a run",
            where=config.output,
            fix="name the folder above it; each run gets a folder of its own",
        )
    if store.get(MANIFEST) is None:
        listed = [item for item in store.list() if not item.path.startswith(REPORTS)]
        if foreign := [item for item in listed if item.path != LEASE]:
            raise UserError(
                f"the folder contains files that do not belong to a run ({foreign[0].path})",
                where=plan.uri,
                fix="choose another run_id or --output",
            )
        return store, None
    try:
        manifest = read_manifest(store).tree
    except UserError as error:  # --fresh does not remove such a folder either
        raise UserError(
            f"the folder contains a {MANIFEST} that is not a run's",
            where=plan.uri,
            fix="choose another run_id or --output",
        ) from error
    if fresh:
        return store, None
    mine = json_tree(json.dumps(plan.identity))
    if paths := differences(manifest["identity"], mine):
        raise UserError(
            f"the folder contains a different run (the runs differ in {', '.join(paths)})",
            where=plan.uri,
            fix="choose another run_id or --output, or replace the run with --fresh",
        )
    return store, dict(manifest)
