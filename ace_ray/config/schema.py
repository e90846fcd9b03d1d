"""Define the config of a run, and read it from YAML files and ``--set`` overrides.

The stored config of a run (key ``config`` of ``run.json``) is also a valid config."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from ace_ray.config.former_keys import with_present_keys
from ace_ray.config.suggestions import section_error
from ace_ray.errors import UserError
from ace_ray.types import Sampling
from ace_ray.util.local_files import path_of, strip_bom
from ace_ray.util.safe_loading import MOST_BYTES, InvalidContent, yaml_tree
from ace_ray.util.secrets import is_secret_name, secrets_in

M = TypeVar("M", bound=BaseModel)


def cache_root() -> Path:
    """Return the folder for downloads, imports and converted models: ``ACE_RAY_CACHE``, or by
    default ``~/.cache/ace_ray``."""
    set_root = os.environ.get("ACE_RAY_CACHE")
    return path_of(set_root, "ACE_RAY_CACHE") if set_root else Path.home() / ".cache" / "ace_ray"


class Section(BaseModel):
    """A config section. Unknown keys are errors, and values are not converted between types. The
    docstring below a key is shown in docs/configuration.md."""

    model_config = ConfigDict(
        extra="forbid", protected_namespaces=(), strict=True, allow_inf_nan=False
    )


# Backend of a run that consists of external outputs.
EXTERNAL: Literal["external"] = "external"
# Backend of a run whose candidate is served by an endpoint.
ENDPOINT: Literal["endpoint"] = "endpoint"

CountOrAuto = Annotated[int, Field(ge=1)] | Literal["auto"]


class WorkerRange(Section):
    """Minimum and maximum number of engine workers, on a cluster where nodes join and leave."""

    min: int = Field(1, ge=1)
    """minimum number of workers; with fewer the run does not start"""
    max: int = Field(ge=1)
    """maximum number of workers; the run grows up to it when nodes join"""

    @model_validator(mode="after")
    def _check_order(self) -> WorkerRange:
        if self.min > self.max:
            raise ValueError(f"min = {self.min} is more than max = {self.max}")
        return self


class EndpointConfig(Section):
    url: str = Field(min_length=1)
    """base URL, e.g. https://api.openai.com/v1"""
    model: str = Field(min_length=1)
    """the model's name at the endpoint"""
    api_key_env: str | None = Field("OPENAI_API_KEY", min_length=1)
    """environment variable with the API key; null for an endpoint without keys"""
    timeout_s: float = Field(120.0, gt=0)
    """timeout of one attempt, from the request to the end of the answer"""
    max_retries: int = Field(5, ge=0, le=100)
    """maximum retries after the first attempt"""
    requests_per_minute: int | None = Field(None, ge=1)
    """rate limit per engine worker, evenly spaced; retries count"""
    max_concurrency: int = Field(64, ge=1)
    """requests in flight per engine worker"""


class CandidateEndpoint(EndpointConfig):
    extra_body: dict[str, Any] = Field(default_factory=dict)
    """extra keys for every request, such as a provider's reasoning settings; tool_choice and
    parallel_tool_calls are sent only with tools; null removes a key, such as temperature, from
    requests"""


class ModelConfig(Section):
    source: str | None = Field(None, min_length=1)
    """Hugging Face id, local folder, s3:// prefix, .gguf file, or package:NAME/PATH for a file
    inside an installed Python package"""
    endpoint: CandidateEndpoint | None = None
    """OpenAI-compatible server that runs the candidate, in place of source
    ([Endpoints](endpoints.md))"""
    revision: str | None = None
    """branch, tag or commit of a Hugging Face model; resolved to a commit"""
    adapter: str | None = Field(None, min_length=1)
    """LoRA adapter for the model: a folder, an s3:// prefix, or a Hugging Face id"""
    adapter_revision: str | None = None
    """branch, tag or commit of a Hugging Face adapter; resolved to a commit"""
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    """variables for the chat template, e.g. enable_thinking"""
    reasoning_parser: str = "auto"
    """name of a vLLM reasoning parser; auto: the parser of the model's family if the model thinks,
    else <think> blocks; none: do not separate reasoning from the answer"""
    tool_parser: str | None = Field(None, min_length=1)
    """vLLM tool parser that reads tool calls from answers (native tool calling); auto: the parser
    of the model's family"""
    chat_template: str | None = Field(None, min_length=1)
    """file with a chat template to use instead of the model's own (--chat-template of vLLM's
    server)"""
    plugins: list[str] = Field(default_factory=list)
    """Python files that register reasoning or tool parsers with vLLM"""
    replay_reasoning: Literal["none", "tool_steps", "all"] | None = None
    """reasoning of earlier answers to include in the prompt: none, tool_steps (the steps since the
    last user message), or all; default: the benchmark's choice"""
    start_date: str | None = Field(None, pattern=r"^\d{4}-\d{2}-\d{2}$")
    """date for chat templates that contain the current date; default: VLLM_SYSTEM_START_DATE, else
    2025-08-05"""


