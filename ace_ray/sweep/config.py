"""Config of a sweep: a run's config without its model, and the models to evaluate.

The sweep's folder keeps the config in ``sweep.json``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic import Field

import ace_ray
from ace_ray.config.schema import (
    RunConfig,
    Section,
    read_tree,
    run_config,
    validated,
)
from ace_ray.config.suggestions import instead, sections_of, unknown_keys
from ace_ray.errors import UserError
from ace_ray.pipeline.summary import as_json
from ace_ray.storage.object_store import Store
from ace_ray.types import digest
from ace_ray.util.safe_loading import json_tree


class SweepModel(Section):
    """One model of a sweep. The sweep's own keys are the defaults."""

    source: str | None = Field(
        None, min_length=1, description="as `model.source` of a run; default: the sweep's base"
    )
    endpoint: dict[str, Any] | None = Field(
        None,
        description="in place of source: as `model.endpoint` of a run, besides the sweep's or in "
        "its place",
    )
    adapter: str | None = Field(None, min_length=1, description="as `model.adapter` of a run")
    adapter_revision: str | None = Field(None, description="as of a run's model")
    revision: str | None = Field(None, description="as `model.revision` of a run")
    label: str | None = Field(None, min_length=1, description="in tables; default: its name")
    engine: dict[str, Any] = Field(
        default_factory=dict, description="engine arguments besides the sweep's, or in their place"
    )
    chat_template_kwargs: dict[str, Any] | None = Field(None, description="as of a run's model")
    reasoning_parser: str | None = Field(None, description="as of a run's model")
    tool_parser: str | None = Field(None, description="as of a run's model")
    chat_template: str | None = Field(None, description="as of a run's model")


class SweepOptions(Section):
    checkpoints: str | None = Field(
        None, min_length=1, description="folder or s3:// prefix that holds checkpoint folders"
    )
    pattern: str = Field(
        "*", min_length=1, description="of their names, e.g. step_*; the last number is the step"
    )
    every: int = Field(1, ge=1, description="take every n-th, counted from the first")
    from_step: int | None = Field(None, ge=0, alias="from", description="no step before it")
    to_step: int | None = Field(None, ge=0, alias="to", description="no step after it")
    models: list[SweepModel] = Field(default_factory=list, description="sizes, families")
    swap: bool = Field(
        True, description="whether checkpoints of one layout share a live engine; off: never"
    )
    watch: bool = Field(False, description="keep looking for new complete checkpoints")
    settle_s: float = Field(
        60.0, ge=0, description="a checkpoint counts once its files have not changed for so long"
    )
    stop_file: str | None = Field(None, description="watching ends when this file exists")
    price_per_hour: float | None = Field(None, ge=0, description="of one GPU (or CPU)")
    sweep_id: str | None = Field(
        None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="default: derived from content"
    )


SWEEP = "sweep.json"

_WHICH = ("every", "from", "to", "watch", "stop_file")
_HOW = ("settle_s", "price_per_hour", "swap")
"""Options that may change between two calls of one sweep: its models, and how they run."""

_RUN_HOW = (
    "workers", "worker_cpus", "concurrency", "rows_per_block",
    "rows_per_part", "max_attempts", "stall_s", "start_timeout_s", "store_patience_s", "grace_s",
    "store", "output", "publish",
)  # fmt: skip
"""Keys of its runs that may change, too."""


_OF_CHECKPOINTS = (
    "pattern", "every", "from_step", "to_step", "watch", "stop_file",
)  # fmt: skip


@dataclass(frozen=True)
class SweepConfig:
    options: SweepOptions
    run: Mapping[str, Any]
    """Keys of a `RunConfig` without ``model.source``, validated with a model only."""
    where: str

    @property
    def base(self) -> str | None:
        """``model.source``: the base of all adapters."""
        model = self.run.get("model")
        return model.get("source") if isinstance(model, Mapping) else None

    @property
    def output(self) -> str:
        output: str = self.run.get("output", RunConfig.model_fields["output"].default)
        return output

    def run_of(self, model: SweepModel, output: str) -> RunConfig:
        """Return the config of one model's run; the sweep publishes it. Raises `UserError`."""
        return self._run_of(model, output).model_copy(update={"publish": []})

    def _run_of(self, model: SweepModel, output: str) -> RunConfig:
        own = model.model_dump(exclude={"label", "engine"}, exclude_none=True)
        section = self.run.get("model")
        shared = section.get("endpoint") if isinstance(section, Mapping) else None
        if isinstance(shared, Mapping) and model.source is None:
            own["endpoint"] = {**shared, **(model.endpoint or {})}
        return run_config(
            {
                **self.run,
                "model": self._with("model", own),
                "engine": self._with("engine", model.engine),
                "output": output,
            },
            where=self.where,
        )

    @property
    def any_run(self) -> RunConfig:
        """The config of one run, for the keys that all runs share. Raises `UserError`."""
        return self._run_of([*self.options.models, SweepModel(source="any")][0], self.output)

    def _with(self, key: str, own: Mapping[str, Any]) -> Any:
        section = self.run.get(key, {})
        # The run's config refuses a section that is not a mapping.
        return {**section, **own} if isinstance(section, Mapping) else section


