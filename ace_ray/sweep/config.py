"""The config of a sweep: the config of a run without its model, and the models to evaluate.

This config is stored in ``sweep.json`` in the sweep's folder."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field

import ace_ray
from ace_ray.config.former_keys import with_present_keys
from ace_ray.config.schema import RunConfig, Section, read_tree, run_config, validate_tree
from ace_ray.config.suggestions import sections_of, suggest_key, unknown_keys
from ace_ray.errors import UserError
from ace_ray.storage.object_store import Store
from ace_ray.storage.stored import as_json, timestamp
from ace_ray.types import digest
from ace_ray.util.safe_loading import json_tree


class SweepModel(Section):
    """One model of a sweep. For keys that it does not set, it uses the sweep's values."""

    source: str | None = Field(None, min_length=1)
    """source of the model, as `model.source` of a run; default: the sweep's `model.source`"""
    endpoint: dict[str, Any] | None = None
    """endpoint of the model, in place of source: keys as `model.endpoint` of a run, which override
    the sweep's"""
    adapter: str | None = Field(None, min_length=1)
    """as `model.adapter` of a run"""
    adapter_revision: str | None = None
    """as `model.adapter_revision` of a run"""
    revision: str | None = None
    """as `model.revision` of a run"""
    label: str | None = Field(None, min_length=1)
    """name of the model in tables; default: its source, or what differs: kv_cache_dtype=fp8"""
    engine: dict[str, Any] = Field(default_factory=dict)
    """engine arguments for this model, added to the sweep's or overriding them"""
    sampling: dict[str, Any] = Field(default_factory=dict)
    """sampling parameters for this model, added to the sweep's or overriding them"""
    reasoning_effort: str | None = Field(None, min_length=1)
    """as `sampling.reasoning_effort` of a run, which it overrides"""
    chat_template_kwargs: dict[str, Any] | None = None
    """as `model.chat_template_kwargs` of a run"""
    reasoning_parser: str | None = None
    """as `model.reasoning_parser` of a run"""
    tool_parser: str | None = None
    """as `model.tool_parser` of a run"""
    chat_template: str | None = None
    """as `model.chat_template` of a run"""


class NotifyConfig(Section):
    """Receiver of a JSON document about each finished model: `url`, `url_env` or `command`."""

    url: str | None = Field(None, min_length=1)
    """URL that gets the document as a POST request"""
    url_env: str | None = Field(None, min_length=1)
    """environment variable with the URL, if it contains a secret"""
    token_env: str | None = Field(None, min_length=1)
    """environment variable with a token, which is sent as `Authorization: Bearer`"""
    command: list[str] | None = Field(None, min_length=1)
    """program and arguments; the program gets the document on stdin"""
    timeout_s: float = Field(30.0, gt=0, le=600)
    """timeout of one attempt; there are at most five attempts"""


