"""What can be asked of a run: the YAML file and ``--set`` overrides, validated.

A saved, resolved config (``run.json`` -> ``config``) re-runs as it is.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from ace_ray.errors import UserError
from ace_ray.records import Sampling

M = TypeVar("M", bound=BaseModel)


class Section(BaseModel):
    """A config section: unknown keys are refused, values are not coerced across types."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=(), strict=True)


class ModelConfig(Section):
    source: str = Field(
        description="Hugging Face id, local folder, s3:// prefix, .gguf file, or package:NAME/PATH "
        "for a file inside an installed Python package"
    )
    revision: str | None = Field(
        None, description="branch, tag or commit of a Hugging Face id; resolved to a commit"
    )
    chat_template_kwargs: dict[str, Any] = Field(
        default_factory=dict, description="passed to the chat template, e.g. enable_thinking"
    )
    reasoning_parser: str = Field(
        "auto",
        description="auto: <think> blocks; none: leave the text as it is; else the name of a "
        "vLLM reasoning parser",
    )


class SamplingConfig(Section):
    temperature: float = Field(0.0, ge=0, description="0 is greedy")
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(0, ge=0, description="0 keeps all tokens")
    max_tokens: int = Field(1200, ge=1, description="per answer; upstream's default")
    seed: int = Field(0, ge=0, description="of sample 0; sample i uses seed + i")
    stop: list[str] = Field(default_factory=list)

    def sampling(self) -> Sampling:
        values = self.model_dump()
        return Sampling(**{**values, "stop": tuple(values["stop"])})


class StoreConfig(Section):
    endpoint_url: str | None = Field(None, description="of an S3-compatible store")
    region: str | None = None


class BenchmarkConfig(BaseModel):
    """A benchmark by name; the other keys are its own and checked by it."""

    model_config = ConfigDict(extra="allow")
    name: str

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class RunConfig(Section):
    model: ModelConfig
    benchmarks: list[BenchmarkConfig] = Field(min_length=1)
    backend: Literal["vllm", "fake"] = Field(
        "vllm", description="fake answers without a model, for tests of the pipeline itself"
    )
    engine: dict[str, Any] = Field(
        default_factory=dict, description="engine arguments under vLLM's own names"
    )
    sampling: SamplingConfig = Field(default_factory=SamplingConfig)
    samples: int = Field(1, ge=1, description="answers per entry")
    workers: int | Literal["auto"] = Field(
        "auto", description="engine workers; auto: as many as the cluster's GPUs hold, 1 on CPU"
    )
    worker_cpus: float = Field(1.0, gt=0, description="logical CPUs of one engine worker")
    checkers: int = Field(1, ge=1, description="checker actors")
    concurrency: int | Literal["auto"] = Field(
        "auto", description="episodes in flight per worker; auto: twice the engine's max_num_seqs"
    )
    rows_per_block: int | Literal["auto"] = Field(
        "auto", description="rows that travel together; auto: 1, more for large runs"
    )
    rows_per_part: int | Literal["auto"] = Field(
        "auto", description="rows per Parquet part; auto: by the run's size"
    )
    episode_timeout_s: float = Field(3600.0, gt=0)
    max_unscored: float = Field(
        0.0, ge=0, le=1, description="share of rows that may be unscored for a headline number"
    )
    limit: int | None = Field(None, ge=1, description="evaluate the first N entries only")
    output: str = Field("runs", description="folder or s3://bucket/prefix that holds run folders")
    run_id: str | None = Field(
        None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="default: derived from content"
    )
    store: StoreConfig = Field(default_factory=StoreConfig)

    @field_validator("benchmarks", mode="before")
    @classmethod
    def _names_are_short_for_sections(cls, value: Any) -> Any:
        if isinstance(value, list):
            return [{"name": item} if isinstance(item, str) else item for item in value]
        return value


def load_config(path: str, overrides: Sequence[str] = ()) -> RunConfig:
    """Read a YAML config, apply ``a.b=c`` overrides (values are YAML), validate.

    Raises:
        UserError: unreadable file, bad YAML, unknown key (with the nearest known one), bad value.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"cannot be read: {error.strerror}", where=path, fix="name an existing YAML file"
        ) from error
    try:
        tree = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UserError(f"is not YAML: {error}", where=path, fix="correct the syntax") from error
    if not isinstance(tree, dict):
        raise UserError("holds no mapping", where=path, fix="start from a file in configs/")
    for item in overrides:
        _override(tree, item)
    return validated(RunConfig, tree, where=path)


def _override(tree: dict[str, Any], item: str) -> None:
    key, equals, text = item.partition("=")
    if not equals or not key:
        raise UserError(f"{item!r} is not KEY=VALUE", where="--set", fix="write a.b=c")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UserError(f"{text!r} is not a YAML value", where=f"--set {key}") from error
    node: Any = tree
    *parents, last = key.split(".")
    for part in parents:
        if isinstance(node, list) and part.isdigit() and int(part) < len(node):
            node = node[int(part)]
        elif isinstance(node, dict):
            if node.get(part) is None:
                node[part] = {}
            node = node[part]
        else:
            raise UserError(f"{part!r} leads nowhere", where=f"--set {key}", fix="check the path")
    if isinstance(node, list) and last.isdigit() and int(last) < len(node):
        node[int(last)] = value
    elif isinstance(node, dict):
        node[last] = value
    else:
        raise UserError(f"{last!r} leads nowhere", where=f"--set {key}", fix="check the path")


def validated(model: type[M], tree: Mapping[str, Any], *, where: str) -> M:
    """``model`` built from ``tree``; the first problem becomes a `UserError`."""
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False)[0]
    path = [str(part) for part in problem["loc"]]
    key = ".".join(path)
    if problem["type"] == "extra_forbidden":
        near = difflib.get_close_matches(path[-1], _keys(model, path[:-1]), n=1, cutoff=0.5)
        known = ", ".join(_keys(model, path[:-1]))
        fix = f"did you mean {near[0]!r}?" if near else f"known keys: {known}"
        raise UserError(f"unknown key {key!r}", where=where, fix=fix)
    if problem["type"] == "missing":
        raise UserError(f"{key!r} is missing", where=where, fix="add it")
    got = problem.get("input")
    raise UserError(
        f"{key!r} is {_short(got)}: {problem['msg']}", where=where, fix="correct the value"
    )


def _keys(node: type[BaseModel], path: Sequence[str]) -> list[str]:
    for part in path:
        field = node.model_fields.get(part)
        inner = field.annotation if field else None
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            node = inner
    return list(node.model_fields)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
