"""The config of a run: its models, and the reading of YAML files and ``--set`` overrides.

A stored config (``run.json`` -> ``config``) runs again unchanged.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic.fields import FieldInfo

from ace_ray.config.suggestions import mistake
from ace_ray.errors import UserError
from ace_ray.types import Sampling
from ace_ray.util.local_files import path_of, without_bom
from ace_ray.util.safe_loading import MOST_BYTES, Unbounded, yaml_tree
from ace_ray.util.secrets import is_secret_name, secrets_in

M = TypeVar("M", bound=BaseModel)


def cache_root() -> Path:
    """Return the folder of downloads, imports and converted models: ``ACE_RAY_CACHE``, else
    ``~/.cache/ace_ray``."""
    set_root = os.environ.get("ACE_RAY_CACHE")
    return path_of(set_root, "ACE_RAY_CACHE") if set_root else Path.home() / ".cache" / "ace_ray"


class Section(BaseModel):
    """A config section. It refuses unknown keys and does not convert values between types."""

    model_config = ConfigDict(
        extra="forbid", protected_namespaces=(), strict=True, allow_inf_nan=False
    )


EXTERNAL: Literal["external"] = "external"
"""Backend of a run of outputs that were made elsewhere."""
ENDPOINT: Literal["endpoint"] = "endpoint"
"""Backend of a run with a candidate behind an endpoint."""

CountOrAuto = Annotated[int, Field(ge=1)] | Literal["auto"]


class WorkerRange(Section):
    """Minimum and maximum of engine workers on a cluster whose nodes come and go."""

    min: int = Field(1, ge=1, description="with fewer the run does not start")
    max: int = Field(ge=1, description="what nodes that come later are taken up to")

    @model_validator(mode="after")
    def _ordered(self) -> WorkerRange:
        if self.min > self.max:
            raise ValueError(f"min = {self.min} is more than max = {self.max}")
        return self


class EndpointConfig(Section):
    url: str = Field(min_length=1, description="base URL, e.g. https://api.openai.com/v1")
    model: str = Field(min_length=1, description="the model's name at the endpoint")
    api_key_env: str | None = Field(
        "OPENAI_API_KEY",
        min_length=1,
        description="environment variable that holds the key; null for an endpoint without keys",
    )
    timeout_s: float = Field(120.0, gt=0, description="per attempt, until the whole answer is here")
    max_retries: int = Field(5, ge=0, le=100, description="attempts after the first")
    requests_per_minute: int | None = Field(
        None, ge=1, description="per engine worker, evenly spaced; retries count"
    )
    max_concurrency: int = Field(64, ge=1, description="requests in flight per engine worker")


class CandidateEndpoint(EndpointConfig):
    extra_body: dict[str, Any] = Field(
        default_factory=dict,
        description="further keys of every request, such as a provider's reasoning settings; "
        "tool_choice and parallel_tool_calls go with tools only; null leaves out a key that would "
        "be sent, such as temperature",
    )


class ModelConfig(Section):
    source: str | None = Field(
        None,
        min_length=1,
        description="Hugging Face id, local folder, s3:// prefix, .gguf file, or package:NAME/PATH "
        "for a file inside an installed Python package",
    )
    endpoint: CandidateEndpoint | None = Field(
        None,
        description="in place of source: the candidate is behind an OpenAI-compatible server "
        "([Endpoints](endpoints.md))",
    )
    revision: str | None = Field(
        None, description="branch, tag or commit of a Hugging Face id; resolved to a commit"
    )
    adapter: str | None = Field(
        None,
        min_length=1,
        description="a LoRA adapter on the model: a folder, an s3:// prefix, or a Hugging Face id",
    )
    adapter_revision: str | None = Field(
        None, description="as `revision`, of an adapter's Hugging Face id"
    )
    chat_template_kwargs: dict[str, Any] = Field(
        default_factory=dict, description="passed to the chat template, e.g. enable_thinking"
    )
    reasoning_parser: str = Field(
        "auto",
        description="auto: that of the model's family if it thinks, else <think> blocks; none: "
        "leave the text as it is; else the name of a vLLM reasoning parser",
    )
    tool_parser: str | None = Field(
        None,
        min_length=1,
        description="vLLM tool parser that reads the answers to tools (native tool calling); "
        "auto: that of the model's family",
    )
    chat_template: str | None = Field(
        None,
        min_length=1,
        description="file with a chat template in place of the model's own, as vLLM's server takes "
        "it with --chat-template",
    )
    plugins: list[str] = Field(
        default_factory=list,
        description="Python files that register reasoning or tool parsers with vLLM",
    )
    replay_reasoning: Literal["none", "tool_steps", "all"] | None = Field(
        None,
        description="reasoning of earlier answers that the model is shown again: none, that of the "
        "steps since the last user's message, or all; default: the benchmark's",
    )
    start_date: str | None = Field(
        None,
        pattern=r"^\d{4}-\d{2}-\d{2}$",
        description="the day that a model is told whose chats hold one; default: "
        "VLLM_SYSTEM_START_DATE, else 2025-08-05",
    )


_Text = Annotated[str, Field(min_length=1)]


class SamplingConfig(Section):
    """Sampling within vLLM's ranges. ``sampling: model`` means ``sampling: {defaults: model}``."""

    defaults: Literal["model"] | None = Field(
        None,
        description="model: what is not named here is the model's own, by its "
        "generation_config.json; `sampling: model` is short for that alone",
    )
    temperature: float = Field(0.0, ge=0, le=2, description="0 is greedy")
    top_p: float = Field(1.0, gt=0, le=1, description="1 keeps all tokens")
    top_k: int = Field(0, ge=0, description="0 keeps all tokens")
    max_tokens: int = Field(1200, ge=1, description="per answer; upstream's default")
    seed: int = Field(
        0,
        ge=0,
        le=2**31 - 1,
        description="rows draw theirs from seed + i for sample i, and their keys",
    )
    stop: list[_Text] = Field(default_factory=list, description="texts that end an answer")
    min_p: float = Field(
        0.0, ge=0, le=1, description="least probability, as a share of the likeliest token's"
    )
    presence_penalty: float = Field(0.0, ge=-2, le=2, description="on tokens of the answer so far")
    frequency_penalty: float = Field(0.0, ge=-2, le=2, description="the same, by their number")
    repetition_penalty: float = Field(
        1.0,
        gt=0,
        description="on tokens of prompt and answer, at temperature 0 too; 1: none",
    )
    thinking_token_budget: int | None = Field(
        None,
        ge=0,
        description="reasoning is ended after so many tokens; needs a reasoning parser "
        "of vLLM's own, or engine.reasoning_config",
    )
    reasoning_effort: str | None = Field(
        None,
        pattern=r"^[a-z_]{1,20}$",
        description="e.g. low: the variable of that name of the model's chat template",
    )

    @model_validator(mode="before")
    @classmethod
    def _short_for_defaults(cls, value: Any) -> Any:
        return {"defaults": "model"} if value == "model" else value

    @model_serializer(mode="wrap")
    def _as_named(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = serialize(self)
        if self.is_complete:
            return values
        # Our default as a named value would override the model's value.
        return {name: value for name, value in values.items() if name in self.model_fields_set}

    @property
    def is_complete(self) -> bool:
        """Return whether all values are known without the model's own."""
        drawn = type(self).model_fields.keys() - {"defaults"}
        return self.defaults is None or drawn <= self.model_fields_set

    def completed(self, own: Mapping[str, Any], *, where: str) -> SamplingConfig:
        """Return a copy with the model's ``own`` values for unnamed keys, and our defaults for the
        rest. Raises `UserError` at ``where``, the file of the model's values."""
        ours = {name: field.get_default(call_default_factory=True) for name, field in _drawn()}
        named = {name: getattr(self, name) for name in self.model_fields_set}
        return validated(SamplingConfig, {**ours, **own, **named}, where=where)

    def sampling(self) -> Sampling:
        """Return the values. Raises `ValueError`: the model's own are missing (`is_complete`)."""
        if not self.is_complete:
            raise ValueError("sampling: model is not resolved")
        values: dict[str, Any] = {name: getattr(self, name) for name, _ in _drawn()}
        return Sampling(**{**values, "stop": tuple(self.stop)})


def _drawn() -> list[tuple[str, FieldInfo]]:
    return [(n, f) for n, f in SamplingConfig.model_fields.items() if n != "defaults"]


class StoreConfig(Section):
    endpoint_url: str | None = Field(
        None, pattern=r"^https?://[^/]", description="of an S3-compatible store"
    )
    region: str | None = Field(None, description="of S3; default: the environment's")


Ids = Annotated[
    Annotated[list[_Text], Field(min_length=1)] | None,
    AfterValidator(lambda ids: ids and list(dict.fromkeys(ids))),
]


class _WithOptions(BaseModel):
    """A section with keys that another part of the program checks."""

    model_config = ConfigDict(extra="allow", strict=True)

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class BenchmarkConfig(_WithOptions):
    """A benchmark by name. The benchmark checks the other keys."""

    name: str = Field(
        description="an installed benchmark, or a class in a local file, FILE.py:CLASS"
    )
    limit: int | None = Field(
        None,
        ge=1,
        description="evaluate at most N of the benchmark's entries, in turns from every category "
        "and language; in place of the run's `limit`",
    )
    ids: Ids = Field(
        None,
        description="evaluate only these entries: ID, in every language and category that has it, "
        "or CATEGORY/ID, or LANGUAGE/CATEGORY/ID; in place of the run's `ids`",
    )


SECTION_KEYS = tuple(BenchmarkConfig.model_fields)
"""Keys of every section of ``benchmarks``, beside the benchmark's own keys."""


class PublishConfig(_WithOptions):
    """A tracker by name. The tracker checks the other keys."""

    to: str = Field(min_length=1, description="tensorboard, trackio, wandb or mlflow")


class EarlyConfig(Section):
    """Early decision of a comparison, before all rows are in (docs/early.md)."""

    against: str | None = Field(
        None,
        min_length=1,
        description="folder of the finished run that is compared with; in a sweep `previous`, "
        "`baseline` (its first model) or such a folder; null: nothing is decided, rows come in the "
        "same order",
    )
    alpha: float = Field(
        0.05, gt=0, lt=1, description="chance of a wrong decision in all of the sweep, or the run"
    )
    margin: float = Field(
        1.0, ge=0, le=100, description="points of difference that do not matter; 0: all matter"
    )
    min_rows: int = Field(200, ge=1, description="nothing is decided on fewer rows")
    stop: bool = Field(
        True, description="whether a decided run stops; off: all rows, and the decision is noted"
    )


class RunConfig(Section):
    model: ModelConfig = Field(description="the candidate")
    benchmarks: list[BenchmarkConfig] = Field(
        min_length=1, description="names, or mappings of a name and the benchmark's own keys"
    )
    backend: Literal["vllm", "endpoint", "fake", "external"] = Field(
        "vllm",
        description="endpoint follows from `model.endpoint`; fake answers without a model, for "
        "tests of the pipeline itself; external is said of stored runs whose outputs were made "
        "elsewhere (`ace-ray score`)",
    )
    engine: dict[str, Any] = Field(
        default_factory=dict, description="engine arguments under vLLM's own names"
    )
    sampling: SamplingConfig = Field(
        default_factory=SamplingConfig, description="of the candidate's answers"
    )
    samples: int = Field(1, ge=1, le=10_000, description="answers per entry")
    repeat_subset: float = Field(
        0.0,
        ge=0,
        le=1,
        description="share of the dialogues that are generated twice, to see what two identical "
        "runs differ by; the repeats count in no accuracy",
    )
    workers: CountOrAuto | WorkerRange = Field(
        "auto",
        description="engine workers; auto: as many as the cluster's GPUs hold, 1 on CPU; "
        "{min: 1, max: 8}: as many as there is room for, while nodes come and go "
        "([Clusters](clusters.md#nodes-that-come-and-go))",
    )
    worker_cpus: float = Field(1.0, gt=0, description="logical CPUs of one engine worker")
    concurrency: CountOrAuto = Field(
        "auto", description="rows at work per worker; auto: twice the engine's max_num_seqs"
    )
    rows_per_block: CountOrAuto = Field(
        "auto", description="rows that travel together; auto: 1, up to 32 and more in larger runs"
    )
    rows_per_part: CountOrAuto = Field(
        "auto", description="rows per Parquet part; auto: by the run's size"
    )
    episode_timeout_s: float = Field(
        3600.0, gt=0, description="an interactive episode is cut then, any other row fails"
    )
    max_attempts: int = Field(
        3, ge=1, description="attempts of one command at a row that fails on infrastructure"
    )
    stall_s: float = Field(
        300.0, gt=0, description="an engine that owes answers and is silent so long is killed"
    )
    start_timeout_s: float = Field(
        3600.0,
        gt=0,
        description="the run fails when no engine has started by then, and where engines come and "
        "go when there has been none for so long",
    )
    store_patience_s: float = Field(
        600.0, ge=0, description="the run fails when the store has refused writes for so long"
    )
    grace_s: float = Field(
        20.0, ge=0, description="after Ctrl-C or SIGTERM: time for rows in flight to end"
    )
    max_unscored: float = Field(
        0.0, ge=0, le=1, description="share of rows that may be unscored for a headline number"
    )
    limit: int | None = Field(
        None,
        ge=1,
        description="evaluate at most N entries, in turns from every category and language; for "
        "the benchmarks that have no `limit` of their own",
    )
    ids: Ids = Field(
        None,
        description="evaluate only these entries, each of at least one benchmark; for the "
        "benchmarks that have no `ids` of their own",
    )
    output: str = Field(
        "runs", min_length=1, description="folder or s3://bucket/prefix that holds run folders"
    )
    run_id: str | None = Field(
        None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="default: derived from content"
    )
    store: StoreConfig = Field(
        default_factory=StoreConfig, description="where s3:// is, for output and models"
    )
    publish: list[PublishConfig] = Field(
        default_factory=list,
        description="trackers that are sent the numbers of a run that is complete, or of a sweep "
        "([Trackers](trackers.md)): `to` and the tracker's own keys",
    )

    early: EarlyConfig | None = Field(
        None,
        description="decide a comparison as soon as that can be done, and stop "
        "([Early decisions](early.md))",
    )

    @property
    def worker_range(self) -> WorkerRange | None:
        """Return the range of elastic engine workers, or None for a fixed number."""
        return self.workers if isinstance(self.workers, WorkerRange) else None

    @property
    def template_kwargs(self) -> dict[str, Any]:
        """Return the variables of the candidate's chat template. An effort switches thinking on or
        off unless the config does, as in vLLM (`ChatCompletionRequest.build_chat_params`)."""
        effort, asked = self.sampling.reasoning_effort, self.model.chat_template_kwargs
        if effort is None:
            return dict(asked)
        return {"enable_thinking": effort != "none", **asked, "reasoning_effort": effort}

    @field_validator("workers", mode="before")
    @classmethod
    def _range_of_workers(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        try:
            return WorkerRange.model_validate(value)
        except ValidationError as error:  # one line in place of one for each type
            raise ValueError("{min: A, max: B} with 1 <= A <= B") from error

    @field_validator("benchmarks", mode="before")
    @classmethod
    def _names_are_short_for_sections(cls, value: Any) -> Any:
        return _sections(value)


def _sections(benchmarks: Any) -> Any:
    if not isinstance(benchmarks, list):
        return benchmarks
    return [{"name": item} if isinstance(item, str) else item for item in benchmarks]


COMMAND_LINE = "command line"
"""Place of a config without a file, in errors."""
SHIPPED = Path(__file__).parents[1] / "configs"


def load_config(
    path: str | None, overrides: Sequence[str] = (), values: Mapping[str, Any] | None = None
) -> RunConfig:
    """Read a YAML config (or the ``run.json`` of a run), apply overrides, validate.

    Args:
        path: the file, the name of a shipped config, or None.
        overrides: ``a.b=c`` items, whose values are YAML.
        values: top-level keys that override all others. ``limit`` and ``ids`` also override the
            keys of the file's benchmarks. Names in ``benchmarks`` mean the file's sections of that
            name, if there are any.

    Raises:
        UserError: unreadable file, bad YAML, unknown key (with the nearest known one), bad value.
    """
    return run_config(read_tree(path, overrides, values), where=path or COMMAND_LINE)


def read_tree(
    source: str | Mapping[str, Any] | None,
    overrides: Sequence[str] = (),
    values: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the mapping that `load_config` validates: a file's or a given one, with overrides and
    ``values`` applied.

    Raises `UserError`: unreadable file, bad YAML, an override that leads nowhere.
    """
    if isinstance(source, Mapping):
        tree: dict[str, Any] = copy.deepcopy(dict(source))
    else:
        tree = {} if source is None else _file_tree(source)
    values = dict(values or {})
    # Expand short forms before the overrides: benchmarks.0.data=... must reach a benchmark that is
    # only named, and sampling.max_tokens=... must reach `sampling: model`.
    if "benchmarks" in tree:
        tree["benchmarks"] = _sections(tree["benchmarks"])
    if tree.get("sampling") == "model":
        tree["sampling"] = {"defaults": "model"}
    sections = tree.get("benchmarks")
    for section in sections if isinstance(sections, list) else ():
        for key in {"limit", "ids"} & values.keys():
            if isinstance(section, dict):
                section.pop(key, None)
    if names := values.pop("benchmarks", ()):
        tree["benchmarks"] = [
            _section_of(tree.get("benchmarks"), name) if isinstance(name, str) else name
            for name in names
        ]
    for item in overrides:
        _override(tree, item)
    tree = {**tree, **values}
    refuse_secrets(tree, "a config is stored with its results")
    return tree


def _file_tree(path: str) -> dict[str, Any]:
    shipped = shipped_configs()
    fix = f"name an existing YAML file, or one of {', '.join(shipped)}"
    is_shipped = path in shipped and not Path(path).exists()
    try:
        tree = yaml_tree(config_text(str(SHIPPED / f"{path}.yaml") if is_shipped else path, fix))
    except Unbounded as error:
        raise UserError(str(error), where=path, fix="correct the file") from error
    if isinstance(tree, dict) and {"schema_version", "config"} <= tree.keys():
        tree = tree["config"]
    if not isinstance(tree, dict):
        raise UserError("holds no mapping", where=path, fix="start from a file in configs/")
    return tree


def _section_of(sections: Any, name: str) -> Any:
    """Return the config's section of the benchmark ``name``, or a new section."""
    listed = sections if isinstance(sections, list) else []
    named = (one for one in listed if isinstance(one, Mapping) and one.get("name") == name)
    return next(named, {"name": name})


def shipped_configs() -> list[str]:
    """Return the names of the shipped configs."""
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def refuse_secrets(tree: Any, why: str) -> None:
    """Raise `UserError` if ``tree`` holds a secret. The error does not repeat the secret."""
    for key, what in secrets_in(tree):
        raise UserError(
            f"{what}, and {why}",
            where=key,
            fix="leave it to the environment or the credential chain (docs/clusters.md)",
        )


def config_text(path: str, fix: str = "name an existing file") -> str:
    """Return the text of a config file or of a file that a config names. Raises `UserError`."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        text = without_bom(content, path).decode("utf-8")
    except OSError as error:
        raise UserError(
            f"cannot be read: {error.strerror}",
            where=path,
            fix=fix,
        ) from error
    except UnicodeDecodeError as error:
        raise UserError("is not UTF-8 text", where=path, fix="name a text file") from error
    return text


def run_config(tree: Mapping[str, Any], *, where: str) -> RunConfig:
    """Return ``tree`` as a validated config. ``where`` names it in errors. Raises `UserError`."""
    model = tree.get("model")
    if isinstance(model, Mapping) and model.get("endpoint") is not None:
        tree = {"backend": ENDPOINT, **tree}
    config = validated(RunConfig, tree, where=where)
    _check_candidate(config, where)
    return config


def _check_candidate(config: RunConfig, where: str) -> None:
    """Raise `UserError` unless ``config`` names one candidate and the right backend."""
    named = [name for name in ("source", "endpoint") if getattr(config.model, name) is not None]
    if len(named) != 1:
        raise UserError(
            "'model' names both a source and an endpoint" if named else "'model' names no model",
            where=where,
            fix="write either source: (an engine of this run's own) or endpoint: {url: ..., "
            "model: ...}",
        )
    behind = named == [ENDPOINT]
    if behind and config.worker_range:
        raise UserError(
            "'workers' is a range, and workers of an endpoint hold no engine that could come or go",
            where=where,
            fix="write a number, or leave it out",
        )
    if behind != (config.backend == ENDPOINT):
        raise UserError(
            f"'backend' is {config.backend!r}, and the model is "
            + ("behind an endpoint" if behind else "not behind an endpoint"),
            where=where,
            fix="leave backend out" if behind else "name model.endpoint, or another backend",
        )


def _override(tree: dict[str, Any], item: str) -> None:
    key, equals, text = item.partition("=")
    if not equals or not key:
        raise UserError(f"{item!r} is not KEY=VALUE", where="--set", fix="write a.b=c")
    try:
        value = yaml_tree(text)
    except Unbounded as error:
        shown = "the value" if is_secret_name(key.rpartition(".")[2]) else repr(text)
        raise UserError(
            f"{shown} is not a YAML value", where=f"--set {key}", fix="correct or quote it"
        ) from error
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


def validated(
    model: type[M], tree: Mapping[str, Any], *, where: str, beside: Sequence[str] = ()
) -> M:
    """Build ``model`` from ``tree``. Raises `UserError` for all unknown keys or the first other
    problem. ``beside`` has further keys of the section, for suggestions."""
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        refused = mistake(model, error, where=where, run=RunConfig, beside=beside)
    raise refused