class SweepOptions(Section):
    checkpoints: str | None = Field(None, min_length=1)
    """folder or s3:// prefix that contains the checkpoint folders"""
    pattern: str = Field("*", min_length=1)
    """pattern of checkpoint names, e.g. step_* or */actor/huggingface; the number after step or
    iter, or the last one that is not a part of a word, is the step"""
    every: int = Field(1, ge=1)
    """interval: take every n-th checkpoint, counted from the first"""
    from_step: int | None = Field(None, ge=0, alias="from")
    """first step to evaluate"""
    to_step: int | None = Field(None, ge=0, alias="to")
    """last step to evaluate"""
    models: list[SweepModel] = Field(default_factory=list)
    """models of several sizes or families, or one model with several settings"""
    reference: str | None = Field(None, min_length=1)
    """label of the model with which the report compares all others"""
    swap: bool = True
    """share a live engine between checkpoints with the same layout; false: never"""
    watch: bool = False
    """keep looking for new complete checkpoints"""
    settle_s: float = Field(60.0, ge=0)
    """time that a checkpoint's files must stay unchanged before it counts as complete"""
    stop_file: str | None = None
    """file that ends the watch when it exists"""
    notify: NotifyConfig | None = None
    """receiver of a document about each finished model, e.g. a trainer ([Inside
    training](sweeps.md#inside-training))"""
    sweep_id: str | None = Field(None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """name of the sweep folder; default: derived from the config's content"""


SWEEP = "sweep.json"

# Options, and keys of runs, that may change between two calls of a sweep.
_MAY_CHANGE = (
    "every", "from", "to", "watch", "stop_file", "settle_s", "swap", "sweep_id",
    "notify", "durations_from",
    "workers", "worker_cpus", "concurrency", "rows_per_block",
    "rows_per_part", "max_attempts", "engine_stall_timeout_s", "start_timeout_s",
    "store_retry_timeout_s", "drain_timeout_s",
    "time_limit", "store", "output", "publish", "price_per_hour", "reference",
)  # fmt: skip

# Keys of runs by which a sweep may grow.
_GROW = {"limit", "ids", "samples", "repeat_fraction", "benchmarks"}

_OF_CHECKPOINTS = ("pattern", "every", "from_step", "to_step", "watch", "stop_file")


@dataclass(frozen=True)
class SweepConfig:
    options: SweepOptions
    run: Mapping[str, Any]
    """Keys of a `RunConfig`. They are validated later, together with a model's source."""
    path: str

    @property
    def base(self) -> str | None:
        """The sweep's ``model.source``: the base model of all adapters."""
        return self.model.get("source")

    @property
    def model(self) -> Mapping[str, Any]:
        section = self.run.get("model")
        return section if isinstance(section, Mapping) else {}

    @property
    def output(self) -> str:
        output: str = self.run.get("output", RunConfig.model_fields["output"].default)
        return output

    def run_of(self, model: SweepModel, output: str) -> RunConfig:
        """Return the config of one model's run, without ``publish``: the sweep publishes its runs.
        Raises `UserError` if the config is invalid."""
        return self._run_of(model, output).model_copy(update={"publish": []})

    def _run_of(self, model: SweepModel, output: str) -> RunConfig:
        excluded = {"label", "engine", "sampling", "reasoning_effort"}
        fields = model.model_dump(exclude=excluded, exclude_none=True)
        effort = {"reasoning_effort": model.reasoning_effort} if model.reasoning_effort else {}
        shared = self.model.get("endpoint")
        if isinstance(shared, Mapping) and model.source is None:
            fields["endpoint"] = {**shared, **(model.endpoint or {})}
        return run_config(
            {
                **self.run,
                "model": self._merge_section("model", fields),
                "engine": self._merge_section("engine", model.engine),
                "sampling": self._merge_section("sampling", {**model.sampling, **effort}),
                "output": output,
            },
            where=self.path,
        )

    @property
    def any_run(self) -> RunConfig:
        """Config of one run, for keys that all runs share. Raises `UserError` if it is invalid."""
        return self._run_of([*self.options.models, SweepModel(source="any")][0], self.output)

    def _merge_section(self, key: str, fields: Mapping[str, Any]) -> Any:
        section = self.run.get(key, {})
        # The run's config refuses a section that is not a mapping.
        return {**section, **fields} if isinstance(section, Mapping) else section


def load_sweep(
    path: str, overrides: Sequence[str] = (), values: Mapping[str, Any] | None = None
) -> SweepConfig:
    """Read a sweep's YAML file. ``overrides`` and ``values`` change it as in `load_config`.

    Raises `UserError` if a key or value is invalid, or if there is no model."""
    tree = read_tree(path, overrides, values)
    mine = {field.alias or name: name for name, field in SweepOptions.model_fields.items()}
    theirs = set(RunConfig.model_fields)
    sweep_tree, run = ({k: v for k, v in tree.items() if k in part} for part in (mine, theirs))
    keys, elsewhere = sorted({*mine, *theirs}), sections_of(RunConfig)
    unknown = [key for key in tree if key not in {*sweep_tree, *run}]
    if fixes := {key: suggest_key(str(key), keys, elsewhere, but="") for key in unknown}:
        raise unknown_keys(fixes, source=path)
    if tree.get("run_id") is not None:
        raise UserError(
            "'run_id' applies to single runs only", where=path, fix="name the sweep with sweep_id"
        )
    options = validate_tree(SweepOptions, sweep_tree, where=path)
    if options.checkpoints is None and not options.models:
        raise UserError(
            "the sweep names no models",
            where=path,
            fix="add checkpoints: <folder or s3://>, or models: [...]",
        )
    _check_options(options, path)
    sweep = SweepConfig(options, run, path)
    _check_base(sweep)
    if sweep.any_run.worker_range:  # `any_run` also raises for other invalid keys of runs
        raise UserError(
            "elastic workers are not supported in sweeps",
            where=path,
            fix="write a number, or leave workers out to use all GPUs",
        )
    return sweep


def _check_options(options: SweepOptions, path: str) -> None:
    """Raise `UserError` for options that have no effect."""
    for name in _OF_CHECKPOINTS if options.checkpoints is None else ():
        field = SweepOptions.model_fields[name]
        if getattr(options, name) != field.default:
            problem = f"{field.alias or name!r} needs checkpoints"
            raise UserError(problem, where=path, fix="name the folder of the checkpoints")
    low, high = options.from_step, options.to_step
    if low is not None and high is not None and low > high:
        raise UserError(
            f"'from' is {low} and 'to' is {high}", where=path, fix="write the lower step as 'from'"
        )


def _check_base(sweep: SweepConfig) -> None:
    """Raise `UserError` if a model has no source, or if a base model is set but not used."""
    models = sweep.options.models
    if sweep.model.get("endpoint") is not None and sweep.options.checkpoints is not None:
        raise UserError(
            "checkpoints need an engine of the sweep, but 'model.endpoint' is set",
            where=sweep.path,
            fix="remove checkpoints or model.endpoint, or set the endpoint in an item of models",
        )
    for number, model in enumerate(models):
        has_base = sweep.base is not None or sweep.model.get("endpoint") is not None
        if model.endpoint is None and model.source is None and not has_base:
            raise UserError(
                f"'models.{number}.source' is missing",
                where=sweep.path,
                fix="add it, or set model.source of the sweep to the base of its models",
            )
    adapted = any(model.source is None for model in models) or sweep.options.checkpoints
    if sweep.base is not None and not adapted:
        raise UserError(
            "'model.source' has no effect, since every model of the sweep has its own source",
            where=sweep.path,
            fix="remove it, or add a model with this source to models",
        )


def sweep_id_of(config: SweepConfig) -> str:
    """Return the ``sweep_id`` of the config, or an id derived from its content."""
    options = config.options
    if options.sweep_id:
        return options.sweep_id
    source = options.checkpoints
    if source is None:
        first = options.models[0]
        names = (first.adapter, first.source, (first.endpoint or {}).get("model"), config.base)
        source = str(next(filter(None, names), ""))
    stem = re.sub(r"[^a-z0-9._-]+", "-", source.rstrip("/").rsplit("/", 1)[-1].lower())
    return f"sweep-{stem[:60].strip('-.')}-{digest(_identity(config))[:10]}"


def claim(store: Store, config: SweepConfig, sweep_id: str, new_runs: Sequence[str] = ()) -> None:
    """Write ``sweep.json`` for a new sweep, or for a stored sweep with the same config or more
    rows. ``new_runs``: labels of models whose stored run cannot grow. Raises `UserError` if the
    folder has a sweep with another config."""
    raw = store.get(SWEEP)
    mine = _identity(config)
    now = timestamp()
    stored: dict[str, Any] = {}
    if raw is not None:
        try:
            stored = json_tree(raw)
            theirs = _without_labels(with_present_keys(stored["identity"]))
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"{SWEEP} cannot be read", where=store.root, fix="choose another sweep_id"
            ) from error
        ours = _without_labels(mine)
        keys = sorted(k for k in {*theirs, *ours} if theirs.get(k) != ours.get(k))
        if keys and (new_runs or mine.get("early") or not _GROW.issuperset(keys)):
            reason = f"; the run of {new_runs[0]} cannot grow" if new_runs else ""
            raise UserError(
                f"the folder belongs to a sweep with another config ({', '.join(keys)} differ"
                f"{reason})",
                where=store.root,
                fix="choose another sweep_id or --output",
            )
        if keys:
            grown = [*stored.get("grown", []), {"at": now, "keys": keys}]
            stored |= {"grown": grown, "identity": mine}
    options = config.options.model_dump(mode="json", by_alias=True)
    manifest = {
        "schema_version": 1,
        "sweep_id": sweep_id,
        "ace_ray_version": ace_ray.__version__,
        "created_at": now,
        "identity": mine,
        **stored,
        "config": {**config.run, **options, "sweep_id": sweep_id},
    }
    store.put(SWEEP, as_json(manifest))


def _without_labels(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``identity`` without the labels of models, which may change."""
    return {**identity, "models": [{**model, "label": None} for model in identity["models"]]}


def _identity(config: SweepConfig) -> dict[str, Any]:
    """Return the part of the config that must not change when a sweep is continued."""
    keys = {**config.run, **config.options.model_dump(mode="json", by_alias=True)}
    keys = {key: value for key, value in keys.items() if key not in _MAY_CHANGE}
    if isinstance(keys.get("early"), Mapping):
        keys["early"] = {k: v for k, v in keys["early"].items() if k != "stop"}
    newer = ("sampling", "reasoning_effort")  # left out if not set, so that earlier ids remain
    keys["models"] = [{k: v for k, v in m.items() if v or k not in newer} for m in keys["models"]]
    tree: dict[str, Any] = json_tree(json.dumps(keys))
    return tree
