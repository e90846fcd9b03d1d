"""Fix the revisions of the models that play roles in episodes, and call them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.context import Model, RoleModel
from ace_ray.benchmarks.validation import user_code
from ace_ray.cluster.resources import ROLE_ENGINE_CPUS, gpus_per_worker
from ace_ray.config.roles import EndpointRole, Role, ServedRole
from ace_ray.config.schema import RunConfig
from ace_ray.errors import RowError, UserError
from ace_ray.models.endpoint import EndpointModel
from ace_ray.models.engine_args import check_engine_args, check_parsers
from ace_ray.models.families import FormatChoice, family_facts, resolve_parsers
from ace_ray.models.sampling import check_budget, check_sampling, fill_defaults
from ace_ray.models.sources import ModelRef, resolve, tokenizer_folder
from ace_ray.models.urls import endpoint_access, endpoint_identity, host_of, path_identity
from ace_ray.pipeline.health.heartbeat import LONGEST_WHY
from ace_ray.types import Completion, Messages, Sampling, Tools, digest
from ace_ray.util.sanitizing import one_line

# Keys of a model's section that only apply to the candidate.
_OF_CANDIDATES = ("chat_template", "plugins", "replay_reasoning", "start_date")


@dataclass(frozen=True)
class RoleBinding:
    """The model of one role of a benchmark, with all settings that can change a score."""

    role: Role
    model: ModelRef | None
    """The candidate if the role is set to ``same``; the served model; None for an endpoint."""
    sampling: Sampling
    identity: Mapping[str, Any]
    calls: bool = False
    """Whether the role is offered tools."""


class RoleEngineFailed(RowError):
    """Raised if the engine of a role fails, or is gone and was not restarted."""


# benchmark -> role -> binding
RoleBindings = Mapping[str, Mapping[str, RoleBinding]]
# (benchmark, role) -> binding
RoleGroup = dict[tuple[str, str], RoleBinding]


def bind_roles(
    config: RunConfig, candidate: ModelRef, benchmarks: Sequence[Benchmark]
) -> RoleBindings:
    """Return the bindings of all roles, with fixed model revisions. Raises `UserError` if a role's
    settings are invalid or its model cannot be found."""
    bindings = {}
    for benchmark in benchmarks:
        with user_code(type(benchmark), "roles"):
            settings = {
                name: (role, benchmark.role_sampling(name), benchmark.offers_tools(name))
                for name, role in benchmark.roles().items()
            }
        bindings[benchmark.name] = {
            name: _binding(config, candidate, benchmark, name, *of_role)
            for name, of_role in settings.items()
        }
    return bindings


def _binding(
    config: RunConfig,
    candidate: ModelRef,
    benchmark: Benchmark,
    name: str,
    role: Role,
    default: Sampling,
    calls: bool,
) -> RoleBinding:
    """Return the binding of the role ``name``. ``default``: sampling if the role sets none.
    ``calls``: whether the role is offered tools."""
    location = f"benchmarks.{benchmark.name}.{name}"
    check_role(role, location)
    model: ModelRef | None = candidate
    folder: Path | None = None
    if isinstance(role, EndpointRole):
        model = None
    elif isinstance(role, ServedRole):
        assert role.model.source is not None  # `parse_role` refuses a role without a source
        if calls and role.model.tool_parser is None:
            raise UserError(
                "this role is offered tools, so it needs a tool parser",
                where=f"{location}.model.tool_parser",
                fix="write auto, or the name of the model's parser (ace-ray list parsers)",
            )
        model = resolve(
            role.model.source,
            role.model.revision,
            **config.store.model_dump(),
            weights=role.engine.get("load_format") != "dummy",
        )
        folder = tokenizer_folder(model)
        facts = family_facts(folder, str(role.engine.get("tokenizer_mode", "auto")))
        with locate_errors(location):
            role = resolve_parsers(role, facts, calls=calls)
        parser = role.model.reasoning_parser
        check_budget(role.sampling, role.engine, parser, location=f"{location}.sampling")
    sampling = default
    if role == "same":
        # The limit on the candidate's answers also applies when it plays another role.
        max_tokens = min(sampling.max_tokens, config.sampling.max_tokens)
        sampling = replace(sampling, max_tokens=max_tokens)
    elif role.sampling is not None:
        engine = role.engine if isinstance(role, ServedRole) else {}
        section = fill_defaults(role.sampling, folder, engine, location=f"{location}.sampling")
        sampling = section.sampling()
    identity = role_identity(role, model, sampling)
    if name not in benchmark.shared_roles:
        identity["sampling"] = sampling.identity()
    return RoleBinding(role, model, sampling, identity, calls)


def check_role(role: Role, location: str) -> None:
    """Check ``role`` without sending a request. Raises `UserError` if its URL is bad or contains a
    secret, if the API key is missing, or if vLLM does not know an engine argument or parser."""
    if isinstance(role, EndpointRole):
        endpoint_access(role.endpoint, f"{location}.endpoint")
    elif isinstance(role, ServedRole):
        with locate_errors(location):
            check_engine_args(role.engine)
            if role.model.adapter is not None:
                raise UserError(
                    "the model of a role cannot have an adapter",
                    where="model.adapter",
                    fix="merge it into its base and name the result as model.source",
                )
            check_parsers(role.model)
            for key in _OF_CANDIDATES:
                if getattr(role.model, key):
                    problem = f"{key!r} applies only to the evaluated model"
                    raise UserError(problem, where=f"model.{key}", fix="leave it out")
            check_sampling(role.sampling, role.model, location="sampling")
    elif role != "same":
        fix = "make it with ace_ray.config.roles.parse_role"
        raise UserError(f"{role!a:.80} is not a role", where=location, fix=fix)


@contextmanager
def locate_errors(location: str) -> Iterator[None]:
    """Context that puts ``location``, the config key of a role, before the key in a `UserError`."""
    try:
        yield
    except UserError as error:
        raise UserError(error.what, where=f"{location}.{error.where}", fix=error.fix) from error


def role_identity(role: Role, model: ModelRef | None, sampling: Sampling) -> dict[str, Any]:
    """Return the properties of a role that can change a score, as JSON values without secrets.

    ``model``: the candidate if the role is ``same``, the served model if it is a `ServedRole`, None
    if it is an `EndpointRole`. ``sampling`` comes from the role or from the benchmark."""
    drawn = sampling.as_json()
    if isinstance(role, EndpointRole):
        return {
            "kind": "endpoint",
            "model": role.endpoint.model,
            "revision": None,
            "endpoint": host_of(role.endpoint.url),
            **path_identity(role.endpoint.url),
            "sampling": drawn,
        }
    if model is None:
        raise ValueError("a role without an endpoint needs a resolved model")
    identity: dict[str, Any] = {
        "kind": "same" if role == "same" else "served",
        "model": model.source,
        "revision": model.known_revision,
        "sampling": drawn,
        **({"adapter": model.adapter.ref.revision} if model.adapter else {}),
    }
    if isinstance(role, ServedRole):
        identity["chat_template_kwargs"] = role.model.chat_template_kwargs
        identity["reasoning_parser"] = role.model.reasoning_parser
        if role.model.tool_parser is not None:
            identity["tool_parser"] = role.model.tool_parser
        identity["engine"] = role.engine
    return identity


def candidate_identity(config: RunConfig, model: ModelRef, choice: FormatChoice) -> dict[str, Any]:
    """Return the properties of the candidate that can change its answers, except sampling.

    They are JSON values without secrets. ``model`` is the resolved model of ``config``."""
    identity = {
        "model": model.source,
        "revision": model.known_revision,
        "chat_template_kwargs": config.template_kwargs,
        **choice.identity,
        "backend": config.backend,
        "engine": config.engine,
        **({"adapter": model.adapter.ref.revision} if model.adapter else {}),
    }
    if config.model.endpoint is not None:
        identity["endpoint"] = endpoint_identity(config.model.endpoint)
    return identity


def shared_engines(bindings: RoleBindings) -> list[tuple[ServedRole, RoleGroup]]:
    """Group the served roles that can share engines: those with the same model and settings, except
    for the sampling, which each request has. Return (first role, group) for each group; a group
    maps (benchmark, role name) to the binding."""
    groups: dict[Any, tuple[ServedRole, RoleGroup]] = {}
    for benchmark, roles in bindings.items():
        for name, binding in roles.items():
            if isinstance(role := binding.role, ServedRole):
                settings = role.model_copy(update={"sampling": None}).model_dump_json()
                _, group = groups.setdefault((settings, binding.model), (role, {}))
                group[benchmark, name] = binding
    return list(groups.values())


def demand(bindings: RoleBindings, *, on_gpu: bool) -> list[tuple[float, int]]:
    """Return (CPUs, GPUs) for each engine of the roles. Each of these engines needs one node."""
    return [
        (ROLE_ENGINE_CPUS, gpus_per_worker(role.engine) if on_gpu else 0)
        for role, _ in shared_engines(bindings)
        for _ in range(role.replicas)
    ]


class RemoteModel:
    """The model of a role, whose engine is in the actor ``engine`` (`RoleEngine`)."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    async def chat(self, messages: Messages, sampling: Sampling, tools: Tools = None) -> Completion:
        """Return the engine's answer. If the actor restarts, Ray repeats the request."""
        import ray

        request = self._engine.chat.remote(messages, sampling, tools)
        try:
            answer: Completion | RowError = await request
        except asyncio.CancelledError:
            ray.cancel(request)  # else the engine would finish an answer that nobody reads
            raise
        except ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None) or error
            line = one_line(f"{type(cause).__name__}: {cause}", LONGEST_WHY)
            raise RoleEngineFailed(f"the engine of a role gave no answer: {line}") from error
        if isinstance(answer, RowError):
            raise answer
        return answer