_Text = Annotated[str, Field(min_length=1)]


class SamplingConfig(Section):
    """Sampling parameters. Their ranges are vLLM's. The config value ``sampling: model`` is short
    for ``sampling: {defaults: model}``."""

    defaults: Literal["model"] | None = None
    """model: take values that are not set here from the model's generation_config.json; `sampling:
    model` is short for `sampling: {defaults: model}`"""
    temperature: float = Field(0.0, ge=0, le=2)
    """sampling temperature; 0 is greedy"""
    top_p: float = Field(1.0, gt=0, le=1)
    """probability mass to sample from; 1 keeps all tokens"""
    top_k: int = Field(0, ge=0)
    """number of most likely tokens to sample from; 0 keeps all tokens"""
    max_tokens: int = Field(1200, ge=1)
    """maximum tokens per answer; the default is upstream's"""
    seed: int = Field(0, ge=0, le=2**31 - 1)
    """base seed; each row derives its own seed from seed + i (for sample i) and its key"""
    stop: list[_Text] = Field(default_factory=list)
    """texts that end an answer"""
    min_p: float = Field(0.0, ge=0, le=1)
    """minimum probability of a token, relative to the most likely token"""
    presence_penalty: float = Field(0.0, ge=-2, le=2)
    """penalty on tokens that already occur in the answer"""
    frequency_penalty: float = Field(0.0, ge=-2, le=2)
    """penalty on tokens of the answer, multiplied by their number of occurrences"""
    repetition_penalty: float = Field(1.0, gt=0)
    """penalty on tokens of the prompt and the answer, also at temperature 0; 1 means none"""
    thinking_token_budget: int | None = Field(None, ge=0)
    """maximum tokens of reasoning per answer; needs one of vLLM's built-in reasoning parsers, or
    engine.reasoning_config"""
    reasoning_effort: str | None = Field(None, pattern=r"^[a-z_]{1,20}$")
    """reasoning effort, e.g. low: a variable of the chat template, or an endpoint's field"""

    @model_validator(mode="before")
    @classmethod
    def _expand_short_form(cls, value: Any) -> Any:
        return {"defaults": "model"} if value == "model" else value

    @model_serializer(mode="wrap")
    def _serialize(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = serialize(self)
        if self.is_complete:
            return values
        # Leave out our defaults: when the config is read again, they would override the model's.
        return {name: value for name, value in values.items() if name in self.model_fields_set}

    @property
    def is_complete(self) -> bool:
        """Return whether all values are known without the model's ``generation_config.json``."""
        drawn = type(self).model_fields.keys() - {"defaults"}
        return self.defaults is None or drawn <= self.model_fields_set

    def fill_from_model(self, model_values: Mapping[str, Any], *, location: str) -> SamplingConfig:
        """Return a copy with a value for every key: from the config, else from ``model_values``,
        else the default. Raises `UserError` if a model's value (file ``location``) is invalid."""
        ours = SamplingConfig().model_dump(exclude={"defaults"})
        config_values = {name: getattr(self, name) for name in self.model_fields_set}
        return validate_tree(
            SamplingConfig, {**ours, **model_values, **config_values}, where=location
        )

    def sampling(self) -> Sampling:
        """Return the values as `Sampling`. Raises `ValueError` if `is_complete` is false."""
        if not self.is_complete:
            raise ValueError("'sampling: model' lacks the values of generation_config.json")
        return Sampling(**self.model_dump(exclude={"defaults", "stop"}), stop=tuple(self.stop))


class StoreConfig(Section):
    endpoint_url: str | None = Field(None, pattern=r"^https?://[^/]")
    """URL of an S3-compatible store"""
    region: str | None = None
    """S3 region; default: from the environment"""


Ids = Annotated[
    Annotated[list[_Text], Field(min_length=1)] | None,
    AfterValidator(lambda ids: ids and list(dict.fromkeys(ids))),
]


class _OptionsSection(BaseModel):
    """A section that accepts more keys, as ``options``. The benchmark or tracker checks them."""

    model_config = ConfigDict(extra="allow", strict=True)

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class BenchmarkConfig(_OptionsSection):
    """A benchmark's section of the config. The benchmark checks its ``options``."""

    name: str
    """name of an installed benchmark, or of a class in a local file (FILE.py:CLASS)"""
    limit: int | None = Field(None, ge=1)
    """maximum number of entries, taken from every category and language in turn; overrides the
    run's `limit`"""
    ids: Ids = None
    """entries to evaluate: ID (in every language and category that has it), CATEGORY/ID, or
    LANGUAGE/CATEGORY/ID; overrides the run's `ids`"""


# Keys that every section of ``benchmarks`` accepts, in addition to the benchmark's options.
SECTION_KEYS = tuple(BenchmarkConfig.model_fields)


class PublishConfig(_OptionsSection):
    """A tracker's section of the config. The tracker checks its ``options``."""

    tracker: str = Field(min_length=1)
    """name of the tracker: tensorboard, trackio, wandb or mlflow"""


class EarlyConfig(Section):
    """Settings of early stopping: decide a comparison before all rows are evaluated."""

    reference: str | None = Field(None, min_length=1)
    """folder of the finished run to compare with; in a sweep also `previous` or `baseline` (its
    first model); null: decide nothing early, but keep the same row order"""
    alpha: float = Field(0.05, gt=0, lt=1)
    """probability of any wrong decision in the whole sweep or run"""
    margin: float = Field(1.0, ge=0, le=100)
    """difference in points that does not matter; 0: every difference matters"""
    min_rows: int = Field(200, ge=1)
    """minimum number of rows before a decision"""
    stop: bool = True
    """stop a run when its comparison is decided; false: evaluate all rows and only record the
    decision"""


_TIME_LIMIT = re.compile(r"(?:(\d{1,4})d)?(?:(\d{1,6})h)?(?:(\d{1,8})m)?(?:(\d{1,9})s)?")


def seconds_of(limit: str) -> float:
    """Return the seconds of a limit such as ``3h40m``. Raises `ValueError` for any other form."""
    if total := _total_seconds(limit):
        return float(total)
    # The words follow "it should be" (`ace_ray.config.suggestions`).
    for unit in "s" if limit.isdecimal() else "ms":  # the likely unit after the last number
        if _total_seconds(limit + unit):
            raise ValueError(f"a time with a unit after each number, such as {limit}{unit}")
    raise ValueError("a time above 0, such as 3h40m, 90m or 45s")


def _total_seconds(limit: str) -> int:
    """Return the seconds of ``limit``; 0 if it is not a time."""
    match = _TIME_LIMIT.fullmatch(limit)
    units = zip(match.groups(), (86_400, 3_600, 60, 1), strict=True) if match else ()
    return sum(int(part or 0) * seconds for part, seconds in units)


def _check_time_limit(limit: Any) -> Any:
    if limit not in (None, "auto"):
        seconds_of(str(limit))  # a number has no unit
    return limit


def _parse_worker_range(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    try:
        return WorkerRange.model_validate(value)
    except ValidationError as error:  # replaces one message per type of the union
        raise ValueError("{min: A, max: B} with 1 <= A <= B") from error


def _expand_names(benchmarks: Any) -> Any:
    """Convert the short form of a section, a name, to a mapping."""
    if not isinstance(benchmarks, list):
        return benchmarks
    return [{"name": item} if isinstance(item, str) else item for item in benchmarks]


class RunConfig(Section):
    model: ModelConfig
    """model to evaluate (the candidate)"""
    benchmarks: Annotated[list[BenchmarkConfig], BeforeValidator(_expand_names)] = Field(
        min_length=1
    )
    """benchmarks: names, or mappings with a name and the benchmark's own keys"""
    backend: Literal["vllm", "endpoint", "fake", "external"] = "vllm"
    """engine that generates the answers; endpoint is set by `model.endpoint`; fake answers without
    a model, to test the pipeline; external marks stored runs made from external outputs (`ace-ray
    score`)"""
    engine: dict[str, Any] = Field(default_factory=dict)
    """engine arguments, under vLLM's own names"""
    sampling: SamplingConfig = Field(default_factory=SamplingConfig)
    """sampling parameters of the candidate"""
    samples: int = Field(1, ge=1, le=10_000)
    """number of answers per entry"""
    repeat_fraction: float = Field(0.0, ge=0, le=1)
    """share of the dialogues to generate twice, to measure how much two identical runs differ;
    repeats do not count towards accuracy"""
    workers: Annotated[CountOrAuto | WorkerRange, BeforeValidator(_parse_worker_range)] = "auto"
    """number of engine workers; auto: as many as fit on the cluster's GPUs, 1 on CPU; {min: 1,
    max: 8}: as many as fit while nodes join and leave
    ([Clusters](clusters.md#nodes-that-come-and-go))"""
    worker_cpus: float = Field(1.0, gt=0)
    """logical CPUs per engine worker"""
    concurrency: CountOrAuto = "auto"
    """rows in flight per worker; auto: twice the engine's max_num_seqs"""
    rows_per_block: CountOrAuto = "auto"
    """maximum rows per Ray Data block; auto: 2, up to 64 or more in larger runs"""
    rows_per_part: CountOrAuto = "auto"
    """rows per Parquet part; auto: depends on the size of the run"""
    episode_timeout_s: float = Field(3600.0, gt=0)
    """timeout of a row; an interactive episode is cut off and judged as it is, any other row
    fails"""
    max_attempts: int = Field(3, ge=1)
    """maximum passes of a command over rows that fail because of the infrastructure"""
    engine_stall_timeout_s: float = Field(300.0, gt=0)
    """timeout after which an engine with requests in flight and no progress is killed"""
    start_timeout_s: float = Field(3600.0, gt=0)
    """timeout for the first engine to start; where nodes join and leave, also the longest time
    without any engine"""
    store_retry_timeout_s: float = Field(600.0, ge=0)
    """time that the store may refuse writes before the run fails"""
    drain_timeout_s: float = Field(20.0, ge=0)
    """time that rows in flight get to finish after Ctrl-C or SIGTERM"""
    time_limit: Annotated[str | None, BeforeValidator(_check_time_limit)] = "auto"
    """time after which the run must have ended, such as 3h40m; auto: only the end of the job in
    `SLURM_JOB_END_TIME` or `ACE_RAY_END_TIME` (Unix time); null: no limit"""
    durations_from: str | None = Field(None, min_length=1)
    """folder or s3:// prefix of an earlier run of the same entries, also with another model: rows
    that took long there start first; a resumed run also learns from its own rows"""
    price_per_hour: float | None = Field(None, ge=0)
    """price of one GPU (without GPUs: of one CPU) per hour"""
    store_token_ids: bool = True
    """store the token ids of every answer (column `output_token_ids`), which `ace-ray reread` and
    `compare --explain` use"""
    max_unscored_fraction: float = Field(0.0, ge=0, le=1)
    """maximum share of unscored rows with which a headline number is still given"""
    limit: int | None = Field(None, ge=1)
    """maximum number of entries of all benchmarks together, taken from every category and language
    in turn; applies to benchmarks without a `limit` of their own"""
    ids: Ids = None
    """entries to evaluate, each from at least one benchmark; applies to benchmarks without `ids` of
    their own"""
    output: str = Field("runs", min_length=1)
    """folder or s3://bucket/prefix for the run folders"""
    run_id: str | None = Field(None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """name of the run folder; default: derived from the config's content"""
    store: StoreConfig = Field(default_factory=StoreConfig)
    """S3 settings for output and models"""
    publish: list[PublishConfig] = Field(default_factory=list)
    """trackers that receive the numbers of a complete run or of a sweep ([Trackers](trackers.md)):
    `tracker` and the tracker's own keys"""

    early: EarlyConfig | None = None
    """early stopping: decide a comparison as soon as possible, and stop the run ([Early
    decisions](early.md))"""

    @property
    def worker_range(self) -> WorkerRange | None:
        """Return the range of elastic engine workers, or None if their number is fixed."""
        return self.workers if isinstance(self.workers, WorkerRange) else None

    @property
    def template_kwargs(self) -> dict[str, Any]:
        """Return the variables for the candidate's chat template. ``reasoning_effort`` also sets
        ``enable_thinking``, unless the config sets it. vLLM has the same rule
        (`ChatCompletionRequest.build_chat_params`)."""
        effort, kwargs = self.sampling.reasoning_effort, self.model.chat_template_kwargs
        if effort is None:
            return dict(kwargs)
        return {"enable_thinking": effort != "none", **kwargs, "reasoning_effort": effort}


# Name, in errors, of a config that was not read from a file.
COMMAND_LINE = "command line"
SHIPPED = Path(__file__).parents[1] / "configs"


def load_config(
    path: str | None, overrides: Sequence[str] = (), values: Mapping[str, Any] | None = None
) -> RunConfig:
    """Read a config, apply overrides, and validate the result. ``path``: a YAML file, the
    ``run.json`` of a run, the name of a shipped config, or None. ``overrides``: items ``a.b=c``
    with YAML values. ``values``: top-level key -> value; they override the file and ``overrides``,
    and ``limit`` and ``ids`` override the keys of the file's benchmarks. A name in ``benchmarks``
    selects the file's section with this name, if there is one. Raises `UserError` if the file is
    not readable YAML, or a key or value is not valid."""
    return run_config(read_tree(path, overrides, values), where=path or COMMAND_LINE)


def read_tree(
    source: str | Mapping[str, Any] | None,
    overrides: Sequence[str] = (),
    values: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the mapping that `load_config` validates: the content of ``source`` (a file, the
    name of a shipped config, or a mapping) with ``overrides`` and ``values``. Paths in a file
    are relative to its folder (`_resolve_paths`). Raises `UserError`: the file is not readable
    YAML, or an override has no place in the mapping."""
    folder: Path | None = None
    if isinstance(source, Mapping):
        tree: dict[str, Any] = copy.deepcopy(dict(source))
    else:
        tree, folder = ({}, None) if source is None else _file_tree(source)
    values = dict(values or {})
    # Expand short forms first, so that overrides can change keys of a benchmark that is only a
    # name, and of `sampling: model`.
    if "benchmarks" in tree:
        tree["benchmarks"] = _expand_names(tree["benchmarks"])
    if tree.get("sampling") == "model":
        tree["sampling"] = {"defaults": "model"}
    if folder is not None:
        tree = _resolve_paths(tree, folder)
    listed = tree.get("benchmarks")
    sections = [s for s in listed if isinstance(s, dict)] if isinstance(listed, list) else []
    for section in sections:
        for key in {"limit", "ids"} & values.keys():
            section.pop(key, None)
    if names := values.pop("benchmarks", ()):
        tree["benchmarks"] = [
            next((s for s in sections if s.get("name") == name), {"name": name})
            if isinstance(name, str)
            else name
            for name in names
        ]
    for item in overrides:
        _override(tree, item)
    tree = {**tree, **values}
    refuse_secrets(tree, "a config is stored with its results")
    return tree


def _file_tree(path: str) -> tuple[dict[str, Any], Path | None]:
    """Return the mapping in a file, and the folder to which its paths are relative, if any."""
    shipped = shipped_configs()
    fix = f"name an existing YAML file, or one of {', '.join(shipped)}"
    is_shipped = path in shipped and not Path(path).exists()
    tree = yaml_file(str(SHIPPED / f"{path}.yaml") if is_shipped else path, fix)
    folder = None if is_shipped else Path(os.path.abspath(path)).parent
    if isinstance(tree, dict) and {"schema_version", "config"} <= tree.keys():
        tree, folder = with_present_keys(tree["config"]), None
    if not isinstance(tree, dict):
        raise UserError("is not a mapping", where=path, fix="start from a file in configs/")
    return tree, folder


# Keys of files and folders that a run reads. Options of benchmarks may be paths, too.
_PATH_KEYS = (
    *("source", "adapter", "chat_template", "plugins", "checkpoints", "stop_file"),
    *("reference", "durations_from"),
)


def _resolve_paths(node: Any, folder: Path, key: str = "", parent: str = "") -> Any:
    """Return ``node``, a part of a config, with absolute paths to files beside the config.

    A path begins with ``./`` or ``../``, or has a slash or a suffix and exists in ``folder``.
    ``FILE.py:CLASS`` is one, too. Other texts may be names, such as ids of the Hugging Face Hub."""
    if isinstance(node, dict):
        return {k: _resolve_paths(value, folder, str(k), key) for k, value in node.items()}
    if isinstance(node, list):
        return [_resolve_paths(value, folder, key) for value in node]
    if not isinstance(node, str) or (parent != "benchmarks" and key not in _PATH_KEYS):
        return node
    path, colon, attribute = node.partition(":")
    may_exist = ("/" in path or "." in path) and os.path.exists(folder / path)
    is_path = path.startswith(("./", "../")) or may_exist
    return f"{folder / path}{colon}{attribute}" if is_path else node


def shipped_configs() -> list[str]:
    """Return the names of the shipped configs."""
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def refuse_secrets(tree: Any, why: str) -> None:
    """Raise `UserError` if ``tree`` contains a secret. The error does not contain the secret.

    ``why`` completes the error: the reason why secrets are not allowed."""
    for key, problem in secrets_in(tree):
        raise UserError(
            f"{problem}, and {why}",
            where=key,
            fix="leave it to the environment or the credential chain (docs/clusters.md)",
        )


def yaml_file(path: str, fix: str = "name an existing file") -> Any:
    """Return the content of a YAML file. Raises `UserError` if it is not readable YAML."""
    try:
        return yaml_tree(config_text(path, fix))
    except InvalidContent as error:
        raise UserError(str(error), where=path, fix="correct the file") from error


def config_text(path: str, fix: str = "name an existing file") -> str:
    """Return the text of a config or of a file in it. Raises `UserError` if it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            return strip_bom(file.read(MOST_BYTES + 1), path).decode("utf-8")
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=path, fix=fix) from error
    except UnicodeDecodeError as error:
        raise UserError("is not UTF-8 text", where=path, fix="name a text file") from error


def run_config(tree: Mapping[str, Any], *, where: str) -> RunConfig:
    """Validate ``tree`` as a config. Raises `UserError`, with ``where``, if ``tree`` is invalid."""
    model = tree.get("model")
    if isinstance(model, str):
        fix = f"write model: {{source: {model}}}"
        raise UserError(f"'model' is {model!r:.100}, not a mapping", where=where, fix=fix)
    if isinstance(model, Mapping) and model.get("endpoint") is not None:
        tree = {"backend": ENDPOINT, **tree}
    config = validate_tree(RunConfig, tree, where=where)
    _check_candidate(config, where)
    return config


def _check_candidate(config: RunConfig, location: str) -> None:
    """Raise `UserError` unless ``config`` names one model and a backend that fits it."""
    kinds = [name for name in ("source", "endpoint") if getattr(config.model, name) is not None]
    if len(kinds) != 1:
        raise UserError(
            "'model' names both a source and an endpoint"
            if kinds
            else "'model' has neither a source nor an endpoint",
            where=location,
            fix="write either source: (the run starts its own engine) or endpoint: {url: "
            "..., model: ...}",
        )
    behind = kinds == [ENDPOINT]
    if behind and config.worker_range:
        raise UserError(
            "elastic workers are not supported with model.endpoint",
            where=location,
            fix="write a number, or leave workers out",
        )
    if behind != (config.backend == ENDPOINT):
        raise UserError(
            f"'backend' is {config.backend!r}, but the model is "
            + ("behind an endpoint" if behind else "not behind an endpoint"),
            where=location,
            fix="leave backend out" if behind else "name model.endpoint, or another backend",
        )


def _override(tree: dict[str, Any], item: str) -> None:
    key, equals, text = item.partition("=")
    if not equals or not key:
        raise UserError(f"{item!r} is not KEY=VALUE", where="--set", fix="write a.b=c")
    try:
        value = yaml_tree(text)
    except InvalidContent as error:
        label = "the value" if is_secret_name(key.rpartition(".")[2]) else repr(text)
        raise UserError(
            f"{label} is not a YAML value", where=f"--set {key}", fix="correct or quote it"
        ) from error
    node: Any = tree
    *parents, last = key.split(".")
    for part in parents:
        index = _index(node, part, key)
        if isinstance(node, dict) and node.get(index) is None:
            node[index] = {}
        node = node[index]
    node[_index(node, last, key)] = value


def _index(node: Any, part: str, key: str) -> Any:
    """Return ``part`` of ``key`` as a key or index of ``node``. Raises `UserError` for neither."""
    if isinstance(node, dict):
        return part
    if isinstance(node, list) and part.isdecimal() and int(part) < len(node):
        return int(part)
    raise UserError(
        f"{part!r} is neither a key of a section nor the index of an item",
        where=f"--set {key}",
        fix="check the key's path",
    )


def validate_tree(
    model: type[M], tree: Mapping[str, Any], *, where: str, beside: Sequence[str] = ()
) -> M:
    """Validate ``tree`` as a ``model``. ``where`` is its name in errors; ``beside``: further keys
    that it accepts. Raises `UserError` with all unknown keys, or else with the first problem."""
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        refused = section_error(model, error, source=where, run=RunConfig, beside=beside)
    raise refused