def load_sweep(
    path: str, overrides: Sequence[str] = (), values: Mapping[str, Any] | None = None
) -> SweepConfig:
    """Read a sweep's YAML file (arguments as of `ace_ray.config.schema.load_config`).

    Raises:
        UserError: what a run's config raises; a key that belongs to neither; no model at all.
    """
    tree = read_tree(path, overrides, values)
    mine = {field.alias or name: name for name, field in SweepOptions.model_fields.items()}
    theirs = set(RunConfig.model_fields)
    own, run = ({k: v for k, v in tree.items() if k in part} for part in (mine, theirs))
    known, elsewhere = sorted({*mine, *theirs}), sections_of(RunConfig)
    unknown = [key for key in tree if key not in {*own, *run}]
    if fixes := {key: instead(str(key), known, elsewhere, but="") for key in unknown}:
        raise unknown_keys(fixes, where=path)
    if tree.get("run_id") is not None:
        raise UserError("'run_id' is for one run", where=path, fix="name the sweep with sweep_id")
    options = validated(SweepOptions, own, where=path)
    if options.checkpoints is None and not options.models:
        raise UserError(
            "names no model", where=path, fix="add checkpoints: <folder or s3://>, or models: [...]"
        )
    _check_sense(options, path)
    sweep = SweepConfig(options, run, path)
    _check_base(sweep)
    if sweep.any_run.worker_range:  # its other mistakes belong to this file, too
        raise UserError(
            "'workers' is a range, and a lane of a sweep has the GPUs that it was given",
            where=path,
            fix="write a number, or leave it out: lanes take all there is",
        )
    return sweep


def _check_sense(options: SweepOptions, where: str) -> None:
    """Raise `UserError` for options without effect."""
    for name in _OF_CHECKPOINTS if options.checkpoints is None else ():
        field = SweepOptions.model_fields[name]
        if getattr(options, name) != field.default:
            raise UserError(
                f"{(field.alias or name)!r} without checkpoints",
                where=where,
                fix="name their folder",
            )
    low, high = options.from_step, options.to_step
    if low is not None and high is not None and low > high:
        raise UserError(
            f"'from' is {low} and 'to' is {high}", where=where, fix="name the lower one first"
        )


def _check_base(sweep: SweepConfig) -> None:
    """Raise `UserError` when a model has no source, or the sweep a base without adapters."""
    models = sweep.options.models
    section = sweep.run.get("model")
    behind = isinstance(section, Mapping) and section.get("endpoint") is not None
    if behind and sweep.options.checkpoints is not None:
        raise UserError(
            "checkpoints need an engine of this sweep's own, and 'model.endpoint' names none",
            where=sweep.where,
            fix="leave one of them out, or write the endpoint into its item of models",
        )
    for number, model in enumerate(models):
        if model.endpoint is not None:
            continue
        if model.source is None and (model.adapter is None or sweep.base is None):
            raise UserError(
                f"'models.{number}.source' is missing",
                where=sweep.where,
                fix="add it; of an adapter model.source of the sweep may be the base",
            )
    adapted = any(model.source is None for model in models) or sweep.options.checkpoints
    if sweep.base is not None and not adapted:
        raise UserError(
            "'model.source' is set by the sweep",
            where=sweep.where,
            fix="list it under models, with what else is its own",
        )


def sweep_id_of(config: SweepConfig) -> str:
    """Return the config's own id, or one derived from its content."""
    options = config.options
    if options.sweep_id:
        return options.sweep_id
    source = options.checkpoints
    if source is None:
        first = options.models[0]
        source = first.adapter or first.source or str((first.endpoint or {}).get("model", ""))
    stem = re.sub(r"[^a-z0-9._-]+", "-", source.rstrip("/").rsplit("/", 1)[-1].lower())
    return f"sweep-{stem[:60].strip('-.')}-{digest(_identity(config))[:10]}"


def claim(store: Store, config: SweepConfig, sweep_id: str) -> None:
    """Claim the folder for this sweep. Raises `UserError`: it holds another sweep."""
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
    """Return the keys that identify a sweep: all but `_WHICH`, `_HOW` and `_RUN_HOW`."""
    options = config.options.model_dump(mode="json", by_alias=True)
    own = {k: v for k, v in options.items() if k not in (*_WHICH, *_HOW, "sweep_id")}
    run = {k: v for k, v in config.run.items() if k not in _RUN_HOW}
    if isinstance(run.get("early"), Mapping):
        run["early"] = {k: v for k, v in run["early"].items() if k != "stop"}
    tree: dict[str, Any] = json_tree(json.dumps({**run, **own}))
    return tree