class RoleModels:
    """The models of all roles for one worker. Its episodes share the clients of endpoints.

    ``served`` has the actors of the roles' engines by (benchmark, role name)."""

    def __init__(
        self,
        bindings: RoleBindings,
        served: Mapping[tuple[str, str], Sequence[Any]],
        candidate: Model,
    ) -> None:
        self._bindings = bindings
        self._replicas: dict[tuple[str, str], list[Model]] = {}
        for benchmark, roles in bindings.items():
            for name, binding in roles.items():
                replicas: list[Model] = [candidate]
                if isinstance(binding.role, EndpointRole):
                    replicas = [EndpointModel(binding.role.endpoint)]
                elif isinstance(binding.role, ServedRole):
                    replicas = [RemoteModel(engine) for engine in served[benchmark, name]]
                self._replicas[benchmark, name] = replicas

    def models_of(
        self, benchmark: Benchmark, sample: int, path: Sequence[str]
    ) -> dict[str, RoleModel]:
        """Return the models of a benchmark by role, with the seeds for this sample of the entry
        ``path``. All requests of an episode go to the same replica, whose cache has its prefix."""
        number = int(digest(sample, *path), 16)
        models = {}
        for name, binding in self._bindings.get(benchmark.name, {}).items():
            replicas, sampling = self._replicas[benchmark.name, name], binding.sampling
            if name not in benchmark.shared_roles:
                sampling = sampling.with_row_seed(sample, *path)
            model = replicas[number % len(replicas)]
            models[name] = RoleModel(model, sampling, binding.identity)
        return models
